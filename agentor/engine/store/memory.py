"""`MemoryStore`: runs in this process, for tests and short-lived work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from agentor.engine.events import Event
from agentor.engine.store.base import ForkMore, Lease, fork_marker
from agentor.engine.store.holder import FOREVER_S, Holder
from agentor.engine.store.names import check_run_id
from agentor.engine.store.records import events_of, fresh, record, sound_records
from agentor.engine.store.summary import RunInfo, advanced, epoch_of
from agentor.engine.store.upkeep import Upkeep
from agentor.errors import RunExists, RunNotFound


class MemoryStore(Upkeep):
    """Keeps the JSON text of each event and decodes on load, so it behaves as `FileStore` does.

    Nothing survives the process.
    """

    def __init__(self) -> None:
        self._records: dict[str, list[str]] = {}
        self._holders: dict[str, Holder] = {}
        self._cancels: dict[str, tuple[int, str]] = {}  # the epoch that is asked to stop, and why
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return "MemoryStore()"

    def append_many(self, run_id: str, events: Sequence[Event], epoch: int | None = None) -> None:
        """Save a batch; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            Fenced: the lease with this epoch is over.
        """
        check_run_id(run_id)
        with self._lock:
            if epoch is not None:
                self._holder(run_id).check_held(run_id, epoch)
            records = self._records.get(run_id, [])
            new = fresh(run_id, events, len(records), dict(enumerate(records)))
            if new:
                self._records[run_id] = [*records, *(text for _, text in new)]
            if epoch is None and (imported := epoch_of(event for event, _ in new)):
                holder = self._holder(run_id)
                self._holders[run_id] = replace(holder, epoch=max(holder.epoch, imported))

    def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on; fresh ones each time."""
        with self._lock:
            texts = self._records.get(run_id, [])[seq:]
        return events_of(run_id, list(enumerate(texts, seq)), seq)

    def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        with self._lock:
            return sorted(self._records)

    def describe(self, run_ids: Sequence[str] | None = None) -> list[RunInfo]:
        """Each run at a glance."""
        wanted = self.list_runs() if run_ids is None else run_ids
        infos = [advanced(RunInfo(run_id=run_id), self.load_from(run_id, 0)) for run_id in wanted]
        return [info for info in infos if info.records]

    def fork(self, src: str, dst: str, at: int | None = None, more: ForkMore | None = None) -> None:
        """Copy a run up to record `at` (all of it where None), marker included.

        Raises:
            RunNotFound, RunExists: as named.
        """
        check_run_id(dst)
        with self._lock:
            parent = self.load_from(src, 0)
            if not parent:
                raise RunNotFound(src, repr(self))
            if dst in self._records:
                raise RunExists(dst)
            marker = fork_marker(src, parent, at, more)
            self._records[dst] = [*self._records[src][: marker.seq], record(marker)]

    def delete(self, run_id: str, epoch: int | None = None) -> None:
        """Forget a run.

        Raises:
            RunNotFound: no such run.
            RunBusy: somebody holds it, who is not the caller with this `epoch`.
        """
        with self._lock:
            self._holder(run_id).check_free(run_id, 0.0, epoch)
            if self._records.pop(run_id, None) is None:
                raise RunNotFound(run_id, repr(self))

    def repair(self, run_id: str, upto: int | None = None) -> str:
        """Cut a run behind record `upto`; what is cut off is gone, as nothing here is kept.

        Raises:
            RunNotFound, RunBusy: as `delete`.
            ValueError: no `upto` given, and nothing is damaged.
        """
        with self._lock:
            self._holder(run_id).check_free(run_id, 0.0)
            records = self._records.get(run_id, [])
            if not records:
                raise RunNotFound(run_id, repr(self))
            kept = sound_records(run_id, list(enumerate(records)), upto)
            self._records[run_id] = records[: len(kept)]
            return repr(self)

    # --- leases ---------------------------------------------------------------------------------

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease:
        """Become the run's only writer in this process, until `release`; `ttl_s` plays no part.

        Raises:
            RunBusy: somebody holds it.
        """
        check_run_id(run_id)
        with self._lock:
            self._holder(run_id).check_free(run_id, 0.0)
            epoch = self._holder(run_id).epoch + 1
            self._holders[run_id] = Holder.here(epoch, owner, time.time(), FOREVER_S)
        return _MemoryLease(self, run_id, epoch)

    def request_cancel(self, run_id: str, reason: str) -> None:
        """Ask whoever has the run now to stop.

        Raises:
            RunNotFound: no such run.
        """
        with self._lock:
            if run_id not in self._records:
                raise RunNotFound(run_id, repr(self))
            self._cancels[run_id] = (self._holder(run_id).epoch, reason)

    def cancel_requested(self, run_id: str, epoch: int) -> str | None:
        """Why the holder with this epoch is asked to stop; None where it is not."""
        asked, reason = self._cancels.get(run_id, (None, None))
        return reason if asked == epoch else None

    def _holder(self, run_id: str) -> Holder:
        return self._holders.get(run_id, Holder())


class _MemoryLease:
    ttl_s = None

    def __init__(self, store: MemoryStore, run_id: str, epoch: int) -> None:
        self._store, self._run_id, self.epoch = store, run_id, epoch

    def renew(self) -> None:
        with self._store._lock:
            self._store._holder(self._run_id).check_held(self._run_id, self.epoch)

    def release(self) -> None:
        with self._store._lock:
            if self._store._holders[self._run_id].epoch == self.epoch:
                self._store._holders[self._run_id] = Holder(epoch=self.epoch)
