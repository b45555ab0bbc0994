"""`RunInfo`: what a list of runs says about each, from its first and its last records alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any  # the fields that change

from agentor.engine.events import Event, Fork, Generation, Interrupted, RunEnd, RunStart, ToolCall, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run at a glance.

    Attributes:
        status: That of the last `run_end`; `running` for a log without an end (a live worker has it, or
            a dead one had: see `resume`), `corrupt` where the log's ends are damaged, `unreadable` where
            its file may not be opened.
        created_at, updated_at: When its first and its last record were written, in epoch seconds.
        records: How many records its log has; None where only the damaged log could tell.
        turns: Model turns so far.
        cost: Of the whole run in US dollars, once it has ended; None before, or without a known price.
    """

    run_id: str
    agent: str | None = None
    model: str | None = None
    status: str = "running"
    created_at: float | None = None
    updated_at: float | None = None
    records: int | None = 0
    turns: int = 0
    cost: float | None = None


def advanced(info: RunInfo, events: Iterable[Event]) -> RunInfo:
    """The summary after more events; their numbers say where they stand."""
    new: dict[str, Any] = {}
    status, records, created_at = info.status, info.records or 0, info.created_at
    for event in events:
        records = records + 1 if event.seq is None else event.seq + 1
        if event.at is not None:
            created_at = event.at if created_at is None else created_at
            new["updated_at"] = event.at
        if isinstance(event, RunStart):
            status = "running"
            new["agent"] = event.agent or new.get("agent", info.agent)
            new["model"] = event.model or new.get("model", info.model)
            new["cost"] = None
        elif isinstance(event, RunEnd):
            status = event.status
            new["cost"] = event.cost
            if event.turns is not None:
                new["turns"] = event.turns
        elif isinstance(event, Interrupted):
            status = event.status
            new["cost"] = None
        elif isinstance(event, Generation | ToolCall | ToolResult):
            new["turns"] = event.turn
        elif isinstance(event, Fork) and status == "poisoned":
            status = "running"  # a fork is the way out of a poisoned run
    return replace(info, status=status, records=records, created_at=created_at, **new)


def epoch_of(events: Iterable[Event], epoch: int = 0) -> int:
    """The highest epoch that a log's segments name; a fork begins to count anew.

    Args:
        epoch: That of the records before.
    """
    for event in events:
        if isinstance(event, RunStart):
            epoch = max(epoch, event.epoch or 0)
        elif isinstance(event, Fork):
            epoch = 0
    return epoch
