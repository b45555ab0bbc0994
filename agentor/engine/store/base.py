"""What a store must have, what it may have besides, and the marker of a fork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentor.engine.events import Event, Fork, RunStart


@runtime_checkable
class Store(Protocol):
    """An append-only log of events per run: all that a custom store must have.

    `append` returns once the event survives a killed process. `load` gives the events in the order
    they were appended, and an empty list for an unknown run. Methods may be sync or async; sync
    ones run on a thread of the store's own, one at a time.
    """

    def append(self, run_id: str, event: Event) -> None: ...

    def load(self, run_id: str) -> list[Event]: ...

    def list_runs(self) -> list[str]: ...


@runtime_checkable
class SupportsAppendMany(Protocol):
    """One durable batch, idempotent by `seq`: equal events twice are one record.

    Raises:
        Conflict: another record stands at one of the numbers, or a number is skipped.
        RunExists: the batch begins a run (seq 0) whose log exists with other content.
        StoreError: nothing, or a prefix of the batch, was written; the same call may be repeated.
    """

    def append_many(self, run_id: str, events: Sequence[Event]) -> None: ...


@runtime_checkable
class SupportsFork(Protocol):
    """Copy a run up to record `at` (all of it where None) and add the marker: whole or not at all.

    The marker is `fork_marker(src, events, at)`. A store of agentor 0.1 has no `at` and writes no
    marker; it is used as documented then, by copying event by event where `at` is needed.

    Raises:
        RunNotFound: no such parent.
        RunExists: `dst` has a log.
    """

    def fork(self, src: str, dst: str, at: int | None = None) -> None: ...


class Lease(Protocol):
    """The right to write to one run, until `release` or the holder's death."""

    def release(self) -> None: ...


@runtime_checkable
class TimedLease(Protocol):
    """A lease that ends by itself, `ttl_s` seconds after it was last renewed.

    `epoch` grows with each holder of a run. The holder writes through the lease: the store checks the
    epoch in the same act as the append, so a worker that slept through its time cannot write.

    Raises:
        Fenced: from `renew` and `append_many`: the run has another holder.
    """

    epoch: int
    ttl_s: float

    def renew(self) -> None: ...

    def append_many(self, events: Sequence[Event]) -> None: ...

    def release(self) -> None: ...


@runtime_checkable
class SupportsLease(Protocol):
    """One writer a run. The lease ends with its holder (`Lease`), or with its time (`TimedLease`).

    Raises:
        RunBusy: somebody else holds the run.
    """

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease: ...


@runtime_checkable
class SupportsLoadFrom(Protocol):
    """The events of a run from `seq` on, without reading the whole log where that can be avoided."""

    def load_from(self, run_id: str, seq: int) -> list[Event]: ...


def fork_marker(src: str, events: Sequence[Event], at: int | None) -> Fork:
    """The last record of a fork's copied part, without its number.

    Args:
        src: The parent's id.
        events: The parent's whole log.
        at: The last copied seq; None for all of them.
    """
    cut = len(events) if at is None else at + 1
    traces = [e.traceparent for e in events[:cut] if isinstance(e, RunStart) and e.traceparent]
    return Fork(
        forked_from=src,
        parent_seq=cut - 1,
        parent_trace=traces[-1] if traces else None,
        calls=_ran_after(events, cut) or None,
    )


def _ran_after(events: Sequence[Event], cut: int) -> dict[str, str]:
    """How far the parent went, after the cut, with the calls of the turn that the cut leaves open."""
    ran: dict[str, str] = {}
    for event in events[cut:]:
        if event.type in ("generation", "rewind", "context"):
            break
        if event.type in ("tool_call", "tool_result"):
            call_id = str(getattr(event, "call_id", ""))
            ran[call_id] = "done" if event.type == "tool_result" else ran.get(call_id, "started")
    return ran
