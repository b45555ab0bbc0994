"""What a fork's log says of the runs that it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from agentor.engine.events import Event, Fork, Interrupted, RunEnd, RunStart
from agentor.engine.spans import Place, span_id, trace_id


def split_fork(events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    """A log's copied part, with the marker that ends it, and the run's own events."""
    marks = [place for place, event in enumerate(events) if isinstance(event, Fork)]
    cut = marks[-1] + 1 if marks else 0
    return events[:cut], events[cut:]


def family(run_id: str, copied: Sequence[Event]) -> tuple[str, Place | None, RunEnd | None]:
    """The run that a family began with, the root of a fork's parent, and how the parent had ended.

    Args:
        copied: The records up to the run's own marker, or none for a run that is no fork.
    """
    oldest, parent, root, ended = run_id, None, None, None
    begun: tuple[int, str | None] | None = None  # where the run that the records are of has its root
    copy = False  # it may be a copy that stood by itself, with its marker as root
    for event in copied:
        if isinstance(event, RunStart):
            if begun is None or (copy and event.epoch == 1):
                begun = event.seq or 0, event.traceparent
            ended, copy = None, False
        elif isinstance(event, RunEnd):
            ended = event
        elif isinstance(event, Interrupted):
            ended = None
        elif isinstance(event, Fork):
            oldest = event.forked_from if parent is None else oldest
            parent = event.forked_from
            root = _root_of(parent, begun or (0, None))
            copy = ended is not None
            begun = (event.seq or 0, None) if copy else None
    return oldest, root, ended


def _root_of(run_id: str, begun: tuple[int, str | None]) -> Place:
    seq, traceparent = begun
    caller = Place.parse(traceparent)
    return Place(trace_id(run_id) if caller is None else caller.trace_id, span_id(run_id, seq))
