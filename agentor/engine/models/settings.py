"""`ModelSettings`: what a request asks of a model besides the conversation."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any  # request parameters are JSON

_PORTABLE = (
    "temperature",
    "top_p",
    "max_tokens",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "timeout_s",
)


@dataclass(frozen=True, slots=True, init=False)
class ModelSettings:
    """Request parameters by their common names; what is not set is not sent.

    A keyword that is not listed goes into `extra` and so to LiteLLM as it is. `thinking` is
    Anthropic's; `timeout_s` is the time for one model call. `responses_route` says whether OpenAI
    models are asked over the Responses API: None means for reasoning models without a `base_url`.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | dict[str, Any] | None = None  # a dict: OpenAI's, with effort and summary
    verbosity: str | None = None
    top_logprobs: int | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    thinking: dict[str, Any] | None = None
    extra_headers: dict[str, str] | None = None
    extra_body: dict[str, Any] | None = None
    timeout_s: float | None = None
    responses_route: bool | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __init__(self, *, extra: dict[str, Any] | None = None, **settings: Any) -> None:
        own = [f.name for f in fields(type(self)) if f.name != "extra"]
        for name in own:
            object.__setattr__(self, name, settings.pop(name, None))
        object.__setattr__(self, "extra", {**settings, **(extra or {})})

    def portable(self) -> ModelSettings:
        """Those of these settings that any provider takes; what one model does not know is dropped."""
        shared = {name: getattr(self, name) for name in _PORTABLE}
        return ModelSettings(**{k: v for k, v in shared.items() if v is not None}, drop_params=True)

    def to_params(self) -> dict[str, Any]:
        """The settings that are set, under their own names, `extra` among them."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {name: value for name, value in own.items() if value is not None} | self.extra
