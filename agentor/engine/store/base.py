"""What a store must have, what it may have besides, and the marker of a fork."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol  # Any: JSON

from agentor.engine.events import Event, Fork, numbered
from agentor.engine.lineage import family_of, root_of
from agentor.engine.store.summary import RunInfo

LEASE_S = 30.0  # how long a silent worker keeps a run, unless a store's `lease_s` says otherwise


class Store(Protocol):
    """An append-only log of events per run: all that a custom store must have.

    `append` returns once the event survives a killed process. `load` gives the events in the order
    they were appended, and an empty list for an unknown run. Methods may be sync or async; sync
    ones run on a thread of the store's own, one at a time.
    """

    def append(self, run_id: str, event: Event) -> Awaitable[None] | None: ...

    def load(self, run_id: str) -> Awaitable[list[Event]] | list[Event]: ...

    def list_runs(self) -> Awaitable[list[str]] | list[str]: ...


class SupportsAppendMany(Protocol):
    """One durable batch, idempotent by `seq`: equal events twice are one record.

    An event without a `seq` gets the next one. `names.check_run_id` says which ids to refuse.

    Raises:
        InvalidRunId: the id cannot name a run.
        Conflict: another record stands at one of the numbers, or a number is skipped.
        RunExists: the batch begins a run (seq 0) whose log exists with other content.
        StoreError: nothing, or a prefix of the batch, was written; the same call may be repeated.
    """

    def append_many(self, run_id: str, events: Sequence[Event]) -> Awaitable[None] | None: ...


class Lease(Protocol):
    """The right to be a run's only writer.

    Attributes:
        epoch: Its number among the leases of this run; each one is higher than those before.
        ttl_s: Seconds after which it ends unless it is renewed; None where it ends with its holder's
            process instead.
    """

    @property
    def epoch(self) -> int: ...

    @property
    def ttl_s(self) -> float | None: ...

    def renew(self) -> Awaitable[None] | None:
        """Another `ttl_s` seconds from now on.

        Raises:
            Fenced: the run has another holder.
        """

    def release(self) -> Awaitable[None] | None:
        """Give it back; nothing happens where it is another one's already."""


class SupportsLease(Protocol):
    """One writer a run; appends under a lease name its epoch, and the store itself checks that.

    `ttl_s` is the store's attribute `lease_s`, or `LEASE_S` where it has none.

    Raises:
        RunBusy: from `lease`: somebody else holds the run.
        Fenced: from `append_many` with an `epoch`: the lease with this epoch is over.
    """

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Awaitable[Lease] | Lease: ...

    def append_many(
        self, run_id: str, events: Sequence[Event], epoch: int | None = None
    ) -> Awaitable[None] | None: ...


class Write(NamedTuple):
    """One batch for one run, under the lease with this epoch (None: under none)."""

    run_id: str
    events: Sequence[Event]
    epoch: int | None = None


class SupportsAppendGroup(Protocol):
    """Writes to many runs in one durable act, each of them whole or refused by itself (group commit).

    Gives, for each write in its order, None or the error that `append_many` would raise. The same run
    may come several times; its writes count in their order.

    Raises:
        StoreError: the store could do none of them; the same call may be repeated.
    """

    def append_group(
        self, writes: Sequence[Write]
    ) -> Awaitable[Sequence[Exception | None]] | Sequence[Exception | None]: ...


class SupportsFork(Protocol):
    """Copy a run up to record `at` (all of it where None) and add the marker: whole or not at all.

    The marker is `fork_marker(src, events, at, more)`. A store of agentor 0.1 has no `at` and writes no
    marker; it is used as documented then, by copying event by event where `at` is needed.

    Raises:
        RunNotFound: no such parent.
        RunExists: `dst` has a log.
    """

    def fork(
        self, src: str, dst: str, at: int | None = None, more: ForkMore | None = None
    ) -> Awaitable[None] | None: ...


class SupportsLoadFrom(Protocol):
    """The events of a run from `seq` on, without reading the whole log where that can be avoided."""

    def load_from(self, run_id: str, seq: int) -> Awaitable[list[Event]] | list[Event]: ...


class SupportsFollow(Protocol):
    """A run's events from a number on, then each one as it is saved, until the run has ended."""

    def follow(self, run_id: str, from_seq: int = 0) -> AsyncIterator[Event]: ...


class SupportsDescribe(Protocol):
    """Status, times, turns and cost of runs, without reading whole logs.

    Args:
        run_ids: Those runs, in this order; unknown ones are left out. None: all runs, by id.
    """

    def describe(self, run_ids: Sequence[str] | None = None) -> Awaitable[list[RunInfo]] | list[RunInfo]: ...


class SupportsCancel(Protocol):
    """A word to the worker that has a run, wherever it is: stop.

    Both are about the present holder of the lease: whoever takes the run later is not asked.

    Raises:
        RunNotFound: from `request_cancel`: no such run.
    """

    def request_cancel(self, run_id: str, reason: str) -> Awaitable[None] | None: ...

    def cancel_requested(self, run_id: str, epoch: int) -> Awaitable[str | None] | str | None:
        """The reason, where the holder with this epoch is asked to stop; it asks twice a second."""


class SupportsDelete(Protocol):
    """Remove a run: whole or not at all.

    Args:
        epoch: The caller's own lease on the run; None where it has none.

    Raises:
        RunNotFound: no such run.
        RunBusy: somebody else holds it.
    """

    def delete(self, run_id: str, epoch: int | None = None) -> Awaitable[None] | None: ...


class SupportsRepair(Protocol):
    """Cut a log behind a record, and keep the log as it was aside.

    Args:
        upto: The last record to keep; None: the last one before the first damage.

    Raises:
        RunNotFound, RunBusy: as `SupportsDelete`.
        ValueError: the records up to `upto` are not all sound.
    """

    def repair(self, run_id: str, upto: int | None = None) -> Awaitable[str] | str: ...


ForkMore = Mapping[str, Any]
"""What else a fork's marker holds: `edits` and `reuse`, as `Fork` has them."""


def fork_marker(src: str, events: Sequence[Event], at: int | None, more: ForkMore | None = None) -> Event:
    """The last record of a fork's copied part; its number is how many records are copied.

    Args:
        src: The parent's id.
        events: The parent's whole log.
        at: The last copied seq; None for all of them.
        more: What else it holds.

    Raises:
        ValueError: the parent has no record `at`.
    """
    cut = len(events) if at is None else at + 1
    if not 1 <= cut <= len(events):
        raise ValueError(f"run {src!r} has no record {at}; its records are 0 to {len(events) - 1}")
    family = family_of(src, events)
    marker = Fork(
        forked_from=src,
        parent_seq=cut - 1,
        parent_trace=root_of(src, events).traceparent,
        family=None if family == src else family,
        calls=_ran_after(events, cut) or None,
        **(more or {}),
    )
    return numbered(marker, cut, round(time.time(), 3))


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
