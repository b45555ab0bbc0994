"""What a trace is made of: finished spans and their ids. Nothing here knows OpenTelemetry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any  # request parameters

from agentor.engine.events import Fork, Generation, Interrupted, Retry, RunEnd, RunStart, ToolCall, ToolResult
from agentor.engine.messages import Message, Usage

MODEL = "model"  # the kind of a model call's span id


@dataclass(frozen=True, slots=True)
class SpanContext:
    """A span's ids, in hex, and whether its trace is recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The W3C header of this span (Trace Context, 3.2)."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, traceparent: str | None) -> SpanContext | None:
        """The span that a W3C header names; None where it names none."""
        parts = (traceparent or "").split("-")
        if len(parts) < 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
            return None
        try:
            if not int(parts[1], 16) or not int(parts[2], 16):
                return None
            return cls(parts[1].lower(), parts[2].lower(), bool(int(parts[3], 16) & 1))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Link:
    """Another span that this one belongs to without being its child: `resume`, `fork` or `caller`."""

    context: SpanContext
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Finished work. `number` counts the spans of a run in the order in which they end, from 0.

    Attributes:
        seq: Number of the event that opened it; its id is made of the run's id and this.
        conversation: The `trace_group_id` that was given, else the run that its family of forks began
            with; None for a run without a store, which nobody can go on with.
        started_at, ended_at: Epoch seconds.
        error_type: Set where it failed; `error`, the message, may quote the conversation.
    """

    run_id: str
    number: int
    context: SpanContext
    parent: SpanContext | None
    seq: int
    agent: str | None
    conversation: str | None
    segment: int
    started_at: float
    ended_at: float
    error_type: str | None = None
    error: str | None = None
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpan(Span):
    """What one process did of a run: a segment.

    Attributes:
        start: The `run_start`; the `fork` marker for a copy that nothing was added to; the `run_end` of a
            run that was not started again, since it never came to anything.
        end: None where the process died.
        fork: The marker, on the first segment of a fork.
        during: What a dead process was at: `generation`, `tool:<name>` or `between steps`.
        turns, calls, usage: Of this segment alone.
    """

    start: RunStart | Fork | RunEnd
    end: RunEnd | Interrupted | None = None
    fork: Fork | None = None
    status: str
    during: str | None = None
    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpan(Span):
    """One model's answer to a request, or its failure for good, with the attempts that were repeated.

    Attributes:
        model: The model that was asked.
        generation: None where another model was asked instead.
        new: The messages of the request that no earlier span of this trace shows; they begin at
            index `offset` of it.
        shown: For results among them, by call id, the tool span that shows the text.
        params: The settings that the model was asked with.
    """

    turn: int
    model: str | None
    generation: Generation | None
    retries: tuple[Retry, ...] = ()
    offset: int = 0
    new: tuple[Message, ...] = ()
    shown: dict[str, ToolSpan] = field(default_factory=dict)
    params: dict[str, Any] | None = None
    streams: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpan(Span):
    """One start of a tool call; `result` is None where the process died."""

    call: ToolCall
    result: ToolResult | None


def trace_id(run_id: str, seq: int = 0) -> str:
    """The trace of a run that began without a caller's: 32 hex digits.

    The run's id itself would not do: samplers by ratio look at the low 64 bits, of which a UUID of
    version 4 fixes the two highest (RFC 9562, 5.4).

    Args:
        seq: That of the segment which a further trace begins with; 0 for the first.
    """
    name = run_id if seq == 0 else f"{run_id}\0{seq}"
    return _hashed("trace", name, 16)


def span_id(run_id: str, seq: int, kind: str = "") -> str:
    """The span that the event with this number opened: 16 hex digits.

    Args:
        kind: "model" for a model call. Its id is given out before it has an event, and after a crash
            another event may have that number.
    """
    return _hashed("span", "\0".join([run_id, str(seq), *([kind] if kind else [])]), 8)


def _hashed(kind: str, name: str, size: int) -> str:
    digest = hashlib.sha256(f"agentor\0{kind}\0{name}".encode("utf-8", "surrogatepass")).digest()[:size]
    return (digest if any(digest) else (1).to_bytes(size)).hex()  # ids of zeros are invalid
