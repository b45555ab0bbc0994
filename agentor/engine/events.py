"""One frozen class per kind of event, and the JSON that each one is in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any  # events carry provider JSON

from agentor.engine.eventbase import Event as Event
from agentor.engine.eventbase import numbered as numbered
from agentor.engine.eventbase import register
from agentor.engine.messages import Message, Usage, block_text, parsed_arguments
from agentor.engine.words import INTERRUPTED

FORMAT = 1  # log version, in the first record; a higher one is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(Event):
    """A run, or a new segment of it (a resume, a fork's continuation, a follow-up), begins."""

    type: str = "run_start"
    agent: str | None = None
    model: str | None = None
    system: str | None = None  # goes to index 0 where the conversation has no system message
    messages: list[Message] = field(default_factory=list)  # only those that this segment adds
    format: int | None = None  # log version; in a run's first record
    engine: str | None = None  # version of agentor
    fingerprint: dict[str, Any] | None = None  # digests of instructions, of tools' and the output's schemas
    tools: dict[str, Any] | None = None  # what the model is told of each tool that the log lacks, by name
    output: dict[str, Any] | None = None  # the schema that answers must fit, where the log lacks it
    parent: dict[str, str] | None = None  # of a sub-agent's run: run_id and call_id that it serves
    of_fork: bool | None = None  # True: the fork itself goes on with it, right behind its marker
    stream: bool | None = None  # True: the model is asked to stream, from this segment on
    limits: dict[str, int] | None = None  # max_turns (of the whole run), max_tool_failures
    budget: dict[str, Any] | None = None  # from this segment on
    traceparent: str | None = None
    owner: str | None = None
    epoch: int | None = None
    metadata: dict[str, Any] | None = None
    trace_group_id: str | None = None
    trace_metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Event):
    """The model's whole answer is in, or its call failed for good (`error`).

    `text`, `calls`, `reasoning` and `rest` hold each part of the assistant message once; `message`
    is the whole. `sent` says what the model was sent: the number of messages and their chained
    SHA-256. `cost` is in US dollars; `elapsed` and `time_to_first_chunk` are seconds.
    """

    type: str = "generation"
    turn: int = 0
    model: str | None = None
    text: str | None = None
    reasoning: str | None = None
    calls: list[dict[str, Any]] | None = None
    rest: dict[str, Any] | None = None  # "message" in the log: every other key of the message
    usage: Usage | None = None
    cost: float | None = None
    finish_reason: str | None = None  # OpenAI's names: stop, tool_calls, length, content_filter
    raw_finish_reason: str | None = None  # the provider's own word, where it has another one
    response_id: str | None = None
    estimated: bool | None = None  # True: the provider gave no usage, it was counted for it
    left_out: dict[str, int] | None = None  # parts of other providers that the request went without
    params: dict[str, Any] | None = None  # None: as in the generation before
    sent: dict[str, Any] | None = None
    time_to_first_chunk: float | None = None
    elapsed: float | None = None
    error: str | None = None
    error_type: str | None = None
    request: tuple[list[Message], int] | None = field(default=None, compare=False, repr=False)

    @property
    def message(self) -> Message:
        """The assistant message as the model layer gave it, rebuilt exactly."""
        message: Message = {"role": "assistant"}
        if self.text is not None:
            message["content"] = self.text
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.rest:
            message.update(self.rest)
        if self.calls:
            message["tool_calls"] = self.calls
        return message

    @property
    def answer(self) -> str:
        """The text of the answer, of whichever shape; empty where there is none."""
        if self.text is not None:
            return self.text
        parts = self.message.get("content")
        return block_text(parts) if isinstance(parts, list) else ""

    @property
    def messages(self) -> list[Message]:
        """The list that the model was sent, system message included; a fresh list at each access.

        Raises:
            LookupError: the event was loaded without `agentor.engine.transcript.hydrate`.
        """
        if "messages" in self.extra:  # logs of agentor 0.1 hold the whole request
            return list(self.extra["messages"])
        if self.request is None:
            raise LookupError(
                "this generation does not know its request; pass the run's events through "
                "agentor.engine.transcript.hydrate(run_id, events)"
            )
        conversation, length = self.request
        return conversation[:length]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Event):
    """A model call failed and will be tried again after `wait_s` seconds, or by another model."""

    type: str = "retry"
    turn: int = 0
    attempt: int = 1  # the attempt that failed, from 1
    error: str | None = None
    error_type: str | None = None
    wait_s: float | None = None
    model: str | None = None  # the one that failed
    elapsed: float | None = None  # seconds that the attempt took
    fallback: str | None = None  # the model that is asked from here on


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Event):
    """A tool call starts; written before the tool's body runs."""

    type: str = "tool_call"
    name: str = ""
    call_id: str = ""
    turn: int = 0
    index: int = 0
    attempt: int = 1
    edited_args: dict[str, Any] | None = None  # "args" in the log: only where they differ
    child: str | None = None  # the run of the sub-agent that this call is
    arguments: str | None = field(default=None, compare=False, repr=False)

    @property
    def args(self) -> dict[str, Any] | None:
        """The arguments that the tool gets; None where the model's text is no JSON object."""
        if self.edited_args is not None or self.arguments is None:
            return self.edited_args
        parsed = parsed_arguments(self.arguments)
        return parsed if isinstance(parsed, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(Event):
    """How a sub-agent's run stands, each time that it stops; the counts are of all of it so far."""

    type: str = "child"
    child: str = ""  # its run id
    call_id: str = ""  # of the tool call that it is
    turn: int = 0
    index: int = 0
    status: str = ""  # as of a `run_end`
    error: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    turns: int = 0  # answers of models
    tool_calls: int = 0  # starts of tools
    active_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Event):
    """A tool call ended. `result` is the text that the model is shown; `error` says what failed."""

    type: str = "tool_result"
    name: str = ""
    call_id: str = ""
    turn: int = 0
    index: int = 0
    result: str | None = None  # None: the model is shown the error
    error: str | None = None
    error_type: str | None = None
    elapsed: float | None = None
    by: str | None = None  # "decision" where a person said what happened, "recorded" from a fork's parent
    taken_from: int | None = None  # the seq of the parent's result

    @property
    def content(self) -> str:
        """What the model is shown."""
        if self.result is not None:
            return self.result
        return f"Error: {self.error}" if self.error is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest(Event):
    """A call waits for a person before it may start."""

    type: str = "approval_request"
    name: str = ""
    call_id: str = ""
    turn: int = 0
    index: int = 0
    hash: str = ""  # of the tool and its arguments: what the person's answer is about
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(Event):
    """Somebody has decided about a call: whether it may start, or whether it happened.

    `edited_args` is "args" in the log: what an approved call runs with instead of the model's
    arguments. `expires_at` is in epoch seconds.
    """

    type: str = "approval"
    call_id: str = ""
    turn: int = 0
    index: int = 0
    decision: str = ""  # approve, deny, happened, not_happened
    hash: str = ""
    by: str | None = None
    reason: str | None = None
    edited_args: dict[str, Any] | None = None
    result: str | None = None  # of a call that happened
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(Event):
    """A resume drops the unanswered generation at seq `to`; the same request is sent again."""

    type: str = "rewind"
    to: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Event):
    """The conversation was replaced by `messages` (compaction, trimming)."""

    type: str = "context"
    messages: list[Message] = field(default_factory=list)
    usage: Usage | None = None  # what it took to make them
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Event):
    """Last record of a fork's copied part.

    `parent_trace` is the root span of the parent's trace, as a W3C header; `family` the run that all
    these forks come from, where that is not the parent. `calls` says, for each call that is open at
    the cut, how far the parent went with it behind the cut: "done" (with a result) or "started".
    `edits` are what the fork changes in the copied part: each has `of`, the seq of the changed record,
    and a `call_id` with its `result`, or the `place` of a message, from 0, with the `message`. `reuse`: calls
    that the parent has made too get its results.
    """

    type: str = "fork"
    forked_from: str = ""
    parent_seq: int | None = None
    parent_trace: str | None = None
    family: str | None = None
    calls: dict[str, str] | None = None
    edits: list[dict[str, Any]] | None = None
    reuse: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(Event):
    """A segment was cut off: timeout, cancel, Ctrl-C, abandoned stream."""

    type: str = "interrupted"
    reason: str | None = None
    status: str = INTERRUPTED  # or CANCELLED: somebody wanted it so
    in_doubt: list[str] = field(default_factory=list)  # call ids that started and have no result
    abandoned: bool | None = None  # True: no worker had the run any more


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(Event):
    """A segment is over; usage, cost and turns are those of the whole run."""

    type: str = "run_end"
    status: str = ""
    text: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    turns: int | None = None
    error: str | None = None
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """A piece of a streamed answer; streamed to the caller, never stored."""

    type: str = "text_delta"
    turn: int = 0
    text: str = ""
    reasoning: str = ""


register(
    RunStart,
    Generation,
    Retry,
    ToolCall,
    Child,
    ToolResult,
    ApprovalRequest,
    Approval,
    Rewind,
    Context,
    Fork,
    Interrupted,
    RunEnd,
    TextDelta,
)
