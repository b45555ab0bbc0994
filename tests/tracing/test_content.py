"""What was said leaves the process only if asked for, once, whole or validly cut, and redacted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agentor_exporters import OtelTracer, export_run
from agentor_exporters.attributes import content_of_environment
from agentor_exporters.content import MAX_ATTRIBUTE_BYTES, MAX_PART_BYTES, Fitted, message
from agentor_exporters.otlp import otlp
from hypothesis import given
from hypothesis import strategies as st
from servers.otlp import Receiver, attributes

from agentor import Agentor, FileStore
from agentor.engine.messages import Usage
from agentor.testing import ScriptedModel, answer, call

CANARY = "canary-7f3a91c2"
MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages")
JSON = (*MESSAGES, "gen_ai.system_instructions", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")


@pytest.fixture(autouse=True)
def _to_the_receiver(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)


def chatty(store: Any, tracer: Any) -> Agentor:
    """An agent that meets the canary wherever something is said."""

    def echo(text: str) -> str:
        return f"result {text}"

    def fail(text: str) -> str:
        raise ValueError(f"exception {text}")

    script = [
        answer(
            f"text {CANARY}",
            call("echo", {"text": CANARY}),
            call("fail", {"text": CANARY}),
            call("echo", f"no JSON {CANARY}"),
            reasoning_content=f"thinking {CANARY}",
        ),
        ValueError(f"model {CANARY}"),
    ]
    instructions = f"instructions {CANARY}"
    return Agentor("a", instructions, ScriptedModel(script), [echo, fail], store=store, tracer=tracer)


def said(receiver: Receiver) -> bytes:
    return b"".join(receiver.bodies)


def test_without_content_nothing_that_was_said_is_sent_live_or_later(
    tmp_path: Path, receiver: Receiver
) -> None:
    store, tracer = FileStore(tmp_path), OtelTracer(otlp())
    assert chatty(store, tracer).run(f"prompt {CANARY}", run_id="r").status == "failed"
    assert tracer.close()
    assert export_run(store, "r", "otlp", everything=True).sent == 6
    assert len(receiver.spans()) == 12
    assert CANARY.encode() not in said(receiver)


def test_with_content_a_redactor_sees_every_piece_live_and_later(tmp_path: Path, receiver: Receiver) -> None:
    kinds: set[str] = set()

    def redact(kind: str, value: Any, event: Any) -> Any:
        kinds.add(kind)
        assert event.type in ("run_start", "generation", "tool_call", "tool_result", "run_end", "retry")
        return json.loads(json.dumps(value).replace(CANARY, "gone"))

    store, tracer = FileStore(tmp_path), OtelTracer(otlp(), content="delta", redact=redact)
    chatty(store, tracer).run(f"prompt {CANARY}", run_id="r")
    assert tracer.close()
    export_run(store, "r", "otlp", everything=True, content="full", redact=redact)
    assert CANARY.encode() not in said(receiver)
    assert b"gone" in said(receiver)
    assert kinds == {
        "input_messages",
        "output_messages",
        "system_instructions",
        "tool_arguments",
        "tool_result",
        "error_message",
    }


@pytest.mark.parametrize("answered", ["raises", "none"])
def test_what_a_redactor_does_not_clear_is_left_out_and_its_span_is_sent(
    receiver: Receiver, answered: str
) -> None:
    def redact(kind: str, value: Any, event: Any) -> Any:
        if answered == "raises":
            raise RuntimeError(CANARY)

    tracer = OtelTracer(otlp(), content="delta", redact=redact)
    chatty(None, tracer).run(f"prompt {CANARY}")
    assert tracer.close()
    assert len(receiver.spans()) == 6
    assert CANARY.encode() not in said(receiver)


def test_with_content_everything_that_was_said_is_there(receiver: Receiver) -> None:
    tracer = OtelTracer(otlp(), content="delta")
    chatty(None, tracer).run(f"prompt {CANARY}")
    assert tracer.close()
    for text in ("prompt", "instructions", "text", "thinking", "result", "exception", "model", "no JSON"):
        assert f"{text} {CANARY}".encode() in said(receiver), text


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("SPAN_ONLY", "delta"),
        ("span_and_event", "delta"),
        ("true", "delta"),
        ("EVENT_ONLY", "none"),
        ("NO_CONTENT", "none"),
        ("false", "none"),
        ("", "none"),
    ],
)
def test_the_standard_variable_asks_for_content(
    monkeypatch: pytest.MonkeyPatch, value: str, content: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    assert content_of_environment() == content


def test_an_unknown_kind_of_content_is_refused() -> None:
    with pytest.raises(ValueError, match="'none', 'delta' or 'full', not 'all'"):
        OtelTracer(otlp(), content="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown dialects: latin"):
        OtelTracer(otlp(), dialects=("latin",))


# --- how much --------------------------------------------------------------------------------------

PROFILES = {  # bytes of text, of arguments, of results in each turn
    "usual": (200, 60, 600),
    "long results": (100, 60, 8000),
    "long arguments": (100, 4000, 100),
    "long texts": (4000, 60, 100),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_of_200_turns_sends_hardly_more_than_what_was_said(receiver: Receiver, profile: str) -> None:
    text, arguments, result = PROFILES[profile]

    def work(data: str) -> str:
        return "r" * result

    def script(messages: Any, _: Any) -> Any:
        turn = sum(m["role"] == "assistant" for m in messages)
        usage = Usage(input_tokens=10, output_tokens=5)
        if turn == 199:
            return answer("The end.", usage=usage)
        return answer("t" * text, call("work", {"data": f"{turn:03}" + "a" * arguments}), usage=usage)

    tracer = OtelTracer(otlp(), content="delta")
    agent = Agentor("a", "Be brief.", ScriptedModel(script), [work], tracer=tracer, max_turns=300)
    outcome = agent.run("Go on for long.")
    assert tracer.close(10)
    spans = [attributes(s) for s in receiver.spans()]
    assert len(spans) == 200 + 199 + 1
    content = sum(len(said[key].encode()) for said in spans for key in JSON if key in said)
    conversation = sum(len(json.dumps(m, separators=(",", ":")).encode()) for m in outcome.messages)
    assert content <= 1.2 * conversation, content / conversation
    assert all(len(body) < 2 * 1024 * 1024 for body in receiver.bodies)
    for one in spans:
        assert len(one) <= 30
        for key in JSON[:-1]:
            if key in one:
                json.loads(one[key])


def test_whole_requests_are_sent_if_asked_for(receiver: Receiver) -> None:
    tracer = OtelTracer(otlp(), content="full")
    script = [call("work", {"n": 1}), "done"]

    def work(n: int) -> str:
        return "worked"

    Agentor("a", "Be brief.", ScriptedModel(script), [work], tracer=tracer).run("go")
    assert tracer.close()
    second = [attributes(s) for s in receiver.spans() if s.name == "chat scripted"][1]
    roles = [m["role"] for m in json.loads(second["gen_ai.input.messages"])]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "worked" in second["gen_ai.input.messages"]


@pytest.mark.parametrize("limit", [None, "1000", "50"])
def test_long_texts_are_cut_inside_the_json(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, limit: str | None
) -> None:
    if limit:
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", limit)
    most = int(limit or MAX_ATTRIBUTE_BYTES)
    tracer = OtelTracer(otlp(), content="delta")

    def work(text: str, more: list[str]) -> str:
        return "ü" * 300_000

    script = [call("work", {"text": "ö" * 200_000, "more": ["x" * 1000] * 1000}), "\ud800 done"]
    Agentor("a", "Be " + "very " * 100_000 + "brief", ScriptedModel(script), [work], tracer=tracer).run(
        "ä" * 100_000
    )
    assert tracer.close(10)
    spans = [attributes(s) for s in receiver.spans()]
    assert len(spans) == 4
    for one in spans:
        for key in JSON:
            if key in one:
                assert len(one[key].encode()) <= most
                if key != "gen_ai.tool.call.result":  # a text here
                    json.loads(one[key])
    cut = [one for one in spans if one.get("agentor.truncated")]
    assert len(cut) >= 3
    assert all(one["agentor.content.bytes"] > 100_000 for one in cut if "gen_ai.tool.name" in one)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(value=VALUES, limit=st.integers(2, 400))
def test_any_value_fits_any_limit_as_json(value: Any, limit: int) -> None:
    fitted = Fitted(limit)
    text = fitted.json(value)
    assert len(text.encode()) <= limit
    json.loads(text)
    assert fitted.cut or json.loads(text) == json.loads(json.dumps(value).encode("utf-8", "replace"))


@given(value=st.text(), limit=st.integers(0, 400))
def test_any_text_fits_any_limit(value: str, limit: int) -> None:
    fitted = Fitted(limit)
    text = fitted.text(value)
    assert len(text.encode()) <= limit
    assert fitted.cut or text == value


def test_a_result_that_is_json_is_sent_as_it_is(receiver: Receiver) -> None:
    def table() -> list[int]:
        return [1, 2]

    def words() -> str:
        return "[not JSON"

    tracer = OtelTracer(otlp(), content="delta")
    script = [[call("table"), call("words")], "done"]
    Agentor("a", model=ScriptedModel(script), tools=[table, words], tracer=tracer).run("go")
    assert tracer.close()
    said = {s.name: attributes(s).get("gen_ai.tool.call.result") for s in receiver.spans()}
    assert (said["execute_tool table"], said["execute_tool words"]) == ("[1,2]", "[not JSON")


def test_a_part_is_cut_where_it_is_too_long_and_says_by_how_much() -> None:
    fitted = Fitted()
    (said,) = json.loads(fitted.json([{"type": "text", "content": "é" * MAX_PART_BYTES}]))
    assert said["content"].startswith("é" * 1000)
    assert said["content"].endswith(f"[{MAX_PART_BYTES} of {2 * MAX_PART_BYTES} bytes cut]")
    assert (fitted.cut, fitted.whole_bytes > 2 * MAX_PART_BYTES) == (True, True)


# --- the shape -------------------------------------------------------------------------------------

PARTS: dict[str, dict[str, tuple[type, ...]]] = {  # type of a part -> its required keys
    "text": {"content": (str,)},
    "reasoning": {"content": (str,)},
    "tool_call": {"name": (str,)},
    "tool_call_response": {"response": (str, list, dict, int, float, bool, type(None))},
    "uri": {"modality": (str,), "uri": (str,)},
    "blob": {"modality": (str,), "content": (str,)},
}


def check_messages(text: str, *, output: bool) -> None:
    """By the JSON schemas of the conventions: gen-ai-input-messages.json, gen-ai-output-messages.json."""
    for said in json.loads(text):
        assert said["role"] in ("system", "user", "assistant", "tool")
        if output:
            assert said["finish_reason"] in ("stop", "length", "content_filter", "tool_call", "error")
        assert isinstance(said["parts"], list)
        for part in said["parts"]:
            for key, kinds in PARTS.get(part["type"], {}).items():
                assert isinstance(part[key], kinds)


def test_messages_have_the_shape_of_the_conventions(receiver: Receiver) -> None:
    tracer = OtelTracer(otlp(), content="delta")
    agent = chatty(None, tracer)
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    data = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    agent.run([{"role": "user", "content": [{"type": "text", "text": "look"}, picture, data]}])
    assert tracer.close()
    seen: set[str] = set()
    for one in map(attributes, receiver.spans()):
        for key in MESSAGES:
            if key in one:
                check_messages(one[key], output="output" in key)
                seen |= {part["type"] for said in json.loads(one[key]) for part in said["parts"]}
    assert seen == set(PARTS)


def test_what_only_its_provider_can_read_is_not_shown() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s" * 99},
        {"type": "redacted_thinking", "data": "x"},
    ]
    assert message({"role": "assistant", "content": blocks})["parts"] == [
        {"type": "reasoning", "content": "hm"},
        {"type": "redacted_thinking"},
    ]


def test_dialects_add_what_two_dashboards_read_besides(receiver: Receiver) -> None:
    tracer = OtelTracer(otlp(), content="delta", dialects=("openinference", "langfuse"))

    async def stream() -> None:
        async for _ in Agentor("a", model=ScriptedModel(["hello you"]), tracer=tracer).astream("go"):
            pass

    asyncio.run(stream())
    assert tracer.close()
    chat, segment = map(attributes, receiver.spans())
    assert chat["openinference.span.kind"] == "LLM"
    assert chat["langfuse.observation.completion_start_time"].endswith("+00:00")
    assert chat["gen_ai.response.time_to_first_chunk"] >= 0
    assert chat["gen_ai.request.stream"] is True
    for one in (chat, segment):
        assert (one["input.value"], one["output.value"]) == ("go", "hello you")
        assert one["input.mime_type"] == "text/plain"


@pytest.mark.parametrize(
    ("opted", "key"),
    [
        ("", "gen_ai.usage.cache_creation.input_tokens"),
        ("http,gen_ai_latest_experimental", "gen_ai.usage.cache_write.input_tokens"),
    ],
)
def test_the_spelling_of_the_conventions_can_be_chosen(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, opted: str, key: str
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opted)
    tracer = OtelTracer(otlp())
    told = answer("x", usage=Usage(input_tokens=9, output_tokens=1, cache_write_input_tokens=4))
    Agentor("a", model=ScriptedModel([told]), tracer=tracer).run("go")
    assert tracer.close()
    chat, segment = map(attributes, receiver.spans())
    assert chat[key] == 4
    assert ("gen_ai.provider.name" in segment) is not opted.startswith("http")
