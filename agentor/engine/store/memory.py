"""`MemoryStore`: runs in this process, for tests and short-lived work."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence

from agentor.engine import strictjson
from agentor.engine.events import Event, numbered
from agentor.engine.store.base import Lease, fork_marker
from agentor.engine.store.names import check_run_id
from agentor.errors import Conflict, RunBusy, RunExists, RunNotFound


class MemoryStore:
    """Keeps the JSON text of each event and decodes on load, so it behaves as `FileStore` does.

    Nothing survives the process.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._held: dict[str, tuple[str, float]] = {}  # run id -> owner, since
        self._lock = threading.Lock()

    def append(self, run_id: str, event: Event) -> None:
        """Save one event.

        Raises:
            Conflict, RunExists: as `append_many`.
        """
        self.append_many(run_id, [event])

    def append_many(self, run_id: str, events: Sequence[Event]) -> None:
        """Save a batch; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
        """
        check_run_id(run_id)
        with self._lock:
            lines = list(self._lines.get(run_id, ()))
            for event in events:
                seq = len(lines) if event.seq is None else event.seq
                line = numbered(event, seq, event.at).to_json()
                if seq < len(lines):
                    if lines[seq] != line:
                        raise RunExists(run_id) if seq == 0 else Conflict(run_id, seq)
                elif seq > len(lines):
                    raise Conflict(run_id, seq, f"seq {len(lines)} comes first")
                else:
                    lines.append(line)
            self._lines[run_id] = lines

    def load(self, run_id: str) -> list[Event]:
        """Fresh events, oldest first; empty for an unknown run."""
        return self.load_from(run_id, 0)

    def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on."""
        with self._lock:
            lines = self._lines.get(run_id, [])[seq:]
        events = [Event.from_dict(strictjson.loads(line)) for line in lines]
        return [numbered(event, event.seq or 0, event.at, run_id) for event in events]

    def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        with self._lock:
            return sorted(self._lines)

    def fork(self, src: str, dst: str, at: int | None = None) -> None:
        """Copy a run up to record `at` (all of it where None), marker included.

        Raises:
            RunNotFound, RunExists: as named.
        """
        check_run_id(dst)
        parent = self.load(src)
        if not parent:
            raise RunNotFound(src, "MemoryStore")
        cut = len(parent) if at is None else at + 1
        marker = numbered(fork_marker(src, parent, at), cut, round(time.time(), 3))
        with self._lock:
            if dst in self._lines:
                raise RunExists(dst)
            self._lines[dst] = [*self._lines[src][:cut], marker.to_json()]

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease:
        """Become the run's only writer in this process.

        Raises:
            RunBusy: somebody holds it.
        """
        with self._lock:
            if run_id in self._held:
                holder, since = self._held[run_id]
                raise RunBusy(run_id, holder, socket.gethostname(), os.getpid(), since)
            self._held[run_id] = owner, time.time()
        return _MemoryLease(self, run_id)

    def _free(self, run_id: str) -> None:
        with self._lock:
            self._held.pop(run_id, None)


class _MemoryLease:
    def __init__(self, store: MemoryStore, run_id: str) -> None:
        self._store: MemoryStore | None = store
        self._run_id = run_id

    def release(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store._free(self._run_id)
