"""`LiteLLMModel`: any provider through LiteLLM; the only file that imports it."""

from __future__ import annotations

import importlib
import logging
import os
import re
import threading
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any  # LiteLLM is imported late and is not typed for us

from agentor.engine.messages import Message
from agentor.engine.models import families
from agentor.engine.models.base import ModelResponse, StreamChunk
from agentor.engine.models.completions import ChatRoute
from agentor.engine.models.responses_route import ResponsesRoute
from agentor.engine.models.settings import ModelSettings
from agentor.engine.threads import in_thread

_lock = threading.Lock()
_loaded: list[Any] = []  # LiteLLM, once it is imported and quiet
_OFFLINE = ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS")
_NOISE = (  # what pydantic says of LiteLLM's own types, at its first call
    r".*on TypedDict class .*`ReadOnly`",
    r"Accessing the 'model_\w+' attribute on the instance is deprecated",
    r"Pydantic serializer warnings",
)
_SECRET_HEADER = re.compile("auth|cookie|key|secret|token", re.IGNORECASE)
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


def _load_early() -> None:
    with suppress(Exception):  # the first call meets the same error, and can raise it
        _load()


async def _litellm() -> Any:
    return _loaded[0] if _loaded else await in_thread(_load)


class LiteLLMModel:
    """A model by its LiteLLM name, such as `gpt-5-mini` or `anthropic/claude-sonnet-4-5`.

    LiteLLM's own retries are off: a failed call is an event of the run. The assistant message is
    kept whole and sent back as its provider needs it. OpenAI's reasoning models are asked over the
    Responses API with their reasoning encrypted in the answer and nothing stored at OpenAI.

    Args:
        api_key: Else LiteLLM looks in the environment.
        base_url: A server of your own, or a proxy; else the provider's address.
        settings: What each request asks for besides the conversation.

    Raises:
        ValueError: a setting that the API of this model does not have.
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
        headers = settings.extra_headers or {}
        words = [w for k, v in headers.items() if _SECRET_HEADER.search(k) for w in str(v).split()]
        self.secrets = tuple(filter(None, [api_key, *words]))  # never to be written down
        self.params = {k: v for k, v in given.items() if k != "extra_headers"}
        wanted = settings.responses_route
        if wanted is None:
            wanted = base_url is None and families.is_openai_reasoning(model)
        target = families.target(model, responses=wanted, base_url=base_url)
        fixed = {
            "model": model,
            "api_key": api_key,
            "api_base": base_url,
            "timeout": settings.timeout_s,
            "extra_headers": settings.extra_headers,
            **{k: v for k, v in given.items() if k not in _OURS},
        }
        fixed = {k: v for k, v in fixed.items() if v is not None} | {"max_retries": 0, "num_retries": 0}
        route = ResponsesRoute if wanted else ChatRoute
        self._route: ResponsesRoute | ChatRoute = route(model, target, fixed)

    def preload(self) -> None:
        """Begin LiteLLM's import on a thread; the first call waits for it."""
        threading.Thread(target=_load_early, name="agentor-import", daemon=True).start()

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
        if self._route.always_streams:
            async for chunk in self.stream(messages, tools, response_format):
                if chunk.final is not None:
                    return chunk.final
        request, left_out = self._route.request(messages, tools, response_format)
        answer = await self._route.plain(await _litellm(), request)
        return replace(answer, left_out=left_out) if left_out else answer

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
        request, left_out = self._route.request(messages, tools, response_format)
        async with aclosing(self._route.stream(await _litellm(), request)) as chunks:
            async for chunk in chunks:
                if chunk.final is not None and left_out:
                    chunk = replace(chunk, final=replace(chunk.final, left_out=left_out))
                yield chunk
