"""Credentials: taken out before anything is written down, once and for all."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor import Agentor, FileStore, LiteLLMModel, MemoryStore, ModelSettings, Redactor
from agentor.engine.events import Generation, ToolResult
from agentor.errors import ModelError
from agentor.testing import ScriptedModel, answer, call

KEY = "canary-4f9a1c77d2e84b0e"
SHAPES = {  # none of them is a real one
    "anthropic": "sk-ant-api03-" + "aB3" * 12,
    "openai": "sk-proj-" + "x9Y" * 12,
    "stripe": "sk_live_" + "a1" * 12,
    "google": "AIza" + "Sy0" * 12,
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2" * 9,
    "slack": "xoxb-1234567890-abcdef",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "bearer": "Bearer abcdefghijkl0123",
    "url": "postgres://user:hunter2secret@db/x",
    "query": "https://x.example/?key=abcdef123456",
    "assignment": "password = 'correct-horse'",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
}
PARTS = {
    "bearer": "abcdefghijkl0123",
    "url": "hunter2secret",
    "query": "abcdef123456",
    "assignment": "correct-horse",
}


def redactor(**options: Any) -> Redactor:
    return Redactor(
        environment={"SERVICE_API_KEY": KEY, "HOME": "/somewhere-long", "A_TOKEN": "short"}, **options
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_what_has_the_shape_of_a_credential_is_replaced_and_its_surroundings_stay(shape: str) -> None:
    text = f"before {SHAPES[shape]} after"
    clean = redactor().text(text)
    assert PARTS.get(shape, SHAPES[shape]) not in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert redactor().text(clean) == clean


@given(st.text(), st.sampled_from(sorted(SHAPES)), st.text())
def test_cleaning_twice_changes_nothing_more(before: str, shape: str, after: str) -> None:
    once = redactor().text(before + SHAPES[shape] + after)
    assert redactor().text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096, tokens: 12",
        "the API key is missing; pass api_key=: no such luck",
        "task-12 is done; see https://example.org/a?b=c",
        "ask-me-anything-about-this-long-thing",
        "call_I670mAzR6AYszdoqaI96qg0k toolu_01Pjc5yo2Cj8R3rHkS5CXB94",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redactor().text(text) == text


def test_names_of_keys_count_in_json_and_schemas_and_signatures_stay() -> None:
    data = {
        "Authorization": "abc",
        "x-api-key": "abc",
        "nested": [{"password": "abc", "user": "ann"}],
        "properties": {"password": {"type": "string"}},
        "signature": SHAPES["openai"],
        "encrypted_content": SHAPES["aws"],
    }
    clean = redactor().data(data)
    assert clean == {
        **data,
        "Authorization": "[redacted]",
        "x-api-key": "[redacted]",
        "nested": [{"password": "[redacted]", "user": "ann"}],
    }
    assert data["Authorization"] == "abc"


@pytest.mark.parametrize(
    ("arguments", "clean"),
    [
        ('{"password": null, "n": 12345678}', None),
        ('{"password": "abcdefgh", "n": 1}', '{"password":"[redacted]","n":1}'),
        ('{"q": "see \\"http://h/?key=abc\\" ok"}', '{"q":"see \\"http://h/?key=[redacted]\\" ok"}'),
        ('{"password": 12345678}', '{"password":"[redacted]"}'),
    ],
)
def test_arguments_stay_json(arguments: str, clean: str | None) -> None:
    assert redactor().data({"arguments": arguments})["arguments"] == (clean or arguments)
    text = redactor().text(arguments)
    assert json.loads(text) is not None


def test_a_signed_block_is_left_whole_and_what_stands_beside_it_is_not() -> None:
    signed = {"type": "thinking", "thinking": f"use {SHAPES['github']}", "signature": "s"}
    data = {"content": [signed, {"type": "text", "text": SHAPES["github"]}]}
    clean = redactor().data(data)
    assert clean["content"] == [signed, {"type": "text", "text": "[redacted]"}]


def test_values_of_secrets_are_found_under_any_key_and_in_keys() -> None:
    clean = redactor().data({"data": {"api_key": "abc", KEY: 1}, "signature": f"x {KEY}"})
    assert clean == {"data": {"api_key": "[redacted]", "[redacted]": 1}, "signature": "x [redacted]"}


def test_hostile_texts_take_no_longer_than_plain_ones() -> None:
    clean = Redactor(environment={}, content=True).text
    began = time.process_time()
    clean("a plain text of some words " * 12_000)
    plain_s = time.process_time() - began
    hostile = ["-----BEGIN PRIVATE KEY-----", "-eyJ", "a.", "?key=", "password=", "a://b:", "Bearer "]
    for piece in hostile:
        began = time.process_time()
        clean(piece * (300_000 // len(piece)))
        assert time.process_time() - began < 20 * plain_s + 1, piece


def test_headers_that_are_no_secret_are_no_secret() -> None:
    headers = {"HTTP-Referer": "https://example.com", "Authorization": "Bearer abcdefghijklmnop"}
    made = LiteLLMModel("openai/m", settings=ModelSettings(extra_headers=headers))
    assert made.secrets == ("Bearer", "abcdefghijklmnop")


def test_logging_goes_on_where_the_arguments_do_not_fit() -> None:
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "%d items", ("many",), None)
    assert redactor().filter(record)
    assert "many" in record.getMessage()


def test_an_event_without_credentials_is_the_same_event() -> None:
    event = ToolResult(name="t", call_id="c", turn=1, result="fine")
    assert redactor().event(event) is event


def test_secrets_are_never_in_the_log_and_live_and_resumed_runs_see_the_same(tmp_path: Path) -> None:
    def leak(word: str) -> str:
        """Leak."""
        return f"{word} {KEY}"

    def asked(messages: Any, tools: Any) -> Any:
        assert KEY not in json.dumps(messages)
        done = any(m["role"] == "tool" for m in messages)
        return answer(f"it was {KEY}") if done else call("leak", {"word": KEY})

    store = FileStore(tmp_path)
    model = ScriptedModel(asked)
    agent = Agentor(
        "a",
        model=model,
        tools=[leak],
        store=store,
        redactor=redactor(),
        metadata={"password": "correct-horse"},
    )
    result = agent.run(f"my key is {KEY}", run_id="r")
    assert result.final_output == "it was [redacted]"
    text = (tmp_path / "r.jsonl").read_text()
    assert KEY not in text
    assert "correct-horse" not in text
    assert agent.fork("r", at_turn=1).status == "completed"
    first, second = [e for e in result.events if isinstance(e, Generation)]
    assert model.requests[1]["messages"] == second.messages
    assert first.turn == 1


@pytest.mark.parametrize("content", [False, True])
def test_names_and_shapes_count_in_the_conversation_only_if_asked_for(content: bool) -> None:
    secret = SHAPES["github"]
    model = ScriptedModel([f"here: {secret}"])
    result = Agentor("a", model=model, store=MemoryStore(), redactor=redactor(content=content)).run("go")
    assert (secret in str(result.final_output)) is not content


def test_an_error_that_repeats_the_key_is_cleaned_always() -> None:
    model = ScriptedModel([ModelError(f"Incorrect API key provided: {SHAPES['openai']}")])
    store = MemoryStore()
    result = Agentor("a", model=model, store=store).run("go", run_id="r")
    assert result.error is not None
    assert SHAPES["openai"] not in result.error + "".join(e.to_json() for e in store.load("r"))


def test_the_models_own_key_is_a_secret() -> None:
    class Leaky(ScriptedModel):
        secrets = (KEY,)

    result = Agentor("a", model=Leaky([f"it is {KEY}"])).run("go")
    assert result.final_output == "it is [redacted]"


def test_python_logging_is_cleaned_tracebacks_included(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "key %s", (KEY,), None)
    try:
        raise ValueError(f"no access with {SHAPES['aws']}")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    assert redactor().filter(record)
    text = logging.Formatter().format(record)
    assert "key [redacted]" in text
    assert SHAPES["aws"] not in text


def test_own_values_and_patterns_are_added() -> None:
    mine = Redactor(environment={}, secrets=["a-value-of-mine"], patterns=[r"ORD-\d+"])
    assert mine.text("a-value-of-mine ORD-17") == "[redacted] [redacted]"
