"""`LiteLLMModel`: any provider through LiteLLM; the only file that imports it."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Sequence
from typing import Any  # LiteLLM is imported late and is not typed for us

from agentor.engine.messages import Message, Usage
from agentor.engine.models import families
from agentor.engine.models.accumulate import Accumulator, with_ids
from agentor.engine.models.base import ModelResponse, StreamChunk
from agentor.engine.models.failures import as_model_error, lost_stream
from agentor.engine.models.settings import ModelSettings
from agentor.engine.threads import in_thread

_lock = threading.Lock()
_loaded: list[Any] = []  # LiteLLM, once it is imported and quiet
_OFFLINE = ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS")
_NOISE = (  # what pydantic says of LiteLLM's own types, at its first call
    r".*on TypedDict class .*`ReadOnly`",
    r"Accessing the 'model_\w+' attribute on the instance is deprecated",
)
_OURS = ("timeout_s", "responses_route", "extra_headers")  # not LiteLLM's names, or not for the log


def _load() -> Any:
    """Import LiteLLM (seconds of CPU) without its look at the network, and quietly."""
    with _lock:
        if _loaded:
            return _loaded[0]
        for name in _OFFLINE:
            os.environ.setdefault(name, "True")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module: Any = importlib.import_module("litellm")
        for message in _NOISE:
            warnings.filterwarnings("ignore", message=message)
        module.suppress_debug_info = True
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        _loaded.append(module)
        return module


async def _litellm() -> Any:
    return _loaded[0] if _loaded else await in_thread(_load)


class LiteLLMModel:
    """A model by its LiteLLM name, such as `gpt-5-mini` or `anthropic/claude-sonnet-4-5`.

    LiteLLM's own retries are off: a failed call is an event of the run. The assistant message is
    kept whole and sent back as its provider needs it. OpenAI's reasoning models are asked over the
    Responses API with their reasoning encrypted in the answer and nothing stored at OpenAI.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        self.model = model
        settings = settings or ModelSettings()
        given = settings.to_params()
        self.params = {k: v for k, v in given.items() if k != "extra_headers"}
        wanted = settings.responses_route
        if wanted is None:
            wanted = base_url is None and families.is_openai_reasoning(model)
        self._family = families.family(model, responses=wanted)
        self._request: dict[str, Any] = {
            "model": f"openai/responses/{model.removeprefix('openai/')}" if wanted else model,
            "api_key": api_key,
            "api_base": base_url,
            "timeout": settings.timeout_s,
            "extra_headers": settings.extra_headers,
            **{k: v for k, v in given.items() if k not in _OURS},
        }
        self._request = {k: v for k, v in self._request.items() if v is not None}
        self._request |= {"max_retries": 0, "num_retries": 0}
        if self._family == families.RESPONSES:
            self._request = {"include": ["reasoning.encrypted_content"], "store": False} | self._request
        if self._family == families.GEMINI:
            self._request["thought_signature_in_tool_call_id"] = False
        # Without streaming, LiteLLM loses the order of thinking and text; with it, OpenRouter's signatures.
        self._always_streams = self._family == families.ANTHROPIC
        self._never_streams = self._family == families.OPENROUTER

    def preload(self) -> None:
        """Begin LiteLLM's import on a thread; the first call waits for it."""
        threading.Thread(target=_load, name="agentor-import", daemon=True).start()

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> ModelResponse:
        """The whole answer.

        Raises:
            ModelError: the call failed; it says whether a repeat may help.
        """
        if self._always_streams:
            async for chunk in self.stream(messages, tools, response_format):
                if chunk.final is not None:
                    return chunk.final
        return await self._plain(self._ask(messages, tools, response_format))

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> AsyncIterator[StreamChunk]:
        """The answer as it comes; the last chunk has the whole.

        Raises:
            ModelError: as `complete`; `LostStream` where it broke off.
        """
        request = self._ask(messages, tools, response_format)
        if self._never_streams:
            final = await self._plain(request)
            content = final.message.get("content")
            yield StreamChunk(text=content if isinstance(content, str) else "", final=final)
            return
        litellm = await _litellm()
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        parts, usage, response_id = Accumulator(), None, None
        response = None
        try:
            response = await litellm.acompletion(**request)
            async for chunk in response:
                response_id = response_id or getattr(chunk, "id", None)
                usage = getattr(chunk, "usage", None) or usage
                for choice in chunk.choices[:1]:
                    delta = choice.delta.model_dump(exclude_none=True)
                    parts.add(delta)
                    parts.finish_reason = choice.finish_reason or parts.finish_reason
                    text, reasoning = delta.get("content"), delta.get("reasoning_content")
                    if text or reasoning:
                        yield StreamChunk(text=text or "", reasoning=reasoning or "")
        except Exception as error:
            raise as_model_error(error, self.model, streaming=response is not None) from error
        finally:
            if response is not None and (close := getattr(response, "aclose", None)) is not None:
                await close()
        message = parts.message()
        if parts.finish_reason is None:
            raise lost_stream(self.model, "the stream ended without a finish reason")
        if len(message) == 1 and not _usage(usage).output_tokens:
            # LiteLLM gives a body that is no stream as an empty answer with a normal end.
            raise lost_stream(self.model, "the stream held no answer")
        yield StreamChunk(final=self._answer(litellm, message, parts.finish_reason, usage, response_id))

    def _ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        response_format: dict[str, Any] | None,
    ) -> dict[str, Any]:
        request = {**self._request, "messages": families.project(messages, self._family)}
        if tools:
            request["tools"] = list(tools)
        else:
            request.pop("tool_choice", None)
            request.pop("parallel_tool_calls", None)
        if response_format:
            request["response_format"] = response_format
        return request

    async def _plain(self, request: dict[str, Any]) -> ModelResponse:
        litellm = await _litellm()
        try:
            response = await litellm.acompletion(**request)
            choice = response.choices[0]
            message = with_ids(families.normalise(choice.message.model_dump(exclude_none=True)))
        except Exception as error:
            raise as_model_error(error, self.model, streaming=False) from error
        if choice.finish_reason is None:
            raise lost_stream(self.model, "the answer has no finish reason")
        usage = getattr(response, "usage", None)
        return self._answer(litellm, message, choice.finish_reason, usage, response.id)

    def _answer(
        self, litellm: Any, message: Message, reason: str, usage: Any, response_id: str | None
    ) -> ModelResponse:
        return ModelResponse(
            message=message,
            finish_reason=reason,
            usage=_usage(usage),
            cost=self._cost(litellm, usage),
            response_id=response_id,
        )

    def _cost(self, litellm: Any, usage: Any) -> float | None:
        if usage is None:
            return None
        try:
            litellm.get_model_info(self.model)
            response = litellm.ModelResponse(model=self.model, usage=usage)
            return float(litellm.completion_cost(completion_response=response, model=self.model))
        except Exception:  # LiteLLM raises many kinds where it has no price
            return None


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    prompt = getattr(usage, "prompt_tokens_details", None)
    answer = getattr(usage, "completion_tokens_details", None)
    return Usage(
        input_tokens=getattr(usage, "prompt_tokens", 0) or 0,
        output_tokens=getattr(usage, "completion_tokens", 0) or 0,
        total_tokens=getattr(usage, "total_tokens", 0) or 0,
        cached_input_tokens=getattr(prompt, "cached_tokens", 0) or 0,
        reasoning_tokens=getattr(answer, "reasoning_tokens", 0) or 0,
    )
