"""A run's trace: finished spans, computed from its log alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any  # request parameters

from agentor.engine.events import (
    Context,
    Event,
    Fork,
    Generation,
    Interrupted,
    Retry,
    Rewind,
    RunEnd,
    RunStart,
    ToolCall,
    ToolResult,
)
from agentor.engine.lineage import ended, family_of, parent_root, split_fork, stands_alone
from agentor.engine.messages import Message
from agentor.engine.segment import Segment
from agentor.engine.spans import (
    MODEL,
    AgentSpan,
    Link,
    ModelSpan,
    Span,
    SpanContext,
    ToolSpan,
    span_id,
    trace_id,
)
from agentor.engine.words import CANCELLED, INTERRUPTED

MAX_SPANS = 1500  # of one trace: a segment that begins behind them begins a trace of its own
# How a run may end without having failed; any other end is the error type of its span.
_FINE = ("completed", "paused", "in_doubt")


def project(run_id: str, events: Iterable[Event]) -> list[Span]:
    """The spans of a run, in the order in which they ended.

    A segment without an end counts as dead at its last event: give the log of a run that nobody works
    on. A span that ended is the same for every longer log.

    Args:
        events: The log, hydrated (see `agentor.engine.transcript.hydrate`).
    """
    projector, spans = projected(run_id, list(events))
    return [*spans, *projector.close()]


def projected(run_id: str, events: Sequence[Event]) -> tuple[Projector, list[Span]]:
    """A projector that has read a log, and the spans that ended in it."""
    copied, own = split_fork(events)
    projector = Projector(run_id, copied)
    return projector, [span for event in own for span in projector.feed(event)]


class Projector:
    """The fold from a run's events to its spans; it keeps what is open, and no span that ended.

    Args:
        copied: What a fork has from its parents, up to its marker.
    """

    def __init__(self, run_id: str, copied: Sequence[Event] = ()) -> None:
        self.run_id = run_id
        self.spans = 0  # that ended so far
        self._marker = copied[-1] if copied and isinstance(copied[-1], Fork) else None
        self._conversation = family_of(run_id, copied)
        self._copy_of = ended(copied)  # the end of a finished parent
        self._in_trace = 0  # spans that ended in the trace of the last segment
        self.segments = 0  # that began so far
        self.is_decided = False  # the log says whether the trace is sampled
        self._root: SpanContext | None = None  # of the trace that the last segment is in
        self.last: SpanContext | None = None  # the last segment
        self._open: Segment | None = None
        self._agent: str | None = None
        self._event: Event | None = None  # the last one
        self._at = 0.0  # when it happened
        self._calls: list[ToolCall] = []  # that started and have no result
        self._retries: list[Retry] = []  # since the last answer
        self._shown: dict[str, ToolSpan] = {}  # results since the last answer, by call id
        self._known = 0  # messages of the conversation that a span of this trace shows
        self._system = False  # the conversation has a system message
        self._model: str | None = None  # that a segment began with
        self._fallback: str | None = None
        self._params: dict[str, Any] | None = None
        self._streams = False
        for event in copied:
            self._note(event)
        self._known = 0  # a fork's trace is its own: its first request is shown whole

    def after(self, start: RunStart) -> Projector:
        """The projector once this event has begun a segment; this one does not change."""
        twin = copy(self)
        twin._calls, twin._retries = list(self._calls), list(self._retries)
        twin.feed(start)
        return twin

    def feed(self, event: Event) -> list[Span]:
        """The spans that end with this event, which are final."""
        is_poisoned = isinstance(event, RunEnd) and event.status == "poisoned"
        spans = self._dead() if isinstance(event, RunStart) or is_poisoned else []
        self._at = self._at if event.ended_at is None else event.ended_at
        if isinstance(event, RunStart):
            spans += self._copy(event)
            self._begin(event)
        else:
            spans += self._ended(event)
        self._note(event)
        self._event = event
        return spans

    def close(self) -> list[Span]:
        """The spans of what nobody finished, ended at the last event; the projector is used up."""
        return [*self._dead(), *self._copy(None)]

    # --- segments -------------------------------------------------------------------------------

    def _placed(
        self, seq: int, traceparent: str | None
    ) -> tuple[SpanContext, SpanContext | None, tuple[Link, ...]]:
        """The context of a new segment, its parent and its links."""
        own = span_id(self.run_id, seq)
        caller = SpanContext.parse(traceparent)
        sampled = caller is None or caller.sampled
        if caller is not None and caller.span_id == own:  # its own: the sampler's word on a new trace
            caller = None
        resumed = () if self.last is None else (Link(self.last, "resume"),)
        called = () if caller is None else (Link(caller, "caller"),)
        if self._root is None:
            forked = () if self._marker is None else (Link(parent_root(self._marker), "fork"),)
            if caller is not None:
                return SpanContext(caller.trace_id, own, caller.sampled), caller, forked
            return SpanContext(trace_id(self.run_id), own, sampled), None, forked
        if self._in_trace >= MAX_SPANS:
            further = SpanContext(trace_id(self.run_id, seq), own, self._root.sampled)
            return further, None, resumed + called
        return SpanContext(self._root.trace_id, own, self._root.sampled), self._root, resumed + called

    def _begin(self, event: RunStart) -> None:
        place, parent, links = self._placed(event.seq or 0, event.traceparent)
        if self._root is None or place.trace_id != self._root.trace_id:
            self._root, self._in_trace = place, 0
            self.is_decided = self.is_decided or event.traceparent is not None
        fork = self._marker if self.segments == 0 else None
        self._agent = event.agent or self._agent
        self._open = Segment(event, self._at, place, parent, links, self.segments, fork)
        self.last = place
        self.segments += 1

    def _copy(self, start: RunStart | None) -> list[Span]:
        """The root of a fork that is only a copy of a finished run."""
        marker, end = self._marker, self._copy_of
        if marker is None or end is None or self.segments or not stands_alone(end, start):
            return []
        place, parent, links = self._placed(marker.seq or 0, None)
        self._root = self.last = place
        self.segments += 1
        at = marker.at or 0.0
        span = AgentSpan(
            **self._common(place, parent, marker.seq or 0, at, at, links=links),
            start=marker,
            end=end,
            fork=marker,
            status=end.status,
        )
        return [span]

    def _dead(self) -> list[Span]:
        """What the segment that is still open left behind, ended at the last event."""
        if self._open is None:
            return []
        during = self._during()
        return [*self._left(), self._segment_span(self._open, None, INTERRUPTED, INTERRUPTED, None, during)]

    def _during(self) -> str:
        if self._calls:
            return f"tool:{self._calls[-1].name}"
        asked = isinstance(self._event, RunStart | ToolResult | Retry | Rewind | Context)
        return "generation" if asked else "between steps"

    def _left(self) -> list[Span]:
        """Spans of the calls, of a model or of tools, that ended without an outcome."""
        spans: list[Span] = []
        if self._retries:
            spans.append(self._model_span(None, INTERRUPTED, None))
        for call in self._calls:
            spans.append(self._tool_span(call, None))
        self._calls = []
        return spans

    def _segment_span(
        self,
        segment: Segment,
        end: RunEnd | Interrupted | None,
        status: str,
        error_type: str | None,
        error: str | None,
        during: str | None = None,
    ) -> AgentSpan:
        self._open = None
        seq = segment.start.seq or 0
        common = self._common(segment.context, segment.parent, seq, segment.at, self._at, links=segment.links)
        return AgentSpan(
            **{**common, "segment": segment.index},
            error_type=error_type,
            error=error,
            start=segment.start,
            end=end,
            fork=segment.fork,
            status=status,
            during=during,
            turns=segment.turns,
            calls=segment.calls,
            usage=segment.usage,
        )

    def _common(
        self,
        place: SpanContext,
        parent: SpanContext | None,
        seq: int,
        started_at: float,
        ended_at: float,
        links: tuple[Link, ...] = (),
    ) -> dict[str, Any]:
        """The fields that every span has; its number is given here."""
        number = self.spans
        self.spans += 1
        self._in_trace += 1
        return {
            "run_id": self.run_id,
            "number": number,
            "context": place,
            "parent": parent,
            "seq": seq,
            "agent": self._agent,
            "conversation": self._conversation,
            "segment": max(self.segments - 1, 0),
            "started_at": started_at,
            "ended_at": max(started_at, ended_at),  # clocks may be set back between two events
            "links": links,
        }

    # --- what ends ------------------------------------------------------------------------------

    def _ended(self, event: Event) -> list[Span]:
        segment = self._open
        if isinstance(event, Generation):
            if segment is not None:
                segment.turns += event.error is None
                segment.usage = segment.usage + event.usage if event.usage else segment.usage
            return [
                self._model_span(event, event.error_type if event.error is not None else None, event.error)
            ]
        if isinstance(event, Retry):
            self._retries.append(event)
            return [] if event.fallback is None else [self._model_span(None, event.error_type, event.error)]
        if isinstance(event, ToolCall):
            self._calls.append(event)
            if segment is not None:
                segment.calls += 1
        elif isinstance(event, ToolResult):
            if (call := self._take(event)) is not None:
                return [self._tool_span(call, event)]
        elif isinstance(event, RunEnd | Interrupted):
            return self._closed(event)
        return []

    def _closed(self, event: RunEnd | Interrupted) -> list[Span]:
        if isinstance(event, Interrupted):
            status = event.status
            error_type: str | None = status
            error = event.reason
        else:
            failed = event.status not in _FINE
            status, error = event.status, event.error if failed else None
            error_type = (event.error_type or event.status) if failed else None
        left = self._left()
        if self._open is not None:
            return [*left, self._segment_span(self._open, event, status, error_type, error)]
        if isinstance(event, Interrupted):
            return left
        place, parent, links = self._placed(event.seq or 0, None)
        self._root, self.last = self._root or place, place
        self.segments += 1
        common = self._common(place, parent, event.seq or 0, self._at, self._at, links=links)
        common |= {"error_type": error_type, "error": error}
        return [*left, AgentSpan(**common, start=event, end=event, status=status)]

    def _child(self, seq: int, kind: str = "") -> tuple[SpanContext, SpanContext | None]:
        parent, own = self.last, span_id(self.run_id, seq, kind)
        if parent is None:  # a log without a beginning
            return SpanContext(trace_id(self.run_id), own), None
        return SpanContext(parent.trace_id, own, parent.sampled), parent

    def _model_span(self, event: Generation | None, error_type: str | None, error: str | None) -> ModelSpan:
        attempts, self._retries = self._retries, []
        first = attempts[0] if attempts else event
        assert first is not None
        place, parent = self._child(first.seq or 0, MODEL)
        began = self._open.at if self._open is not None else 0.0
        started_at = min(max(first.started_at or began, began), self._at)
        new, offset = ((), self._known) if event is None else self._delta(event)
        failed = error_type or (None if error is None else "error")
        turn = event.turn if event is not None else attempts[0].turn
        model = self._fallback or self._model
        if event is None and attempts[-1].model is not None:
            model = attempts[-1].model
        return ModelSpan(
            **self._common(place, parent, first.seq or 0, started_at, self._at),
            error_type=failed,
            error=error,
            turn=turn,
            model=model,
            generation=event,
            retries=tuple(attempts),
            offset=offset,
            new=new,
            shown={} if event is None else self._shown_in(new),
            params=event.params if event is not None and event.params is not None else self._params,
            streams=self._streams,
        )

    def _delta(self, event: Generation) -> tuple[tuple[Message, ...], int]:
        """The messages of the request that no span shows yet, and where they begin in it."""
        whole, length = event.request or (event.extra.get("messages") or [], None)
        length = len(whole) if length is None else length
        offset = min(self._known, length)
        return tuple(whole[offset:length]), offset

    def _shown_in(self, messages: tuple[Message, ...]) -> dict[str, ToolSpan]:
        ids = [m.get("tool_call_id") for m in messages if m.get("role") == "tool"]
        return {i: self._shown[i] for i in ids if i in self._shown}

    def _take(self, result: ToolResult) -> ToolCall | None:
        """The start that this result belongs to; logs of agentor 0.1 have ids that stand twice."""
        by_id = [c for c in self._calls if c.call_id == result.call_id and c.turn == result.turn]
        found = next((c for c in by_id if c.index == result.index), by_id[0] if by_id else None)
        if found is not None:
            self._calls.remove(found)
        return found

    def _tool_span(self, call: ToolCall, result: ToolResult | None) -> ToolSpan:
        place, parent = self._child(call.seq or 0)
        started_at = call.at if call.at is not None else self._at
        failed: str | None = INTERRUPTED
        error = None
        if result is not None:
            failed, error = (result.error_type or "error") if result.error is not None else None, result.error
        span = ToolSpan(
            **self._common(place, parent, call.seq or 0, started_at, self._at),
            error_type=failed,
            error=error,
            call=call,
            result=result,
        )
        if result is not None:
            self._shown[result.call_id] = span
        return span

    # --- what later spans need to know ----------------------------------------------------------

    def _note(self, event: Event) -> None:
        if isinstance(event, RunStart):
            self._model = event.model or self._model
            self._conversation = event.trace_group_id or self._conversation
            self._streams = event.stream or self._streams
            self._system = self._system or _has_system(event.messages)
            if event.messages:
                self._fallback = None
            if event.system is not None and not self._system:
                self._system = True
                self._known += 1  # it stands before all others from here on; the segment shows it
        elif isinstance(event, Retry):
            self._fallback = event.fallback or self._fallback
        elif isinstance(event, Generation):
            self._params = event.params if event.params is not None else self._params
            if event.error is not None and event.error_type != CANCELLED:
                self._fallback = None
            length = event.request[1] if event.request else len(event.extra.get("messages") or [])
            self._known = length + (event.error is None)
            self._shown = {}
        elif isinstance(event, Rewind):
            self._known = max(self._known - 1, 0)  # the answer is taken back
        elif isinstance(event, Context):
            self._known, self._system = 0, _has_system(event.messages)


def _has_system(messages: list[Message]) -> bool:
    return any(m.get("role") == "system" for m in messages)
