"""What each provider is sent of an assistant message: its own parts exactly, no others'."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor.engine.models import responses
from agentor.engine.models.accumulate import Accumulator
from agentor.engine.models.families import normalise, target
from agentor.engine.models.projection import opaque_parts, project, thinking_cannot_go_on

CALLS = [
    {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "provider_specific_fields": {"thought_signature": "sg"},
    }
]
WHOLE: dict[str, Any] = {  # of nobody in particular: it goes by its shape
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": ""},
        {"type": "text", "text": "b"},
    ],
    "tool_calls": CALLS,
    "response_items": [{"type": "reasoning", "id": "rs", "encrypted_content": "e"}],
    "provider_specific_fields": {"thought_signatures": ["t"], "reasoning_details": [{"type": "x"}]},
}
BARE_CALLS = [{k: v for k, v in CALLS[0].items() if k != "provider_specific_fields"}]
BASE = {"role": "assistant", "content": "ab", "tool_calls": BARE_CALLS}
SHAPES = {
    "anthropic/claude-sonnet-4-5": {
        **BASE,
        "content": [b for b in WHOLE["content"] if b.get("text") != ""],
    },
    "gemini/gemini-3-pro": {
        **BASE,
        "tool_calls": CALLS,
        "provider_specific_fields": {"thought_signatures": ["t"]},
    },
    "openrouter/anthropic/claude": {**BASE, "reasoning_details": [{"type": "x"}]},
    "deepseek/deepseek-reasoner": {**BASE, "reasoning_content": "hm"},
    "groq/gpt-oss-120b": {**BASE, "reasoning": "hm"},
    "gpt-4o": BASE,
}


def sent(message: dict[str, Any], model: str, **options: Any) -> Any:
    return project([message], target(model, **options))[0][0]


@pytest.mark.parametrize(
    ("model", "family", "origin"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic", "anthropic"),
        ("claude-sonnet-4-5", "anthropic", "anthropic"),
        ("bedrock/us.anthropic.claude-sonnet-4", "anthropic", "anthropic"),
        ("vertex_ai/claude-opus-4", "anthropic", "anthropic"),
        ("gemini/gemini-3-pro", "gemini", "gemini"),
        ("vertex_ai/gemini-3-pro", "gemini", "gemini"),
        ("openrouter/anthropic/claude-sonnet-4", "openrouter", "openrouter:anthropic"),
        ("deepseek/deepseek-reasoner", "chat", "deepseek"),
        ("gpt-4o", "chat", "openai"),
        ("groq/llama", "chat", "groq"),
    ],
)
def test_models_belong_to_families_and_origins(model: str, family: str, origin: str) -> None:
    assert (target(model).family, target(model).origin) == (family, origin)


def test_two_servers_of_one_kind_are_told_apart_by_host_but_not_by_port() -> None:
    def origin(url: str | None) -> str:
        return target("openai/gpt-5", responses=True, base_url=url).origin

    assert origin("http://h:1/v1") == origin("http://h:2/v1") == "responses:openai@h"
    assert origin(None) == "responses:openai"


@pytest.mark.parametrize("model", SHAPES)
def test_each_family_gets_its_own_opaque_parts_and_nobody_elses(model: str) -> None:
    before = copy.deepcopy(WHOLE)
    assert sent(WHOLE, model) == SHAPES[model]
    assert before == WHOLE


@pytest.mark.parametrize("model", SHAPES)
def test_what_another_provider_signed_is_left_out_and_counted(model: str) -> None:
    foreign = {**WHOLE, "origin": "somebody else"}
    (message,), left_out = project([foreign], target(model))
    allowed = {"role", "content", "tool_calls", "reasoning", "reasoning_content"}
    assert set(message) <= allowed
    assert "provider_specific_fields" not in message["tool_calls"][0]
    assert "signature" not in str(message)
    assert left_out == {
        "signed_thinking": 1,
        "thought_signature": 1,
        "encrypted_reasoning": 1,
        "reasoning_details": 1,
    }


@pytest.mark.parametrize(
    ("model", "valid"),
    [
        ("anthropic/claude", r"[A-Za-z0-9_-]{1,64}"),
        ("mistral/mistral-large", r"[A-Za-z0-9]{9}"),
        ("gpt-4o", r"(?s).{1,40}"),
    ],
)
@given(call_id=st.text(min_size=1, max_size=90))
def test_call_ids_are_made_valid_by_a_stable_mapping(model: str, valid: str, call_id: str) -> None:
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    history = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "content": "x"},
    ]
    assistant, tool = project(history, target(model))[0]
    fitted = assistant["tool_calls"][0]["id"]
    assert re.fullmatch(valid, fitted)
    assert tool["tool_call_id"] == fitted
    if re.fullmatch(valid, call_id):
        assert fitted == call_id


def test_anthropic_cannot_think_on_in_a_loop_of_tool_calls_that_another_model_began() -> None:
    to = target("anthropic/claude-sonnet-4-5")
    question = {"role": "user", "content": "?"}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    foreign = {"role": "assistant", "tool_calls": BARE_CALLS, "origin": "openai"}
    own = {**foreign, "origin": "anthropic"}
    assert thinking_cannot_go_on([question, foreign, result], to)
    assert thinking_cannot_go_on([question, foreign, result, own, result], to)
    assert not thinking_cannot_go_on([question, own, result], to)
    answered = {"role": "assistant", "content": "done", "origin": "openai"}
    assert not thinking_cannot_go_on([question, foreign, result, answered, question], to)


@pytest.mark.parametrize("text", ["not json", "", "[1, 2]", '"x"', '{"a": 1', "NaN"])
@pytest.mark.parametrize("model", ["anthropic/claude", "gemini/gemini-3-pro", "ollama_chat/qwen", "gpt-4o"])
def test_arguments_that_are_no_object_go_as_one_where_the_format_wants_one(model: str, text: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": text}}
    to = target(model)

    def arguments(origin: str) -> str:
        message = {"role": "assistant", "tool_calls": [call], "origin": origin}
        return str(project([message], to)[0][0]["tool_calls"][0]["function"]["arguments"])

    wanted = {"invalid_json": text} if text else {}
    assert json.loads(arguments("somebody else")) == wanted
    if to.parsed_arguments:
        assert json.loads(arguments(to.origin)) == wanted
    else:
        assert arguments(to.origin) == text


def test_deepseek_gets_a_reasoning_beside_each_call_even_where_there_is_none() -> None:
    message = {"role": "assistant", "tool_calls": BARE_CALLS, "origin": "anthropic"}
    assert sent(message, "deepseek/deepseek-chat")["reasoning_content"] == ""


def test_empty_answers_and_empty_text_blocks_are_never_sent() -> None:
    history = [
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]},
        {"role": "assistant", "content": "", "origin": "anthropic"},
    ]
    only, _ = project(history, target("anthropic/claude"))
    assert only == [{"role": "user", "content": [{"type": "text", "text": "x"}]}]


def test_keys_that_a_provider_does_not_know_are_never_sent() -> None:
    history = [
        {
            "role": "user",
            "content": "x",
            "name": "ann",
            "sent_at": "yesterday",
            "cache_control": {"type": "e"},
        },
        {"role": "tool", "tool_call_id": "c", "content": "1", "elapsed": 2},
    ]
    known = [
        {"role": "user", "content": "x", "name": "ann"},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    assert project(history, target("gpt-4o"))[0] == known
    cached = {**known[0], "cache_control": {"type": "e"}}
    assert project(history, target("anthropic/claude"))[0] == [cached, known[1]]


def test_noise_is_left_out_of_the_log() -> None:
    noisy = {
        "role": "assistant",
        "content": "",
        "function_call": None,
        "refusal": None,
        "annotations": [],
        "images": [],
        "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}],
        "provider_specific_fields": {"thinking_blocks": [1], "citations": None, "kept": "x"},
    }
    assert normalise(noisy, "groq") == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}],
        "provider_specific_fields": {"kept": "x"},
        "origin": "groq",
    }


def call_deltas(*deltas: dict[str, Any]) -> list[tuple[str, str, str]]:
    parts = Accumulator()
    for delta in deltas:
        parts.add({"tool_calls": [delta]})
    calls = parts.message("x")["tool_calls"]
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]


def test_a_call_whose_id_and_name_stand_in_each_piece_is_one_call() -> None:
    def piece(arguments: str, name: str | None = "f", call_id: str | None = "c1") -> dict[str, Any]:
        return {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}

    assert call_deltas(piece('{"a"'), piece(":1}")) == [("c1", "f", '{"a":1}')]
    assert call_deltas(piece("", "get_"), piece('{"a":1}', "time", None)) == [("c1", "get_time", '{"a":1}')]
    two = call_deltas(piece("{}"), piece("{}", "g", "c2"))
    assert two == [("c1", "f", "{}"), ("c2", "g", "{}")]
    ollama = call_deltas(piece("{}"), piece("{}", "g", None))
    assert ollama == [("c1", "f", "{}"), ("", "g", "{}")]


def test_details_of_one_index_and_several_types_stay_apart() -> None:
    parts = Accumulator()
    parts.add_details(
        [
            {"type": "reasoning.summary", "index": 0, "summary": "a"},
            {"type": "reasoning.summary", "index": 0, "summary": "b"},
            {"type": "reasoning.encrypted", "index": 0, "data": "x"},
        ]
    )
    assert parts.message("openrouter:openai")["reasoning_details"] == [
        {"type": "reasoning.summary", "index": 0, "summary": "ab"},
        {"type": "reasoning.encrypted", "index": 0, "data": "x"},
    ]


def test_calls_that_share_an_index_stay_two_calls() -> None:
    parts = Accumulator()
    for name in ("get_weather", "get_time"):
        parts.add({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": "{}"}}]})
    calls = parts.message("ollama_chat")["tool_calls"]
    assert [c["function"]["name"] for c in calls] == ["get_weather", "get_time"]
    assert [c["id"] for c in calls] == ["", ""]  # the engine gives them theirs


ITEMS = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "encrypted_content": "e",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "ab", "annotations": []}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "f"},
    {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ç"}],
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "g", "arguments": "not json"},
]


def test_items_of_the_responses_api_come_back_as_they_came() -> None:
    message = normalise(responses.message_of(ITEMS), "responses:openai")
    assert message["content"] == "abç"
    assert opaque_parts(message) == {"encrypted_reasoning": 2}
    projected, left_out = project([message], target("gpt-5", responses=True))
    assert (responses.input_items(projected), dict(left_out)) == (ITEMS, {})


def test_the_one_text_of_a_response_is_kept_once_and_may_be_redacted() -> None:
    message = normalise(responses.message_of([ITEMS[0], ITEMS[1]]), "responses:openai")
    assert str(message).count("ab") == 1
    clean = {**message, "content": "[redacted] and more"}
    (_, item) = responses.input_items(project([clean], target("gpt-5", responses=True))[0])
    assert item == {**ITEMS[1], "content": [{**ITEMS[1]["content"][0], "text": "[redacted] and more"}]}


def test_a_notice_after_tool_results_does_not_end_a_loop_of_anothers_calls() -> None:
    to = target("anthropic/claude-sonnet-4-5")
    foreign = {"role": "assistant", "tool_calls": BARE_CALLS, "origin": "openai"}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    notice = {"role": "user", "content": "the tool f is switched off"}
    assert thinking_cannot_go_on([{"role": "user", "content": "?"}, foreign, result, notice], to)


@pytest.mark.parametrize(
    "message",
    [
        {"content": 5},
        {"tool_calls": [{"id": ["q"], "function": {"name": "f", "arguments": "{}"}}]},
        {"tool_calls": [{"id": "q", "function": {"name": 3, "arguments": "{}"}}]},
        {"tool_calls": [{"id": "q", "function": {"name": "f", "arguments": {"a": 1}}}]},
        {"tool_calls": [{"id": "q"}]},
    ],
)
def test_a_part_of_a_shape_that_cannot_be_an_answer_never_gets_into_the_log(message: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="unknown shape"):
        normalise(message, "openai")


def test_halves_of_surrogate_pairs_become_letters_that_can_be_sent() -> None:
    kept = normalise({"content": "a\ud83d b \ud83d\ude00", "tool_calls": []}, "openai")
    assert kept["content"] == "a\ufffd b \U0001f600"
    kept["content"].encode()


def test_items_go_to_their_own_origin_only() -> None:
    message = normalise(responses.message_of(ITEMS), "responses:openai")
    elsewhere = target("openai/gpt-oss", responses=True, base_url="http://127.0.0.1:8/v1")
    projected, left_out = project([message], elsewhere)
    assert left_out == {"encrypted_reasoning": 2}
    assert [i.get("type") for i in responses.input_items(projected)] == [
        None,
        "function_call",
        "function_call",
    ]
