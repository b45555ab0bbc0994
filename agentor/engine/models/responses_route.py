"""The Responses API over LiteLLM, in its own shape: LiteLLM's bridge to it loses ids and items."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any  # LiteLLM is imported late and is not typed for us

from agentor.engine.messages import Message
from agentor.engine.models import families, responses, usage
from agentor.engine.models.base import ModelResponse, StreamChunk
from agentor.engine.models.failures import as_model_error, broken_off, unreadable
from agentor.engine.models.projection import project

_ENCRYPTED = "reasoning.encrypted_content"
_NO_REASONING = ("gpt-4", "gpt-3", "chatgpt", "gpt-5-chat")  # OpenAI refuses `include` for these


class ResponsesRoute:
    """One model over `litellm.aresponses`, with nothing stored at the provider unless asked for.

    Args:
        fixed: The parameters of every request, under their names in chat completions.

    Raises:
        ValueError: a setting that this API does not have.
    """

    always_streams = False

    def __init__(self, model: str, target: families.Target, fixed: dict[str, Any]) -> None:
        self.model, self._target = model, target
        provider, name = families.split_name(model)
        defaults: dict[str, Any] = {"store": False}
        own = responses.parameters(fixed)
        if not name.startswith(_NO_REASONING):
            own["include"] = list(dict.fromkeys([_ENCRYPTED, *own.get("include", ())]))
        self._fixed = {**defaults, **own, "model": model if provider else f"openai/{name}"}

    def request(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        response_format: dict[str, Any] | None,
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """The arguments of `litellm.aresponses`, and what of the history was left out of them."""
        projected, left_out = project(messages, self._target)
        request = {**self._fixed, "input": responses.input_items(projected)}
        if tools:
            request["tools"] = responses.tool_items(tools)
        else:
            request.pop("tool_choice", None)
            request.pop("parallel_tool_calls", None)
        if response_format:
            text = request.get("text") or {}
            request["text"] = {**text, "format": responses.text_format(response_format)}
        return request, dict(left_out)

    async def plain(self, litellm: Any, request: dict[str, Any]) -> ModelResponse:
        """The answer in one piece.

        Raises:
            ModelError: the call failed.
        """
        try:
            response = await litellm.aresponses(**request)
        except Exception as error:
            raise as_model_error(error, self.model, streaming=False) from error
        return self._answer(litellm, response)

    async def stream(self, litellm: Any, request: dict[str, Any]) -> AsyncGenerator[StreamChunk, None]:
        """The answer in pieces.

        Raises:
            ModelError: the call failed; `LostStream` where the answer broke off.
        """
        seen, stream = responses.Collected(), None
        try:
            _allow_stream(litellm, self._fixed["model"])
            stream = await litellm.aresponses(**request, stream=True)
            async for event in stream:
                text, reasoning = seen.add(_json(event))
                if text or reasoning:
                    yield StreamChunk(text=text, reasoning=reasoning)
        except Exception as error:
            raise as_model_error(error, self.model, streaming=stream is not None, said=seen.error) from error
        finally:
            if stream is not None and (close := getattr(stream, "aclose", None)) is not None:
                await close()
        if seen.response is None:
            raise broken_off(self.model, f"the stream ended early{seen.error and f': {seen.error}'}")
        yield StreamChunk(final=self._answer(litellm, seen.response))

    def _answer(self, litellm: Any, answer: Any) -> ModelResponse:
        try:
            response = _json(answer)
            raw = responses.message_of(response["output"])
            reason, own_reason = responses.ending(response, raw, self.model)
            counted = usage.from_responses(response.get("usage") or {})
            message = families.normalise(raw, self._target.origin)
        except (KeyError, TypeError, AttributeError) as error:
            raise unreadable(self.model, error) from error
        return ModelResponse(
            message=message,
            finish_reason=reason,
            raw_finish_reason=own_reason,
            usage=counted,
            cost=usage.cost_usd(litellm, self.model, counted),
            response_id=response.get("id"),
        )


def _allow_stream(litellm: Any, model: str) -> None:
    """For a model that its list does not know, LiteLLM would ask for a plain answer and cut it up."""
    provider, name = families.split_name(model)
    if name not in litellm.model_cost and model not in litellm.model_cost:
        known = {"litellm_provider": provider, "mode": "chat", "supports_native_streaming": True}
        litellm.register_model({name: known})


def _json(item: Any) -> dict[str, Any]:
    """An object of LiteLLM's as the JSON that it was read from."""
    data = item if isinstance(item, dict) else item.model_dump(mode="json", exclude_none=True, warnings=False)
    return dict(data)
