"""What a store must have, what it may have besides, and the rules for run ids."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentor.engine.events import Event, Fork, RunStart
from agentor.errors import InvalidRunId


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
class SupportsLease(Protocol):
    """One writer a run.

    Raises:
        RunBusy: somebody else holds the run.
    """

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease: ...


@runtime_checkable
class SupportsLoadFrom(Protocol):
    """The events of a run from `seq` on, without reading the whole log where that can be avoided."""

    def load_from(self, run_id: str, seq: int) -> list[Event]: ...


_LITERAL = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_DEVICES = {"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10)}
MAX_ID_BYTES = 60  # of an id that must be encoded: its file name has 8/5 of them and a prefix


def is_literal(run_id: str) -> bool:
    """True for ids that any store and file system can take as they are."""
    return _LITERAL.fullmatch(run_id) is not None and run_id not in _DEVICES


def check_run_id(run_id: str) -> None:
    """Refuse an id that cannot name a log on every store; ids that only need encoding pass.

    Raises:
        InvalidRunId: empty, a path, hidden, a device's name, control or invisible characters, or
            too long.
    """
    if not isinstance(run_id, str):
        raise InvalidRunId(str(run_id), "it is no text")
    if is_literal(run_id):
        return
    reason = None
    if not run_id:
        reason = "it is empty"
    elif any(char in "/\\:" for char in run_id) or run_id.startswith("."):
        reason = "it reads as a path or a hidden file"
    elif run_id.split(".")[0].lower() in _DEVICES:
        reason = "it is the name of a device"
    elif any(unicodedata.category(char)[0] == "C" for char in run_id):
        reason = "it has control or invisible characters"
    elif run_id[-1] in ". " or run_id[0] == " ":
        reason = "it begins or ends with a space, or ends with a dot"
    elif len(run_id.encode()) > MAX_ID_BYTES:
        reason = f"it needs encoding and has more than {MAX_ID_BYTES} bytes, or more than 100 characters"
    if reason:
        raise InvalidRunId(run_id, reason)


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
