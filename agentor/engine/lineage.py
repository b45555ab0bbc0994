"""Where a run comes from: what its log has of its parents, and the root of its own trace."""

from __future__ import annotations

from collections.abc import Sequence

from agentor.engine.events import Event, Fork, Interrupted, RunEnd, RunStart
from agentor.engine.spans import SpanContext, span_id, trace_id


def split_fork(events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    """A log's copied part, with the marker that ends it, and the run's own events."""
    marks = [place for place, event in enumerate(events) if isinstance(event, Fork)]
    cut = marks[-1] + 1 if marks else 0
    return events[:cut], events[cut:]


def family_of(run_id: str, events: Sequence[Event]) -> str:
    """The run that this one and its forks, and their forks, come from."""
    copied, _ = split_fork(events)
    marker = copied[-1] if copied else None
    if not isinstance(marker, Fork):
        return run_id
    return marker.family or marker.forked_from


def root_of(run_id: str, events: Sequence[Event]) -> SpanContext:
    """The span that a run's trace begins with."""
    copied, own = split_fork(events)
    marker = copied[-1] if copied else None
    start = next((event for event in own if isinstance(event, RunStart)), None)
    if isinstance(marker, Fork) and stands_alone(ended(copied), start):
        return SpanContext(trace_id(run_id), span_id(run_id, marker.seq or 0))
    if start is None:
        return SpanContext(trace_id(run_id), span_id(run_id, len(copied)))  # the next record will begin it
    caller = SpanContext.parse(start.traceparent)
    trace = trace_id(run_id) if caller is None else caller.trace_id
    sampled = caller is None or caller.sampled
    return SpanContext(trace, span_id(run_id, start.seq or 0), sampled)


def ended(copied: Sequence[Event]) -> RunEnd | None:
    """How the copied part had ended, where it had."""
    for event in reversed(copied):
        if isinstance(event, RunStart | Interrupted | RunEnd):
            return event if isinstance(event, RunEnd) else None
    return None


def stands_alone(end: RunEnd | None, start: RunStart | None) -> bool:
    """True for a fork that was only a copy, of a finished run with nothing new to answer.

    Args:
        end: How the copied part had ended.
        start: The first segment behind it, if there is one.
    """
    return end is not None and (start is None or not start.of_fork)


def parent_root(marker: Fork) -> SpanContext:
    """The root of the run that was forked; a log of agentor 0.1 does not name it."""
    named = SpanContext.parse(marker.parent_trace)
    return named or SpanContext(trace_id(marker.forked_from), span_id(marker.forked_from, 0))
