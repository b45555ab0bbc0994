"""`ScriptedModel`: answers from a script, so that an agent's tests need no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any  # arguments and schemas are JSON

from agentor.engine import strictjson
from agentor.engine.messages import Message, Usage, assistant_message, raw_calls
from agentor.engine.models import ModelResponse, StreamChunk
from agentor.errors import ModelError


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call that the model will ask for; without an `id` it gets the next `call_<n>`."""

    name: str
    args: dict[str, Any] | str = field(default_factory=dict)  # a text goes out as it is
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the script; made by `answer`."""

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    delay_s: float = 0.0
    chunks: tuple[str, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # more keys of the assistant message


@dataclass(frozen=True, slots=True)
class Attempts:
    """What the first, second … try of one and the same request gets; made by `attempts`."""

    steps: tuple[Any, ...]


Step = Any  # a text, Answer, ScriptedCall, list of ScriptedCall, ModelResponse, Exception or Attempts
Script = Callable[[Sequence[Message], Sequence[dict[str, Any]] | None], Step]


def call(name: str, args: dict[str, Any] | str | None = None, *, id: str | None = None) -> ScriptedCall:
    """A tool call for the script. A text as `args` is sent as it is, valid JSON or not."""
    return ScriptedCall(name, {} if args is None else args, id)


def answer(
    text: str | None = None,
    *calls: ScriptedCall,
    finish_reason: str | None = None,
    usage: Usage | None = None,
    cost: float | None = None,
    delay_s: float = 0.0,
    chunks: Sequence[str] | None = None,
    **extra: Any,
) -> Answer:
    """An answer with everything that a provider may give.

    Args:
        finish_reason: `stop`, or `tool_calls` where there are calls, if not given.
        delay_s: Seconds before it comes.
        chunks: The pieces in which `text` is streamed; by default its words.
        extra: More keys of the assistant message, such as `reasoning_content`.
    """
    return Answer(
        text=text,
        calls=calls,
        finish_reason=finish_reason,
        usage=usage or Usage(),
        cost=cost,
        delay_s=delay_s,
        chunks=None if chunks is None else tuple(chunks),
        extra=extra,
    )


def error(message: str, *, retryable: bool = False, retry_after_s: float | None = 0.0) -> ModelError:
    """A failing model call for the script; by default a retry follows at once."""
    return ModelError(message, error_type="ScriptedError", retryable=retryable, retry_after_s=retry_after_s)


def attempts(*steps: Step) -> Attempts:
    """Steps for the first, second … call with the same conversation: `attempts(error(...), "ok")`."""
    return Attempts(steps)


class ScriptedModel:
    """A model whose answers are given.

    Args:
        script: A list, one step per turn: which one is next is read off the conversation (how many
            assistant messages it has), so a run that is resumed in another process with a fresh
            `ScriptedModel` goes on where it was. Or a function of (messages, tools) that gives a step.
            A step is a text, `answer(...)`, `call(...)`, a list of calls, a `ModelResponse`, an
            exception to raise, or `attempts(...)`.
        name: The model's name in logs.

    `requests` holds what was asked: one dict per call with `messages`, `tools`, `response_format`.
    """

    def __init__(self, script: Sequence[Step] | Script, *, name: str = "scripted") -> None:
        self._script = script
        self.model = name
        self.requests: list[dict[str, Any]] = []
        self._tries: dict[int, int] = {}
        self._counted: tuple[int, Message | None, int, int] = (0, None, 0, 0)

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> ModelResponse:
        """The next answer, whole."""
        step, asked = await self._next(messages, tools, response_format)
        return step if isinstance(step, ModelResponse) else _response(step, asked)

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        response_format: dict[str, Any] | None = None,
    ) -> AsyncIterator[StreamChunk]:
        """The next answer, in pieces."""
        step, asked = await self._next(messages, tools, response_format)
        whole = step if isinstance(step, ModelResponse) else _response(step, asked)
        if reasoning := whole.message.get("reasoning_content"):
            yield StreamChunk(reasoning=reasoning)
        chunks = step.chunks if isinstance(step, Answer) else None
        for piece in chunks if chunks is not None else _words(whole.message.get("content")):
            yield StreamChunk(text=piece)
        yield StreamChunk(final=whole)

    async def _next(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        response_format: dict[str, Any] | None,
    ) -> tuple[Answer | ModelResponse, int]:
        self.requests.append({"messages": list(messages), "tools": tools, "response_format": response_format})
        turn, asked = self._count(messages)
        step = self._step(turn, messages, tools)
        if isinstance(step, Attempts):
            tried = self._tries.get(turn, 0)
            self._tries[turn] = tried + 1
            step = step.steps[min(tried, len(step.steps) - 1)]
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, ModelResponse):
            return step, asked
        whole = _as_answer(step)
        if whole.delay_s:
            await asyncio.sleep(whole.delay_s)
        return whole, asked

    def _count(self, messages: Sequence[Message]) -> tuple[int, int]:
        """The turns and calls so far; only what is new since the last look is counted."""
        length, last, turns, calls = self._counted
        if length > len(messages) or (length and messages[length - 1] is not last):
            length, turns, calls = 0, 0, 0
        for message in messages[length:]:
            turns += message.get("role") == "assistant"
            calls += len(raw_calls(message))
        self._counted = (len(messages), messages[-1] if messages else None, turns, calls)
        return turns, calls

    def _step(self, turn: int, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None) -> Step:
        if callable(self._script):
            return self._script(messages, tools)
        if turn >= len(self._script):
            raise ModelError(
                f"the script has {len(self._script)} answer(s); the conversation asks for number {turn + 1}",
                error_type="ScriptEnded",
            )
        return self._script[turn]


def _as_answer(step: Step) -> Answer:
    if isinstance(step, Answer):
        return step
    if isinstance(step, str):
        return Answer(text=step)
    calls = (step,) if isinstance(step, ScriptedCall) else tuple(step)
    return Answer(calls=tuple(c if isinstance(c, ScriptedCall) else ScriptedCall(*c) for c in calls))


def _response(step: Answer, asked: int) -> ModelResponse:
    calls = [
        (
            f"call_{asked + place}" if c.id is None else c.id,
            c.name,
            c.args if isinstance(c.args, str) else strictjson.dumps(c.args),
        )
        for place, c in enumerate(step.calls, 1)
    ]
    reason = step.finish_reason or ("tool_calls" if calls else "stop")
    message = {**assistant_message(step.text, calls), **step.extra}
    return ModelResponse(message=message, finish_reason=reason, usage=step.usage, cost=step.cost)


def _words(text: object) -> list[str]:
    if not isinstance(text, str) or not text:
        return []
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]
