"""Making a conversation shorter before a model is asked: by a user's function, or by a summary."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any  # schemas are JSON

from agentor.engine.messages import Message, Usage, raw_calls
from agentor.engine.models import Model, ModelResponse, StreamChunk
from agentor.engine.threads import in_thread

Hook = Callable[[Sequence[Message], int | None], object]
"""Given the messages of the next request and the tokens that the last one had, the messages in their
place (or a `Compacted`), or None to leave them; sync or async."""

_ASK = (
    "Summarise the conversation above for the assistant that goes on with it. Keep every fact, name, number, "
    "decision, open task and result of a tool that may matter later; leave out the rest. Write no greeting."
)
_HEAD = "Summary of the conversation so far:\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The shorter conversation, and what it cost to make it."""

    messages: list[Message]
    usage: Usage | None = None
    cost: float | None = None


class Summary:
    """Replaces the older part of a conversation by a summary once a request had more than `over_tokens`.

    Args:
        model: Asked for the summary.
        over_tokens: Input tokens of the last request, as the provider counted them.
        keep: The newest messages that stay as they are; a call and its results stay together.
        instructions: What the model is asked for.

    Raises:
        ValueError: a number that is not above 0.
    """

    def __init__(self, model: Model, *, over_tokens: int, keep: int = 8, instructions: str = _ASK) -> None:
        if over_tokens < 1 or keep < 1:
            raise ValueError("over_tokens and keep must be above 0")
        self._model, self._over, self._keep, self._ask = model, over_tokens, keep, instructions

    async def __call__(self, messages: Sequence[Message], used: int | None) -> Compacted | None:
        if used is None or used <= self._over:
            return None
        head = 1 if messages and messages[0].get("role") == "system" else 0
        cut = whole_from(messages, len(messages) - self._keep)
        if cut <= head + 1:
            return None  # nothing to gain
        older = [*messages[:cut], {"role": "user", "content": self._ask}]
        answer = await self._model.complete(older)
        text = str(answer.message.get("content") or "")
        if not text:
            return None
        short: list[Message] = [*messages[:head], {"role": "user", "content": _HEAD + text}, *messages[cut:]]
        return Compacted(messages=short, usage=answer.usage, cost=answer.cost)

    def answered(self, text: str) -> Summary:
        """The same, with a model that gives this text: what it would do, for a replay."""
        return Summary(_Said(text), over_tokens=self._over, keep=self._keep, instructions=self._ask)


class _Said:
    """A model that has one answer."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> ModelResponse:
        """The answer."""
        return ModelResponse(message={"role": "assistant", "content": self._text}, finish_reason="stop")

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> AsyncIterator[StreamChunk]:
        """Not asked for."""
        raise NotImplementedError


def summary_in(messages: Sequence[Message]) -> str:
    """The text of the summary that stands in a conversation; empty where there is none."""
    texts = (m.get("content") for m in messages)
    return next((t.removeprefix(_HEAD) for t in texts if isinstance(t, str) and t.startswith(_HEAD)), "")


def whole_from(messages: Sequence[Message], place: int) -> int:
    """The place, or the nearest one before it, that splits no call from its results."""
    place = max(min(place, len(messages)), 0)
    while place > 0 and place < len(messages) and messages[place].get("role") == "tool":
        place -= 1
    return place


def problem_of(messages: object) -> str | None:
    """Why this is no conversation that a provider takes; None for one."""
    if not isinstance(messages, list) or not messages:
        return "it must be a list of messages that is not empty"
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return f"message {number} needs a text under 'role'"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"message {number} is a result without its call"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"message {number} stands where the result of {waiting[0]!r} must be"
        else:
            waiting = [str(call.get("id")) for call in raw_calls(message)]
    return f"the result of {waiting[0]!r} is missing" if waiting else None


async def compacted(hook: Hook, messages: list[Message], used: int | None) -> Compacted | None:
    """What the hook makes of a conversation; None where it leaves it as it is.

    Raises:
        ValueError: what it gave is no conversation.
        Exception: whatever it raises.
    """
    is_async = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)
    given = hook(messages, used) if is_async else await in_thread(hook, messages, used)
    if isinstance(given, Awaitable):
        given = await given
    if given is None or given == messages:
        return None
    short = given if isinstance(given, Compacted) else Compacted(messages=given)  # type: ignore[arg-type]  # checked below
    if (problem := problem_of(short.messages)) is not None:
        raise ValueError(problem)
    return short
