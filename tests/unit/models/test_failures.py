"""Failed and half answers of providers, as LiteLLM hands them on: one clear error each, and nothing paid lost."""

from __future__ import annotations

import json
import re
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from wire import Reply, Wire, anthropic_stream, chat

from agentor import LiteLLMModel, ModelSettings
from agentor.engine.models.base import ModelResponse
from agentor.engine.models.failures import as_model_error
from agentor.errors import ModelError

USER = [{"role": "user", "content": "hi"}]
PATHS = {"gemini": "/v1beta", "groq": "", "openai": "/v1", "anthropic": "", "openrouter": ""}
NAMES = {"gemini": "gemini-2.5-flash", "anthropic": "claude-sonnet-4-5"}
ERROR = {"error": {"message": "no such luck", "type": "x", "code": 1}}


def model(provider: str, wire: Wire, **settings: Any) -> LiteLLMModel:
    name = f"{provider}/{NAMES.get(provider, 'some-model')}"
    given = ModelSettings(**settings)
    return LiteLLMModel(name, api_key="k", base_url=wire.url + PATHS[provider], settings=given)


async def failure(provider: str, *replies: Reply, streaming: bool = False, **settings: Any) -> ModelError:
    with Wire(replies) as wire:
        asked = model(provider, wire, **settings)
        with pytest.raises(ModelError) as caught:
            await (final(asked) if streaming else asked.complete(USER))
        assert len(wire.requests) == 1  # nobody but the engine tries again
    return caught.value


async def final(asked: LiteLLMModel) -> ModelResponse:
    chunks = [chunk async for chunk in asked.stream(USER)]
    assert chunks[-1].final is not None
    return chunks[-1].final


def events(*chunks: Any) -> Reply:
    return Reply("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks))


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize(
    ("status", "retryable", "advice"),
    [
        (400, False, "would refuse it again"),
        (401, False, "api_key="),
        (403, False, "(may not use this model|would refuse it again)"),
        (404, False, "model= and base_url="),
        (408, True, "timeout_s"),
        (413, False, "would refuse it again"),
        (422, False, "would refuse it again"),
        (429, True, "rate limit"),
        (500, True, "later"),
        (502, True, "(later|resume)"),
        (503, True, "later"),
        (504, True, "timeout_s"),
        (529, True, "later"),
    ],
)
async def test_each_status_says_who_failed_whether_to_try_again_and_what_to_do(
    provider: str, status: int, retryable: bool, advice: str
) -> None:
    error = await failure(provider, Reply(ERROR, status, {"request-id": "req_1", "x-request-id": "req_1"}))
    assert error.retryable is retryable
    assert provider in str(error.provider)
    assert (error.model or "").startswith(provider)
    assert error.request_id == "req_1"
    text = str(error)
    for part in ("no such luck", f"model {error.model}", "request req_1", f"status {error.status}"):
        assert part in text
    assert re.search(advice, text)


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ("openai", "This model's maximum context length is 8192 tokens"),
        ("anthropic", "prompt is too long: 300000 tokens > 200000 maximum"),
        ("gemini", "The input token count (9) exceeds the maximum number of tokens allowed (8)"),
    ],
)
async def test_a_conversation_that_is_too_long_says_so(provider: str, words: str) -> None:
    error = await failure(provider, Reply({"error": {"message": words, "code": 400}}, 400))
    assert (error.error_type, error.retryable) == ("ContextWindowExceededError", False)
    assert "fork the run at an earlier turn" in str(error)


async def test_a_quota_that_is_used_up_is_no_rate_limit() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    error = await failure("openai", Reply(body, 429))
    assert (error.error_type, error.retryable) == ("QuotaExceededError", False)


@pytest.mark.parametrize(
    ("headers", "body", "wanted"),
    [
        ({"retry-after": "7"}, ERROR, 7.0),
        ({"retry-after-ms": "1500"}, ERROR, 1.5),
        ({"retry-after": "soon"}, ERROR, None),
        ({}, ERROR, None),
        ({}, {"error": {"message": "x", "code": 429, "details": [{"retryDelay": "18s"}]}}, 18.0),
    ],
)
async def test_the_providers_wish_to_wait_is_read(
    headers: dict[str, str], body: dict[str, Any], wanted: float | None
) -> None:
    provider = "gemini" if body is not ERROR else "openai"
    assert (await failure(provider, Reply(body, 429, headers))).retry_after_s == wanted


async def test_a_date_to_wait_for_is_read() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    after_s = (await failure("openai", Reply(ERROR, 429, {"retry-after": date}))).retry_after_s
    assert after_s is not None
    assert 60 < after_s <= 90


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "groq"])
@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_stream_that_never_began_is_known_by_its_status(provider: str, status: int) -> None:
    error = await failure(provider, Reply(ERROR, status, {"retry-after": "3"}), streaming=True)
    assert (error.status, error.retryable, error.retry_after_s) == (status, True, 3.0)
    assert error.error_type != "LostStream"


@pytest.mark.parametrize("provider", ["openai", "gemini", "groq"])
async def test_a_page_instead_of_an_answer_points_at_the_address(provider: str) -> None:
    error = await failure(provider, Reply("<html>a proxy's page</html>"))
    assert (error.error_type, error.retryable) == ("UnreadableAnswer", False)
    assert "base_url=" in str(error)


@pytest.mark.parametrize("provider", ["openai", "gemini", "groq", "anthropic"])
async def test_a_server_that_is_not_there_is_no_answer_with_a_status(provider: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ModelError) as caught:
        await LiteLLMModel(f"{provider}/m", api_key="k", base_url=url).complete(USER)
    error = caught.value
    assert (error.error_type, error.retryable, error.status) == ("APIConnectionError", True, None)
    assert error.provider == provider


# --- streams ------------------------------------------------------------------------------------


def delta(**parts: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": parts, "finish_reason": None}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize("provider", ["groq", "openai", "openrouter"])
async def test_an_error_in_the_middle_of_a_stream_is_told_in_the_providers_words(provider: str) -> None:
    broken = {"error": {"message": "Overloaded, try again", "code": "overloaded"}}
    error = await failure(provider, events(delta(content="a"), broken), streaming=True)
    assert (error.error_type, error.retryable) == ("LostStream", True)
    assert "Overloaded, try again" in str(error)
    assert "invalid literal" not in str(error)


def ollama(*chunks: dict[str, Any]) -> Reply:
    return Reply("".join(json.dumps({"model": "m", "created_at": "t", **chunk}) + "\n" for chunk in chunks))


async def test_ollamas_stream_keeps_each_call_and_its_thinking_and_ends_by_its_own_word() -> None:
    def one(name: str, city: str) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": {"city": city}}}

    said = [
        {"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {
            "message": {"role": "assistant", "content": "", "tool_calls": [one("get_weather", "A")]},
            "done": False,
        },
        {
            "message": {"role": "assistant", "content": "", "tool_calls": [one("get_time", "B")]},
            "done": False,
        },
    ]
    end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    counts = {"prompt_eval_count": 3, "eval_count": 4}
    with Wire([ollama(*said, {**end, **counts})]) as wire:
        answer = await final(LiteLLMModel("ollama_chat/m", base_url=wire.url))
    calls = [(c["id"], c["function"]["name"]) for c in answer.message["tool_calls"]]
    assert calls == [("", "get_weather"), ("", "get_time")]  # the engine gives them ids
    assert answer.message["reasoning_content"] == "hm"
    with Wire([ollama(*said)]) as wire, pytest.raises(ModelError) as caught:
        await final(LiteLLMModel("ollama_chat/m", base_url=wire.url))
    assert caught.value.error_type == "LostStream"


GEMINI_USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}


def gemini(text: str | None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    parts = [] if text is None else [{"text": text}]
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0, **more}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": GEMINI_USAGE, "responseId": "r1"}


async def test_a_gemini_stream_that_was_cut_is_no_answer() -> None:
    error = await failure("gemini", events(gemini("half")), streaming=True)
    assert (error.error_type, error.retryable) == ("LostStream", True)


@pytest.mark.parametrize("provider", ["openai", "groq", "openrouter"])
async def test_a_stream_that_says_its_usage_and_not_its_end_is_whole_and_not_paid_twice(
    provider: str,
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    with Wire([events(delta(content="ok"), {**delta(content=""), "usage": usage})]) as wire:
        answer = await final(model(provider, wire))
    assert (answer.message["content"], answer.finish_reason) == ("ok", "stop")
    assert answer.usage.total_tokens == 7


@pytest.mark.parametrize("provider", ["openai", "groq", "openrouter"])
@pytest.mark.parametrize("where", ["each", "first"])
async def test_usage_that_does_not_come_last_is_no_end(provider: str, where: str) -> None:
    usage = {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    chunks = [{**delta(content="ha"), **usage}, delta(content="lf") | (usage if where == "each" else {})]
    error = await failure(provider, events(*chunks), streaming=True)
    assert (error.error_type, error.retryable) == ("LostStream", True)


@pytest.mark.parametrize("provider", ["openai", "groq", "openrouter"])
async def test_a_stream_that_was_cut_is_no_answer(provider: str) -> None:
    error = await failure(provider, events(delta(content="half")), streaming=True)
    assert (error.error_type, error.retryable) == ("LostStream", True)


async def test_a_whole_gemini_stream_ends_with_its_own_word() -> None:
    with Wire([events(gemini("Hi"), gemini("!", "MAX_TOKENS"))]) as wire:
        answer = await final(model("gemini", wire))
    assert (answer.message["content"], answer.finish_reason) == ("Hi!", "length")
    assert answer.raw_finish_reason == "MAX_TOKENS"


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_call_that_gemini_could_not_form_is_no_empty_answer(streaming: bool) -> None:
    body = gemini(None, "MALFORMED_FUNCTION_CALL")
    error = await failure("gemini", events(body) if streaming else Reply(body), streaming=streaming)
    assert (error.error_type, error.retryable) == ("BrokenAnswer", True)
    assert "MALFORMED_FUNCTION_CALL" in str(error)


async def test_a_prompt_that_gemini_refuses_is_filtered_not_lost() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": GEMINI_USAGE, "responseId": "r"}
    with Wire([events(blocked)]) as wire:
        assert (await final(model("gemini", wire))).finish_reason == "content_filter"


async def test_signatures_that_only_openrouters_stream_carries_are_kept() -> None:
    pieces = [
        delta(reasoning="h", reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "h"}]),
        delta(reasoning="m", reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "m"}]),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "signature": "sig"}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "enc"}]),
        delta(content="ok"),
    ]
    end = delta()
    end["choices"][0]["finish_reason"] = "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    with Wire(
        [events(*pieces, end, {**delta(), "choices": [], "usage": usage}), chat({"content": "x"})]
    ) as wire:
        asked = model("openrouter", wire)
        first = (await final(asked)).message
        await asked.complete([*USER, first, *USER])
    assert first["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "enc"},
    ]
    assert wire.requests[1]["messages"][1]["reasoning_details"] == first["reasoning_details"]


# --- answers that LiteLLM stumbles over -----------------------------------------------------------


async def test_a_paid_answer_is_not_lost_when_litellm_cannot_read_it() -> None:
    with Wire([chat({"content": "paid for"})]) as wire:  # without `service_tier` its Groq code raises
        answer = await model("groq", wire).complete(USER)
    assert (answer.message["content"], answer.finish_reason) == ("paid for", "stop")
    assert answer.usage.total_tokens == 15


async def test_a_server_that_does_not_stream_anthropics_format_is_read_all_the_same() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "I add."},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1.0}},
    ]
    usage = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3}
    body = {"id": "msg_1", "role": "assistant", "content": blocks, "stop_reason": "tool_use", "usage": usage}
    with Wire([Reply(body)]) as wire:
        answer = await model("anthropic", wire).complete(USER)
    assert answer.message["content"] == blocks[:2]
    assert answer.message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1.0}'}
    assert (answer.finish_reason, answer.raw_finish_reason) == ("tool_calls", "tool_use")
    assert (answer.usage.input_tokens, answer.usage.cached_input_tokens) == (8, 3)


async def test_a_refusal_is_filtered_and_its_text_is_kept() -> None:
    with Wire([chat({"content": None, "refusal": "I will not."})]) as wire:
        answer = await model("openai", wire).complete(USER)
    assert (answer.message["content"], answer.finish_reason) == ("I will not.", "content_filter")
    stopped = anthropic_stream(({"type": "text", "text": ""}, []), reason="refusal")
    with Wire([stopped]) as wire:
        answer = await model("anthropic", wire).complete(USER)
    assert (answer.finish_reason, answer.raw_finish_reason) == ("content_filter", "refusal")


async def test_a_streamed_refusal_is_filtered_too() -> None:
    end = delta()
    end["choices"][0]["finish_reason"] = "stop"
    with Wire([events(delta(refusal="I will"), delta(refusal=" not."), end)]) as wire:
        chunks = [chunk async for chunk in model("openai", wire).stream(USER)]
    answer = chunks[-1].final
    assert answer is not None
    assert (answer.message["content"], answer.finish_reason) == ("I will not.", "content_filter")
    assert "".join(chunk.text for chunk in chunks) == "I will not."


@pytest.mark.parametrize("provider", ["openai", "groq"])
async def test_a_server_that_does_not_stream_is_paid_once_or_says_so(provider: str) -> None:
    reply = chat({"content": "in one piece"})
    with Wire([reply] * 4) as wire:
        try:
            answer = await final(model(provider, wire))
        except ModelError as error:
            assert (error.error_type, error.retryable) == ("NoAnswer", False)
            assert "does not stream" in str(error)
        else:
            assert answer.message["content"] == "in one piece"
        assert len(wire.requests) == 1


@pytest.mark.parametrize("usage", [{"input_tokens": "5"}, {"output_tokens": None}, {"total_tokens": [1]}])
async def test_odd_counts_are_no_counts(usage: dict[str, Any]) -> None:
    item = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ok"}],
    }
    with Wire([Reply({**response("completed", output=[item]), "usage": usage})]) as wire:
        answer = await model("openai", wire, responses_route=True).complete(USER)
    assert answer.usage.total_tokens == 0


async def test_a_message_that_is_not_there_is_no_answer() -> None:
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "message": None, "finish_reason": "stop"}
    with Wire([Reply({**body, "choices": [choice]})]) as wire, pytest.raises(ModelError):
        await model("openai", wire).complete(USER)


async def test_an_odd_wish_to_wait_is_none() -> None:
    body = {"error": {"message": "x", "code": 429, "details": [{"retryDelay": "1.2.3s"}]}}
    assert (await failure("gemini", Reply(body, 429))).retry_after_s is None


async def test_a_streamed_response_leaves_litellms_own_routes_alone() -> None:
    name = "a-model-that-nobody-knows"
    end = {"type": "response.completed", "response": response("completed"), "sequence_number": 1}
    with Wire([events(end), chat({"content": "over chat"})]) as wire:
        settings = ModelSettings(responses_route=True)
        url = f"{wire.url}/v1"
        await final(LiteLLMModel(f"openai/{name}", api_key="k", base_url=url, settings=settings))
        answer = await LiteLLMModel(f"openai/{name}", api_key="k", base_url=url).complete(USER)
    assert answer.message["content"] == "over chat"
    assert wire.paths == ["/v1/responses", "/v1/chat/completions"]
    assert wire.requests[0]["stream"] is True


async def test_counts_that_the_provider_did_not_give_are_marked() -> None:
    end = delta()
    end["choices"][0]["finish_reason"] = "stop"
    with Wire([events(delta(content="ok"), end)]) as wire:
        answer = await final(model("groq", wire))
    assert answer.estimated


@pytest.mark.parametrize("streaming", [False, True])
async def test_mistrals_thinking_is_reasoning_however_it_comes(streaming: bool) -> None:
    def thought(text: str) -> list[dict[str, Any]]:
        return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]

    end = delta(content="swer")
    end["choices"][0]["finish_reason"] = "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    stream = events(
        delta(content=thought("h")), delta(content=thought("m")), delta(content="an"), {**end, "usage": usage}
    )
    plain = chat({"content": [*thought("hm"), {"type": "text", "text": "answer"}]})
    with Wire([stream if streaming else plain]) as wire:
        asked = LiteLLMModel("mistral/magistral-medium-latest", api_key="k", base_url=wire.url)
        answer = await (final(asked) if streaming else asked.complete(USER))
    wanted = {"role": "assistant", "content": "answer", "reasoning_content": "hm", "origin": "mistral"}
    assert answer.message == wanted


# --- the Responses API ----------------------------------------------------------------------------


def response(status: str, **more: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status}
    return {**head, "output": [], **more}


@pytest.mark.parametrize(
    ("code", "retryable"), [("server_error", True), ("rate_limit_exceeded", True), ("invalid_prompt", False)]
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_response_that_failed_is_an_error(code: str, retryable: bool, streaming: bool) -> None:
    body = response("failed", error={"code": code, "message": "it broke"})
    reply = (
        events({"type": "response.failed", "response": body, "sequence_number": 1})
        if streaming
        else Reply(body)
    )
    error = await failure("openai", reply, streaming=streaming, responses_route=True)
    assert "it broke" in str(error)
    assert error.retryable is retryable


@pytest.mark.parametrize(
    ("reason", "expected"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
async def test_an_incomplete_response_says_why(reason: str, expected: str) -> None:
    body = response("incomplete", incomplete_details={"reason": reason})
    with Wire([Reply(body)]) as wire:
        answer = await model("openai", wire, responses_route=True).complete(USER)
    assert (answer.finish_reason, answer.raw_finish_reason) == (expected, reason)


async def test_a_response_stream_that_was_cut_is_no_answer() -> None:
    begin = {"type": "response.created", "response": response("in_progress"), "sequence_number": 0}
    error = await failure("openai", events(begin), streaming=True, responses_route=True)
    assert (error.error_type, error.retryable) == ("LostStream", True)


def test_an_error_of_no_known_kind_is_still_a_model_error() -> None:
    error = as_model_error(RuntimeError("odd"), "openai/m", streaming=False)
    assert (error.error_type, error.retryable) == ("RuntimeError", False)
    assert "odd" in str(error)
