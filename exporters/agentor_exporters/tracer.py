"""`SpanTracer`: follows runs while they happen, and hands their spans to one target."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from agentor.engine.events import Event, Fork, Interrupted, RunEnd, RunStart
from agentor.engine.lineage import root_of
from agentor.engine.spans import AgentSpan, Span, SpanContext, span_id
from agentor.engine.store.base import Store
from agentor.engine.trace import projected
from agentor_exporters.attributes import Encoder, Record
from agentor_exporters.cursor import Cursor, began, cursor_of
from agentor_exporters.handover import Handover
from agentor_exporters.pipeline import BATCH_BYTES, CLOSE_S, LINGER_S, Pipeline
from agentor_exporters.target import Target

_HELD_BYTES = BATCH_BYTES  # of a segment's spans that wait for its end: one request


class SpanTracer:
    """A tracer for `Agentor(tracer=...)`; its spans are computed from the events that were saved.

    Args:
        target: Where spans go.
        encoder: Makes of a span what the target takes.
        cursors: A folder for cursors, for stores that have none beside their logs.
        linger_s: Seconds that spans are gathered before they are sent.
        shared: It is one for the process: `close` delivers what waits, and others go on with it.
    """

    def __init__(
        self,
        target: Target,
        encoder: Encoder,
        *,
        cursors: Path | str | None = None,
        linger_s: float = LINGER_S,
        shared: bool = False,
    ) -> None:
        self.target, self.encoder = target, encoder
        self._cursors = cursors
        self._shared = shared
        self.handover = Handover()
        self._pipeline = Pipeline(target, linger_s=linger_s, after_fork=self.handover.clear)
        weakref.finalize(self, self._pipeline.request_close)

    def segment(
        self, run_id: str, events: Sequence[Event], start: RunStart | None, store: Store | None
    ) -> LiveSegment:
        """A segment is about to begin (see `agentor.engine.observer.Tracer`)."""
        return LiveSegment(self, self._pipeline, run_id, events, start, store)

    def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Deliver what waits; False if some of it still does after this time."""
        return self._pipeline.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Deliver what waits and end the tracer's thread; False if some was not delivered.

        What was not is in the runs' logs: `agentor trace export` sends it.
        """
        return self._pipeline.flush(timeout_s) if self._shared else self._pipeline.close(timeout_s)

    # --- for its segments -----------------------------------------------------------------------

    def cursor(self, run_id: str, store: Store | None) -> Cursor:
        """Where the deliveries of a run are noted."""
        return cursor_of(store, run_id, self._cursors, self.target.identity)

    def wanted(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """Whether a new trace is recorded."""
        return self.target.samples(context, caller)

    def caller(self) -> SpanContext | None:
        """The span that is current where a segment begins."""
        return None

    def use_span(self, context: SpanContext) -> AbstractContextManager[None]:
        """Around work whose span this will be."""
        return nullcontext()

    def measure(self, span: Span) -> None:
        """A span of a live run ended."""


class LiveSegment:
    """One segment: on the run's side it only passes events on; the rest happens on the pipeline's thread."""

    def __init__(
        self,
        tracer: SpanTracer,
        pipeline: Pipeline,
        run_id: str,
        events: Sequence[Event],
        start: RunStart | None,
        store: Store | None,
    ) -> None:
        self.lost = False
        self._tracer, self._pipeline, self._run_id = tracer, pipeline, run_id
        self._nameless = store is None  # nobody can go on with this run: its id names no conversation
        self._projector, self._past = projected(run_id, events)
        self._sent_before = _sent_before(self._past, events)
        self._began = began(events) if events else None
        self._new = not events
        self._cursor = tracer.cursor(run_id, store)
        self._next: int | None = None  # number of the next span to hand on; None until it is looked up
        self._held_bytes = 0
        self._held: list[Record] = []  # until the segment is over, for a target that wants it whole
        self.traceparent, self._context = self._place(events, start)
        self._sampled = self._context.sampled

    def _place(self, events: Sequence[Event], start: RunStart | None) -> tuple[str | None, SpanContext]:
        """What the `run_start` is to keep, and where the segment is.

        The trace's root decides for all segments, in all processes, whether it is recorded.
        """
        if start is None:
            root = root_of(self._run_id, events)
            return None, replace(root, sampled=self._tracer.wanted(root, None))
        caller = self._tracer.caller() or SpanContext.parse(start.traceparent)  # a sub-agent has one
        header = None if caller is None else caller.traceparent
        after = self._projector.after(replace(start, traceparent=header))
        context = after.last
        assert context is not None
        if after.segments > 1:  # the caller is only linked to
            wanted = context.sampled if after.is_decided else self._tracer.wanted(context, None)
            return header, replace(context, sampled=wanted)
        context = replace(context, sampled=self._tracer.wanted(context, caller))
        decided = context if caller is None else replace(caller, sampled=context.sampled)
        return decided.traceparent, context

    def __call__(self, event: Event) -> None:
        self._pipeline.put(self, event)

    def use_span(self, seq: int, kind: str = "") -> AbstractContextManager[None]:
        """Around the work whose span the event `seq` opens."""
        own = span_id(self._run_id, seq, kind)
        return self._tracer.use_span(replace(self._context, span_id=own))

    # --- on the pipeline's thread ---------------------------------------------------------------

    def records(self, event: Event) -> list[Record]:
        """What is to be sent now that this event was saved."""
        if self._new:
            self._began, self._new = event.at, False
        spans = self._projector.close() if isinstance(event, Fork) else self._projector.feed(event)
        for span in spans:
            self._tracer.measure(span)
        if not self._sampled:
            return []
        if self._next is None:
            self._next = self._due()
            spans = [*self._past, *spans]
            self._past = []
        due = [span for span in spans if span.number >= (self._next or 0)]
        if due:
            self._next = due[-1].number + 1
            self._tracer.handover.handed(self._key, due[0].number, self._next)
        return self._whole([self._tracer.encoder.record(self._named(span)) for span in due])

    @property
    def _key(self) -> tuple[Path | None, float | None, str]:
        """This run among all of this process: an id may be used again, elsewhere or later."""
        return self._cursor.path, self._began, self._run_id

    def _named(self, span: Span) -> Span:
        nameless = self._nameless and span.conversation == self._run_id
        return replace(span, conversation=None) if nameless else span

    def _whole(self, made: list[Record]) -> list[Record]:
        """The records, or none yet for a target that wants the segment as a whole."""
        if not self._tracer.target.whole_segments:
            return made
        self._held += made
        self._held_bytes += sum(record.size_bytes for record in made)
        over = any(isinstance(record.span, AgentSpan) for record in made)
        if not over and self._held_bytes < _HELD_BYTES:
            return []
        made, self._held, self._held_bytes = self._held, [], 0
        return made

    def _due(self) -> int:
        """The first span that nobody has: earlier processes may have died before they sent theirs."""
        handed = self._tracer.handover.next_of(self._key)
        if self._cursor.path is None:
            return max(self._sent_before, handed)
        return max(self._cursor.read(self._began), handed)

    def lose(self, record: Record | None = None) -> None:
        """This record, or the rest of the segment, was dropped: a later export sends it from the log."""
        if record is None:
            self.lost = True
        number = self._projector.spans if record is None else record.span.number
        self._tracer.handover.dropped(self._key, number)

    def delivered(self, record: Record) -> None:
        """The target has this record and those before, but for what was dropped."""
        upto = self._tracer.handover.complete(self._key, record.span.number + 1)
        self._cursor.write(self._began, upto)


def _sent_before(past: Sequence[Span], events: Sequence[Event]) -> int:
    """Without a cursor: how many spans were surely handed on, those of segments that came to their end.

    What a dead process had is sent again as a whole: it may have died with it.
    """
    if events and isinstance(events[-1], RunEnd | Interrupted):
        return len(past)
    ends = [span.number for span in past if isinstance(span, AgentSpan)]
    return ends[-1] + 1 if ends else 0
