"""`LiteLLMModel` against servers on loopback that speak the providers' wire formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire import Reply, Wire, anthropic_stream, chat, chat_stream

from agentor import Agentor, LiteLLMModel, MemoryStore, ModelSettings
from agentor.engine.events import Generation, Retry, TextDelta
from agentor.engine.messages import Usage
from agentor.engine.models.responses_route import ResponsesRoute

USER = [{"role": "user", "content": "hi"}]
CALL = {"id": "call_9", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

WHOLE = {"role": "assistant", "content": "yes", "tool_calls": [CALL]}


def add(a: int) -> int:
    """Add one."""
    return a + 1


def openai(wire: Wire, **settings: Any) -> LiteLLMModel:
    url = f"{wire.url}/v1"
    return LiteLLMModel("openai/m", api_key="k", base_url=url, settings=ModelSettings(**settings))


async def test_a_plain_answer_is_kept_whole_with_its_usage() -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    with Wire([chat({"content": "yes", "tool_calls": [CALL]}, "tool_calls", **details)]) as wire:
        answer = await openai(wire, temperature=0.5, seed=7, extra_headers={"x-a": "b"}).complete(USER)
    assert answer.message == {**WHOLE, "origin": "openai@127.0.0.1"}
    assert answer.finish_reason == "tool_calls"
    assert answer.usage == Usage(
        input_tokens=10, output_tokens=5, total_tokens=15, cached_input_tokens=4, reasoning_tokens=3
    )
    assert (answer.cost, answer.response_id) == (None, "chatcmpl-1")  # no price is known: not 0
    assert (wire.requests[0]["temperature"], wire.requests[0]["seed"]) == (0.5, 7)
    assert "tools" not in wire.requests[0]


async def test_a_stream_gives_pieces_and_the_same_whole() -> None:
    first = {"index": 0, **CALL, "function": {"name": "add", "arguments": '{"a"'}}
    second = {"index": 0, "function": {"arguments": ": 1}"}}
    deltas = [{"content": "ye"}, {"content": "s"}, {"tool_calls": [first]}, {"tool_calls": [second]}]
    with Wire([chat_stream(*deltas, reason="tool_calls")]) as wire:
        chunks = [c async for c in openai(wire).stream(USER)]
    assert [c.text for c in chunks if c.text] == ["ye", "s"]
    final = chunks[-1].final
    assert final is not None
    assert final.message == {**WHOLE, "origin": "openai@127.0.0.1"}
    assert final.usage.total_tokens == 15


async def test_anthropic_blocks_keep_their_order_and_signatures_and_go_back_unchanged() -> None:
    answer = anthropic_stream(
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "h"},
                {"type": "thinking_delta", "thinking": "m"},
                {"type": "signature_delta", "signature": "sig+/1="},
            ],
        ),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "I will add."}]),
        ({"type": "redacted_thinking", "data": "b64+/=="}, []),
        (
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"a": 1}'}],
        ),
        reason="tool_use",
    )
    done = anthropic_stream(({"type": "text", "text": ""}, [{"type": "text_delta", "text": "2"}]))
    with Wire([answer, done]) as wire:
        model = LiteLLMModel("anthropic/claude-sonnet-4-5", api_key="k", base_url=wire.url)
        result = await Agentor("a", model=model, tools=[add], store=MemoryStore()).arun("1 + 1?")
    assert (result.status, result.final_output) == ("completed", "2")
    blocks = wire.requests[1]["messages"][1]["content"]
    assert blocks == [
        {"type": "thinking", "thinking": "hm", "signature": "sig+/1="},
        {"type": "text", "text": "I will add."},
        {"type": "redacted_thinking", "data": "b64+/=="},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
    ]


@pytest.mark.parametrize(("reason", "status"), [("length", "truncated"), ("content_filter", "filtered")])
async def test_finish_reasons_are_honoured(reason: str, status: str) -> None:
    with Wire([chat({"content": "half"}, reason)]) as wire:
        assert (await Agentor("a", model=openai(wire)).arun("x")).status == status


async def test_a_lost_stream_is_tried_again_and_never_an_answer() -> None:
    whole = chat_stream({"content": "whole"})
    lost = [chat_stream({"content": "ha"}, reason=None), Reply(whole.text, cut=200)]
    with Wire([*lost, whole]) as wire:
        events = [e async for e in Agentor("a", model=openai(wire), store=MemoryStore()).astream("x")]
    retries = [e for e in events if isinstance(e, Retry)]
    assert [r.error_type for r in retries] == ["LostStream", "LostStream"]
    (generation,) = [e for e in events if isinstance(e, Generation)]
    assert generation.text == "whole"
    assert any(isinstance(e, TextDelta) for e in events)


async def test_reasoning_models_of_openai_go_over_the_responses_route_with_nothing_stored() -> None:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    body = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "output": [item]}
    settings = ModelSettings(responses_route=True, reasoning_effort="low", max_tokens=99, verbosity="low")
    with Wire([Reply(body)]) as wire:
        await LiteLLMModel("gpt-5-mini", api_key="k", base_url=f"{wire.url}/v1", settings=settings).complete(
            USER
        )
    (request,) = wire.requests
    assert wire.paths == ["/v1/responses"]
    assert (request["include"], request["store"]) == (["reasoning.encrypted_content"], False)
    assert (request["reasoning"], request["max_output_tokens"]) == ({"effort": "low"}, 99)
    assert request["text"] == {"verbosity": "low"}
    assert (request["model"], request["input"]) == ("gpt-5-mini", USER)


@pytest.mark.parametrize(
    ("model", "route", "responses"),
    [
        ("gpt-5-mini", None, True),
        ("openai/o3", None, True),
        ("gpt-4o", None, False),
        ("gpt-5-mini", False, False),
        ("gpt-4o", True, True),
    ],
)
def test_the_responses_route_is_for_reasoning_models_or_for_who_asks(
    model: str, route: bool | None, responses: bool
) -> None:
    made = LiteLLMModel(model, settings=ModelSettings(responses_route=route))
    assert isinstance(made._route, ResponsesRoute) is responses


def test_a_setting_that_the_responses_api_does_not_have_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"seed.*responses_route=False"):
        LiteLLMModel("gpt-5-mini", settings=ModelSettings(seed=7))


def test_settings_that_are_not_set_are_not_sent_and_headers_are_not_recorded() -> None:
    settings = ModelSettings(temperature=0, top_k=3, extra_headers={"authorization": "secret"})
    assert settings.extra == {"top_k": 3}
    model = LiteLLMModel("openai/m", settings=settings)
    assert model.params == {"temperature": 0, "top_k": 3}


SERVER_BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "I search."},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "enc"}],
    },
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "text", "text": "Found "},
    {"type": "text", "text": "it."},
]


@pytest.mark.parametrize("streams", [True, False])
async def test_blocks_of_tools_that_anthropic_runs_itself_are_no_calls_and_go_back_as_they_came(
    streams: bool,
) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    plain = {"id": "m", "content": [*SERVER_BLOCKS, call], "stop_reason": "tool_use", "usage": usage}
    deltas: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for block in [*SERVER_BLOCKS, call]:
        if block["type"] == "text":
            deltas.append(({**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]))
        elif block["type"] == "thinking":
            parts = [
                {"type": "thinking_delta", "thinking": "hm"},
                {"type": "signature_delta", "signature": "sig"},
            ]
            deltas.append(({**block, "thinking": "", "signature": ""}, parts))
        elif "input" in block:
            text = json.dumps(block["input"])
            deltas.append(({**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]))
        else:
            deltas.append((block, []))
    first = anthropic_stream(*deltas, reason="tool_use") if streams else Reply(plain)
    done = anthropic_stream(({"type": "text", "text": ""}, [{"type": "text_delta", "text": "2"}]))
    with Wire([first, done]) as wire:
        model = LiteLLMModel("anthropic/claude-sonnet-4-5", api_key="k", base_url=wire.url)
        result = await Agentor("a", model=model, tools=[add], store=MemoryStore()).arun("1 + 1?")
    assert (result.status, result.final_output) == ("completed", "2")
    assert [e.name for e in result.events if e.type == "tool_call"] == ["add"]
    assert wire.requests[1]["messages"][1]["content"] == [*SERVER_BLOCKS, call]
