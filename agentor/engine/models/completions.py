"""Chat completions over LiteLLM: every provider but those asked over the Responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any  # LiteLLM is imported late and is not typed for us

from agentor.engine.messages import Message, Usage
from agentor.engine.models import anthropic, families, usage
from agentor.engine.models.accumulate import Accumulator
from agentor.engine.models.base import ModelResponse, StreamChunk
from agentor.engine.models.failures import as_model_error, broken_off, check_ending, no_answer, unreadable
from agentor.engine.models.projection import project, thinking_cannot_go_on
from agentor.engine.models.tap import Tap, json_body

_THINKING = ("thinking", "reasoning_effort")  # settings that turn Anthropic's thinking on


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
            response = _rescued(litellm, tap.body, error)
            if response is None:
                raise as_model_error(error, self.model, streaming=False) from error
        return self._whole(litellm, response, tap)

    def _whole(self, litellm: Any, response: Any, tap: Tap) -> ModelResponse:
        try:
            choice = response.choices[0]
            raw = choice.message.model_dump(exclude_none=True)
            message = families.normalise(raw, self._target.origin)
        except (AttributeError, IndexError, TypeError) as error:
            raise unreadable(self.model, error) from error
        reason = "content_filter" if raw.get("refusal") else choice.finish_reason
        counted = usage.from_litellm(getattr(response, "usage", None))
        return self._answer(litellm, message, reason, counted, response.id, tap)

    async def stream(self, litellm: Any, request: dict[str, Any]) -> AsyncGenerator[StreamChunk, None]:
        """The answer in pieces.

        Raises:
            ModelError: the call failed; `LostStream` where the answer broke off.
        """
        own, parts = anthropic.Blocks(), Accumulator()
        tap = Tap(own.add if self._target.family == families.ANTHROPIC else None)
        counted, response_id, stream = None, None, None
        asked = {**request, "stream": True, "stream_options": {"include_usage": True}}
        try:
            stream = await litellm.acompletion(**asked, logger_fn=tap.log)
            if (response := json_body(stream)) is not None:
                yield self._unstreamed(litellm, json.loads(await response.aread()), tap)
                return
            tap.watch(stream)
            async for chunk in stream:
                response_id = response_id or getattr(chunk, "id", None)
                counted = getattr(chunk, "usage", None) or counted
                for choice in chunk.choices[:1]:
                    delta = choice.delta.model_dump(exclude_none=True)
                    if self._target.family == families.CHAT:
                        delta.pop("thinking_blocks", None)  # `reasoning_content` again
                    parts.add(delta)
                    parts.finish_reason = choice.finish_reason or parts.finish_reason
                    text, reasoning = delta.get("content"), delta.get("reasoning_content")
                    if text or reasoning:
                        yield StreamChunk(text=text or "", reasoning=reasoning or "")
        except Exception as error:
            # A server that sent its usage last gave the whole answer: asking again would pay for it twice.
            whole = "before a finish_reason" in str(error) and not tap.broke_off
            counted = _reported(stream) if whole else None
            if counted is None:
                raise as_model_error(
                    error, self.model, streaming=stream is not None, said=tap.error
                ) from error
            parts.finish_reason = parts.likely_end
        finally:
            if stream is not None and (close := getattr(stream, "aclose", None)) is not None:
                await close()
        if tap.body is not None:
            yield self._unstreamed(litellm, tap.body, tap)
            return
        if parts.finish_reason is None or tap.broke_off:
            raise broken_off(self.model, "the stream ended without a finish reason")
        estimated = not tap.has_usage and _reported(stream) is None
        final = self._answer(
            litellm,
            self._collected(parts, own, tap),
            "content_filter" if tap.refusal else parts.finish_reason,
            usage.from_litellm(counted),
            response_id,
            tap,
            estimated=estimated,
        )
        yield StreamChunk(text=tap.refusal, final=final)

    def _collected(self, parts: Accumulator, own: anthropic.Blocks, tap: Tap) -> Message:
        """The message of a stream that is over; what the tap saw goes before what LiteLLM made of it."""
        if (blocks := own.whole()) and not tap.confused:
            parts = Accumulator()
            parts.add_blocks(blocks)
        parts.add_details(tap.details)
        if tap.refusal:
            parts.refuse(tap.refusal)
        try:
            return parts.message(self._target.origin)
        except TypeError as error:
            raise unreadable(self.model, error) from error

    def _unstreamed(self, litellm: Any, body: dict[str, Any], tap: Tap) -> StreamChunk:
        """A server that is asked to stream and does not: its answer is one JSON body, and paid for."""
        parts = Accumulator()
        try:
            if self._target.family != families.ANTHROPIC:
                final = self._whole(litellm, litellm.ModelResponse(**body), tap)
            else:
                parts.add_blocks(body["content"])
                tap.finish_reason = str(body["stop_reason"])
                counted = usage.from_anthropic(body.get("usage") or {})
                message = parts.message(self._target.origin)
                reason = anthropic.finish_reason(tap.finish_reason)
                final = self._answer(litellm, message, reason, counted, body.get("id"), tap)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise unreadable(self.model, error) from error
        content = final.message.get("content")
        return StreamChunk(text=content if isinstance(content, str) else "", final=final)

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
        empty = not any(key in message for key in ("content", "tool_calls"))
        if empty and reason == "stop" and (estimated or not counted.output_tokens):
            # LiteLLM gives a body that holds no answer as an empty one with a normal end.
            raise no_answer(self.model, unstreamed=tap.unstreamed)
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


def _reported(stream: Any) -> Any:
    """The usage in the provider's own chunks; None where LiteLLM counted for itself."""
    counts = [getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())]
    return next((usage for usage in reversed(counts) if usage is not None), None)


def _rescued(litellm: Any, body: dict[str, Any] | None, error: Exception) -> Any:
    """A whole answer of the OpenAI kind that LiteLLM stumbled over; it is paid for, so it is not lost."""
    if body is None or not isinstance(body.get("choices"), list) or not body["choices"]:
        return None
    try:
        return litellm.ModelResponse(**body)
    except Exception:  # pydantic's or LiteLLM's own; the first error says more
        return None
