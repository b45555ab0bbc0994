"""Where a fork cuts its parent's log."""

from __future__ import annotations

from agentor.engine.events import Event, Generation, ToolResult
from agentor.engine.transcript import Transcript, apply


def cut(run_id: str, events: list[Event], at: int | None, at_turn: int | None) -> int | None:
    """The seq of the last record to copy; None for the whole log.

    Args:
        at: That record itself.
        at_turn: The turn whose last result it is.

    Raises:
        ValueError: no such step, or a turn whose results are not all there.
    """
    if at is not None and at_turn is not None:
        raise ValueError("give at= or at_turn=, not both")
    if at is not None and not 0 <= at < len(events):
        raise ValueError(f"run {run_id!r} has no record {at}; its records are 0 to {len(events) - 1}")
    if at_turn is None:
        return at
    return _end_of_turn(run_id, events, at_turn)


def _end_of_turn(run_id: str, events: list[Event], turn: int) -> int:
    t, place, missing = Transcript(), None, 0
    for event in events:
        t = apply(t, event)
        if t.turn != turn:
            continue
        if (isinstance(event, Generation) and event.error is None) or (
            isinstance(event, ToolResult) and missing
        ):
            place, missing = event.seq, len(t.open_calls)
    if place is None:
        raise ValueError(f"run {run_id!r} has no turn {turn}")
    if missing:
        raise ValueError(
            f"turn {turn} of run {run_id!r} lacks {missing} result(s); fork at an earlier turn, "
            "or at a record with at="
        )
    return place
