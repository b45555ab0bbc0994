"""The `Model` protocol: what the engine asks of anything that answers a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable  # Any: JSON schemas

from agentor.engine.messages import Message, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """One whole answer of a model.

    `message` is the assistant message exactly as it must be sent back in the next request, with no
    null values: text in `content`, calls in `tool_calls`, and every signed or opaque part that the
    provider gave. `cost` is in US dollars, None where the price is unknown. `left_out` counts the
    parts of earlier answers, by kind, that this request went without, since only another provider
    can read them.
    """

    message: Message
    finish_reason: str = "stop"  # OpenAI's names: stop, tool_calls, length, content_filter
    raw_finish_reason: str | None = None  # the provider's own word, where it has another one
    usage: Usage = field(default_factory=Usage)
    estimated: bool = False  # the provider gave no usage; LiteLLM counted instead
    cost: float | None = None
    response_id: str | None = None
    model: str | None = None  # the model that answered, where it says so
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk:
    """One piece of a streamed answer; `final` is set on the last one only."""

    text: str = ""
    reasoning: str = ""
    final: ModelResponse | None = None


@runtime_checkable
class Model(Protocol):
    """Anything with `complete` and `stream`; give an instance as `Agentor(model=...)`.

    An optional attribute `model` (text) names it in logs; an optional `params` (a JSON object) is
    recorded with each generation. Both methods raise `ModelError`; `retryable=True` on it asks the
    engine to send the same request again. `messages` must not be changed.
    """

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> ModelResponse:
        """Answer in one piece. `tools` and `response_format` are in OpenAI's request shape."""
        ...

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> AsyncIterator[StreamChunk]:
        """Answer in pieces; the last chunk carries the whole answer as `final`."""
        ...
