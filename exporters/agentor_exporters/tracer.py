"""`SpanTracer`: follows runs while they happen, and hands their spans to one target."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from agentor.engine.events import Event, Fork
from agentor.engine.lineage import split_fork
from agentor.engine.spans import AgentSpan, Place, Span, span_id
from agentor.engine.store.base import Store
from agentor.engine.store.names import encoded
from agentor.engine.trace import Projector
from agentor_exporters.attributes import Encoder, Record
from agentor_exporters.cursor import SUFFIX, Cursor, began, beside
from agentor_exporters.pipeline import CLOSE_S, LINGER_S, Pipeline
from agentor_exporters.target import Target

_HELD = 1000  # spans of a segment that wait for its end
_REMEMBERED = 4096  # runs whose spans may still wait to be delivered


class SpanTracer:
    """A tracer for `Agentor(tracer=...)`; its spans are computed from the events that were saved.

    Args:
        target: Where spans go.
        encoder: Makes of a span what the target takes.
        cursors: A folder for cursors, for stores that have none beside their logs.
        linger_s: Seconds that spans are gathered before they are sent.
    """

    def __init__(
        self,
        target: Target,
        encoder: Encoder,
        *,
        cursors: Path | str | None = None,
        linger_s: float = LINGER_S,
    ) -> None:
        self.target, self.encoder = target, encoder
        self._cursors = None if cursors is None else Path(cursors)
        self._pipeline = Pipeline(target, linger_s=linger_s)
        self._queued: OrderedDict[str, int] = OrderedDict()  # spans of a run that were handed on, by run id
        weakref.finalize(self, self._pipeline.let_end)

    def segment(self, run_id: str, events: Sequence[Event], store: Store | None) -> LiveSegment:
        """A segment is about to begin (see `agentor.engine.observer.Tracer`)."""
        return LiveSegment(self, run_id, events, store)

    def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Deliver what waits; False if some of it still does after this time."""
        return self._pipeline.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Deliver what waits and end the tracer's thread; False if some was not delivered.

        What was not is in the runs' logs: `agentor trace export` sends it.
        """
        return self._pipeline.close(timeout_s)

    # --- for its segments -----------------------------------------------------------------------

    def cursor(self, run_id: str, store: Store | None) -> Cursor:
        """Where the deliveries of a run are noted."""
        path = beside(store, run_id)
        if path is None and self._cursors is not None:
            path = self._cursors / f"{encoded(run_id)}{SUFFIX}"
        return Cursor(path, self.target.address)

    def caller(self) -> Place | None:
        """The span that is current where a segment begins."""
        return None

    def within(self, place: Place) -> AbstractContextManager[None]:
        """Around work whose span this will be."""
        return nullcontext()

    def measure(self, span: Span) -> None:
        """A span of a live run ended."""

    def handed_on(self, run_id: str, count: int | None = None) -> int:
        """How many of a run's spans were handed to the pipeline; with `count`, set it."""
        if count is not None:
            self._queued[run_id] = count
            self._queued.move_to_end(run_id)
            if len(self._queued) > _REMEMBERED:
                self._queued.popitem(last=False)
        return self._queued.get(run_id, 0)

    def forget(self, run_id: str) -> None:
        """Something of this run was dropped: only its cursor counts."""
        self._queued.pop(run_id, None)

    @property
    def put(self) -> Callable[[LiveSegment, Event], None]:
        return self._pipeline.put


class LiveSegment:
    """One segment: on the run's side it only passes events on; the rest happens on the pipeline's thread."""

    def __init__(self, tracer: SpanTracer, run_id: str, events: Sequence[Event], store: Store | None) -> None:
        self.lost = False
        self._tracer, self._run_id = tracer, run_id
        self._put = tracer.put
        copied, own = split_fork(events)
        self._projector = Projector(run_id, copied)
        self._past = [span for event in own for span in self._projector.feed(event)]
        self._began = began(events) if events else None
        self._new = not events
        self._first = len(self._past)  # spans before this number are of earlier segments
        self._cursor = tracer.cursor(run_id, store)
        self._next: int | None = None  # number of the next span to hand on; None until it is looked up
        self._held: list[Record] = []  # until the segment is over, for a target that wants it whole
        caller = tracer.caller()
        self.traceparent = None if caller is None else caller.traceparent
        seq = events[-1].seq if events else None
        place = self._projector.next_trace(0 if seq is None else seq + 1, self.traceparent)
        self._sampled = tracer.target.samples(place, caller)
        self._trace_id = place.trace_id

    def __call__(self, event: Event) -> None:
        self._put(self, event)

    def within(self, seq: int) -> AbstractContextManager[None]:
        """Around the work whose span the event `seq` opens."""
        return self._tracer.within(Place(self._trace_id, span_id(self._run_id, seq), self._sampled))

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
        due = [span for span in spans if span.number >= self._next]
        if due:
            self._next = due[-1].number + 1
            self._tracer.handed_on(self._run_id, self._next)
        made = [self._tracer.encoder.record(span) for span in due]
        if not self._tracer.target.whole_segments:
            return made
        self._held += made
        if len(self._held) < _HELD and not any(isinstance(record.span, AgentSpan) for record in made):
            return []
        made, self._held = self._held, []
        return made

    def _due(self) -> int:
        """The first span that nobody has: earlier processes may have died before they sent theirs."""
        if self._cursor.path is None:
            return self._first
        return max(self._cursor.read(self._began), self._tracer.handed_on(self._run_id))

    def lose(self) -> None:
        """Something of it was dropped: what was delivered stays noted as it is, so that it is sent later."""
        self.lost = True
        self._tracer.forget(self._run_id)

    def delivered(self, record: Record) -> None:
        """The target has this record and those before."""
        if not self.lost:
            self._cursor.write(self._began, record.span.number + 1)
