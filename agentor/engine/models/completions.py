"""Chat completions over LiteLLM: every provider but those asked over the Responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any  # LiteLLM is imported late and is not typed for us

from agentor.engine.messages import Message, Usage
from agentor.engine.models import families, usage
from agentor.engine.models.accumulate import Accumulator, AnthropicBlocks
from agentor.engine.models.base import ModelResponse, StreamChunk
from agentor.engine.models.failures import as_model_error, broken_off, check_ending, unreadable
from agentor.engine.models.projection import project, thinking_cannot_go_on
from agentor.engine.models.tap import Tap, json_body

_THINKING = ("thinking", "reasoning_effort")  # settings that turn Anthropic's thinking on
_ENDS = {  # Anthropic's stop_reason -> finish_reason
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class ChatRoute:
    """One model over `litellm.acompletion`.

    Args:
        fixed: The parameters of every request, `model` among them.
    """

    def __init__(self, model: str, target: families.Target, fixed: dict[str, Any]) -> None:
        self.model, self._target = model, target
        self._fixed = dict(fixed)
        if target.family == families.GEMINI:
            self._fixed["thought_signature_in_tool_call_id"] = False
        if target.family == families.ANTHROPIC:  # LiteLLM would send it as a key of that name
            self._fixed |= self._fixed.pop("extra_body", {})
        # Without streaming, LiteLLM loses the order of Anthropic's thinking and text.
        self.always_streams = target.family == families.ANTHROPIC

    def request(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        response_format: dict[str, Any] | None,
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """The arguments of `litellm.acompletion`, and what of the history was left out of them."""
        projected, left_out = project(messages, self._target)
        request = {**self._fixed, "messages": projected}
        if tools:
            request["tools"] = list(tools)
        else:
            request.pop("tool_choice", None)
            request.pop("parallel_tool_calls", None)
        if response_format:
            request["response_format"] = response_format
        thinks = self._target.family == families.ANTHROPIC and any(name in request for name in _THINKING)
        if thinks and thinking_cannot_go_on(messages, self._target):
            request = {name: value for name, value in request.items() if name not in _THINKING}
            left_out["thinking_setting"] += 1
        return request, dict(left_out)

    async def plain(self, litellm: Any, request: dict[str, Any]) -> ModelResponse:
        """The answer in one piece.

        Raises:
            ModelError: the call failed.
        """
        tap = Tap()
        try:
            response = await litellm.acompletion(**request, logger_fn=tap.log)
        except Exception as error:
            response = _rescued(litellm, tap, error)
            if response is None:
                raise as_model_error(error, self.model, streaming=False) from error
        try:
            choice = response.choices[0]
            message = choice.message.model_dump(exclude_none=True)
        except (AttributeError, IndexError, TypeError) as error:
            raise unreadable(self.model, error) from error
        kept = families.normalise(message, self._target.origin)
        reason = "content_filter" if message.get("refusal") else choice.finish_reason
        counted = usage.from_litellm(getattr(response, "usage", None))
        return self._answer(litellm, kept, reason, counted, response.id, tap)

    async def stream(self, litellm: Any, request: dict[str, Any]) -> AsyncGenerator[StreamChunk, None]:
        """The answer in pieces.

        Raises:
            ModelError: the call failed; `LostStream` where the answer broke off.
        """
        own, parts = AnthropicBlocks(), Accumulator()
        tap = Tap(own.add if self._target.family == families.ANTHROPIC else None)
        counted, response_id, stream = None, None, None
        asked = {**request, "stream": True, "stream_options": {"include_usage": True}}
        try:
            stream = await litellm.acompletion(**asked, logger_fn=tap.log)
            if (response := json_body(stream)) is not None:
                yield self._anthropic(litellm, json.loads(await response.aread()), tap)
                return
            watched = tap.watch(stream)
            async for chunk in stream:
                response_id = response_id or getattr(chunk, "id", None)
                counted = getattr(chunk, "usage", None) or counted
                for choice in chunk.choices[:1]:
                    delta = choice.delta.model_dump(exclude_none=True)
                    parts.add(delta)
                    parts.finish_reason = choice.finish_reason or parts.finish_reason
                    text, reasoning = delta.get("content"), delta.get("reasoning_content")
                    if text or reasoning:
                        yield StreamChunk(text=text or "", reasoning=reasoning or "")
        except Exception as error:
            counted = _usage_before(error, stream)
            if counted is None:
                raise as_model_error(
                    error, self.model, streaming=stream is not None, said=tap.error
                ) from error
            parts.finish_reason = parts.likely_end
        finally:
            if stream is not None and (close := getattr(stream, "aclose", None)) is not None:
                await close()
        if (blocks := own.blocks()) and not tap.confused:
            whole = Accumulator()
            whole.add_anthropic(blocks)
            whole.finish_reason, parts = parts.finish_reason, whole
        parts.add_details(tap.details)
        message, found = parts.message(self._target.origin), usage.from_litellm(counted)
        if parts.finish_reason is None or tap.broke_off:
            raise broken_off(self.model, "the stream ended without a finish reason")
        if not any(key in message for key in ("content", "tool_calls")) and not found.output_tokens:
            # LiteLLM gives a body that is no stream as an empty answer with a normal end.
            raise broken_off(self.model, "the stream held no answer; does this server stream answers?")
        estimated = watched and not tap.has_usage
        final = self._answer(
            litellm, message, parts.finish_reason, found, response_id, tap, estimated=estimated
        )
        yield StreamChunk(final=final)

    def _anthropic(self, litellm: Any, body: dict[str, Any], tap: Tap) -> StreamChunk:
        """A server that speaks Anthropic's format and does not stream answers with one JSON body."""
        parts = Accumulator()
        try:
            parts.add_anthropic(body["content"])
            reason = str(body["stop_reason"])
            counted = usage.from_anthropic(body.get("usage") or {})
        except (KeyError, TypeError, AttributeError) as error:
            raise unreadable(self.model, error) from error
        tap.finish_reason = reason
        message = parts.message(self._target.origin)
        text = message.get("content")
        final = self._answer(litellm, message, _ENDS.get(reason, "length"), counted, body.get("id"), tap)
        return StreamChunk(text=text if isinstance(text, str) else "", final=final)

    def _answer(
        self,
        litellm: Any,
        message: Message,
        reason: str | None,
        counted: Usage,
        response_id: str | None,
        tap: Tap,
        *,
        estimated: bool = False,
    ) -> ModelResponse:
        if reason is None:
            raise broken_off(self.model, "the answer has no finish reason")
        check_ending(self.model, tap.finish_reason or reason)
        return ModelResponse(
            message=_with_own_ids(message, tap),
            finish_reason=reason,
            raw_finish_reason=None if tap.finish_reason == reason else tap.finish_reason,
            usage=counted,
            estimated=estimated,
            cost=usage.cost_usd(litellm, self.model, counted),
            response_id=response_id,
        )


def _with_own_ids(message: Message, tap: Tap) -> Message:
    """Without the random call ids that LiteLLM makes up: the engine gives such a call an id of its own."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [c if tap.has(c.get("id")) else {**c, "id": ""} for c in calls]}


def _usage_before(error: Exception, stream: Any) -> Any:
    """The usage that came before LiteLLM missed a finish reason; None for a stream that did break.

    A server sends the usage last, so the answer is whole: asking again would pay for it twice.
    """
    if stream is None or "before a finish_reason" not in str(error):
        return None
    counts = [getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())]
    return next((usage for usage in reversed(counts) if usage is not None), None)


def _rescued(litellm: Any, tap: Tap, error: Exception) -> Any:
    """A whole answer of the OpenAI kind that LiteLLM stumbled over; it is paid for, so it is not lost."""
    if tap.body is None or not isinstance(tap.body.get("choices"), list) or not tap.body["choices"]:
        return None
    try:
        return litellm.ModelResponse(**tap.body)
    except Exception:  # pydantic's or LiteLLM's own; the first error says more
        return None
