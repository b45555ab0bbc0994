"""Who watches a run: called with each saved event, and never able to break it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol, TypeVar, runtime_checkable

from agentor.engine.events import Event
from agentor.engine.store.base import Store

Observer = Callable[[Event], None]
T = TypeVar("T")


class TracedSegment(Protocol):
    """One segment of a run, as a tracer follows it.

    `traceparent` is the caller's span as a W3C header, if there is one; it is kept in the `run_start`.
    """

    traceparent: str | None

    def __call__(self, event: Event) -> None:
        """An event was saved."""
        ...

    def within(self, seq: int) -> AbstractContextManager[None]:
        """Entered around the work whose span the event `seq` opens, in its own task."""
        ...


@runtime_checkable
class Tracer(Protocol):
    """An observer that follows each segment from before its first event."""

    def segment(self, run_id: str, events: Sequence[Event], store: Store | None) -> TracedSegment:
        """A segment is about to begin.

        Args:
            events: The run's log so far.
            store: Where the run is saved; a tracer may note beside it what it has delivered.
        """
        ...


class Watch:
    """The observers of one segment; one that fails is warned about and left out from there on."""

    def __init__(
        self,
        run_id: str,
        observers: Sequence[Observer | Tracer] = (),
        events: Sequence[Event] = (),
        store: Store | None = None,
    ) -> None:
        self._run_id = run_id
        self._observers: list[Observer] = []
        self._segments: list[TracedSegment] = []
        self.traceparent: str | None = None
        for observer in observers:
            if not isinstance(observer, Tracer):
                self._observers.append(observer)
            elif (segment := self._guarded(observer.segment, run_id, events, store)) is not None:
                self._observers.append(segment)
                self._segments.append(segment)
                self.traceparent = segment.traceparent or self.traceparent

    def tell(self, event: Event) -> None:
        """Give a saved event to all."""
        for observer in tuple(self._observers):
            if self._guarded(_told, observer, event) is None:
                self._observers.remove(observer)

    @contextmanager
    def within(self, seq: int) -> Iterator[None]:
        """Around the work whose span the event `seq` opens; leave it in the task that entered it."""
        with ExitStack() as stack:
            for segment in self._segments:
                around = self._guarded(segment.within, seq)
                if around is not None:
                    stack.enter_context(around)
            yield

    def _guarded(self, function: Callable[..., T], *args: object) -> T | None:
        try:
            return function(*args)
        except Exception as error:  # whoever watches a run must not be able to break it
            warnings.warn(
                f"run {self._run_id!r}: an observer failed and is left out from here on: {error!r}",
                RuntimeWarning,
                stacklevel=4,
            )
            return None


def _told(observer: Observer, event: Event) -> bool:
    observer(event)
    return True
