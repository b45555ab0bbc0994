"""Who watches a run: called with its events, and never able to break it."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol, TypeVar, runtime_checkable

from agentor.engine.events import Event, RunStart
from agentor.engine.store.base import Store

Observer = Callable[[Event], None]
T = TypeVar("T")


class TracedSegment(Protocol):
    """One segment of a run, as a tracer follows it.

    `traceparent` is kept in the `run_start`: the caller's span as a W3C header, or the segment's own,
    which says whether its trace is sampled.
    """

    traceparent: str | None

    def __call__(self, event: Event) -> None:
        """An event was saved."""
        ...

    def use_span(self, seq: int, kind: str = "") -> AbstractContextManager[None]:
        """Entered around the work whose span the event `seq` opens, in its own task."""
        ...


@runtime_checkable
class Tracer(Protocol):
    """An observer that follows each segment from before its first event."""

    def segment(
        self, run_id: str, events: Sequence[Event], start: RunStart | None, store: Store | None
    ) -> TracedSegment:
        """A segment is about to begin.

        Args:
            events: The run's log so far.
            start: How it will begin; None for a fork that is only a copy.
            store: Where the run is saved; a tracer may note beside it what it has delivered.
        """
        ...


class Watch:
    """The observers of one segment; one that fails is warned about and left out from there on.

    Args:
        stream: Gets every event, also those that could not be saved: the run goes on.
        tracer: Gets what is saved.
    """

    def __init__(
        self,
        run_id: str,
        *,
        stream: Observer | None = None,
        tracer: Observer | Tracer | None = None,
        events: Sequence[Event] = (),
        start: RunStart | None = None,
        store: Store | None = None,
    ) -> None:
        self._run_id, self._stream = run_id, stream
        self._observer: Observer | None = None
        self._segment: TracedSegment | None = None
        self._unsaved: deque[Event] = deque()
        if isinstance(tracer, Tracer):
            self._segment = self._guarded(tracer.segment, run_id, events, start, store)
            self._observer = self._segment
        else:
            self._observer = tracer
        self.traceparent = None if self._segment is None else self._segment.traceparent

    def tell(self, event: Event) -> None:
        """An event happened; the tracer hears of it once it is saved."""
        if self._stream is not None and self._guarded(_told, self._stream, event) is None:
            self._stream = None
        if self._observer is not None:
            self._unsaved.append(event)

    def saved(self, upto: int) -> None:
        """The events up to this number are saved."""
        while self._unsaved and (self._unsaved[0].seq or 0) <= upto:
            event = self._unsaved.popleft()
            if self._observer is not None and self._guarded(_told, self._observer, event) is None:
                self._observer = self._segment = None

    @contextmanager
    def use_span(self, seq: int, kind: str = "") -> Iterator[None]:
        """Around the work whose span the event `seq` opens; leave it in the task that entered it."""
        around = None if self._segment is None else self._guarded(self._segment.use_span, seq, kind)
        if around is None or self._guarded(_entered, around) is None:
            self._segment = None
            yield
            return
        try:
            yield
        finally:
            self._guarded(around.__exit__, None, None, None)

    def _guarded(self, function: Callable[..., T], *args: object) -> T | None:
        try:
            return function(*args)
        except Exception as error:  # whoever watches a run must not be able to break it
            with suppress(RuntimeWarning):  # also where warnings are errors
                warnings.warn(
                    f"run {self._run_id!r}: an observer failed and is left out from here on: {error!r}",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return None


def _told(observer: Observer, event: Event) -> bool:
    observer(event)
    return True


def _entered(around: AbstractContextManager[None]) -> bool:
    around.__enter__()
    return True
