"""What every store of ours can do besides, over the few methods that each has of its own.

A store of yours may have `Upkeep` (its methods are sync) or `AsyncUpkeep` as its base too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Coroutine
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar  # Any: a store that has its own methods besides these

from agentor.engine.events import Event
from agentor.engine.store import retention, transfer
from agentor.engine.store.access import Access
from agentor.engine.store.base import Store
from agentor.engine.store.follow import followed
from agentor.engine.store.summary import RunInfo
from agentor.engine.store.verify import Verification, verify
from agentor.engine.threads import background

T = TypeVar("T")


class AsyncUpkeep:
    """For a store whose own methods are async."""

    append_many: Any  # each store's own; so are `load_from` and the rest
    load_from: Any

    async def append(self, run_id: str, event: Event) -> None:
        """Save one event; as `append_many`."""
        await self.append_many(run_id, [event])

    async def load(self, run_id: str) -> list[Event]:
        """The events, oldest first; empty for an unknown run.

        Raises:
            CorruptLog: a record is damaged, or missing.
        """
        events: list[Event] = await self.load_from(run_id, 0)
        return events

    def follow(self, run_id: str, from_seq: int = 0) -> AsyncIterator[Event]:
        """The events from a number on, then each one as it is saved, until the run has ended.

        Raises:
            RunNotFound: no such run.
        """
        return followed(self._access(), run_id, from_seq)

    async def verify(self, run_id: str) -> Verification:
        """Read a run again, and recompute what it says of itself: numbers, checksums, digests, meaning.

        Raises:
            RunNotFound: no such run.
        """
        return await verify(self._access(), run_id)

    async def prune(
        self,
        *,
        older_than: timedelta | None = None,
        keep_last: int = 0,
        status: Collection[str] | str | None = None,
        dry_run: bool = True,
    ) -> list[RunInfo]:
        """Remove runs, each one whole or not at all; gives those that went, or would go.

        Args:
            older_than: Only runs whose last record is older than this.
            keep_last: Of the runs with a fitting status, the newest ones that stay in any case.
            status: Only runs with one of these. None: all that are over; an unfinished or paused run
                goes only where its status is named here. One that somebody holds never goes, nor
                one that turns out to be damaged.
            dry_run: Only say what would go.
        """
        return await retention.prune(
            self._access(), older_than=older_than, keep_last=keep_last, status=status, dry_run=dry_run
        )

    async def export(self, run_id: str, file: str | PathLike[str]) -> int:
        """Write a run to a portable file of JSON lines; the number of its records.

        Raises:
            RunNotFound, CorruptLog, StoreError: as named.
        """
        return await transfer.export(self._access(), run_id, Path(file))

    async def import_run(self, file: str | PathLike[str], run_id: str | None = None) -> str:
        """Take a run from an exported file; its id, which is the file's name if none is given.

        Raises:
            RunExists, CorruptLog, StoreError: as named.
        """
        return await transfer.import_run(self._access(), Path(file), run_id)

    async def copy_run(self, run_id: str, to: Store, new_id: str | None = None) -> str:
        """Copy a run into another store, record by record the same; its id there.

        Raises:
            RunNotFound, RunExists, CorruptLog, StoreError: as named.
        """
        return await transfer.copy_run(self._access(), run_id, Access(to), new_id)

    def _access(self) -> Access:
        return Access(self)  # type: ignore[arg-type]  # whoever has this base is a store


class Upkeep:
    """For a store whose own methods are sync: the same, on agentor's own event loop."""

    append_many: Any  # each store's own; so are `load_from` and the rest
    load_from: Any

    def append(self, run_id: str, event: Event) -> None:
        """Save one event; as `append_many`."""
        self.append_many(run_id, [event])

    def load(self, run_id: str) -> list[Event]:
        """The events, oldest first; empty for an unknown run.

        Raises:
            CorruptLog: a record is damaged, or missing.
        """
        events: list[Event] = self.load_from(run_id, 0)
        return events

    def follow(self, run_id: str, from_seq: int = 0) -> AsyncIterator[Event]:
        """As `AsyncUpkeep.follow`."""
        return followed(self._access(), run_id, from_seq)

    def verify(self, run_id: str) -> Verification:
        """As `AsyncUpkeep.verify`."""
        return _now(verify(self._access(), run_id), "verify")

    def prune(
        self,
        *,
        older_than: timedelta | None = None,
        keep_last: int = 0,
        status: Collection[str] | str | None = None,
        dry_run: bool = True,
    ) -> list[RunInfo]:
        """As `AsyncUpkeep.prune`."""
        work = retention.prune(
            self._access(), older_than=older_than, keep_last=keep_last, status=status, dry_run=dry_run
        )
        return _now(work, "prune")

    def export(self, run_id: str, file: str | PathLike[str]) -> int:
        """As `AsyncUpkeep.export`."""
        return _now(transfer.export(self._access(), run_id, Path(file)), "export")

    def import_run(self, file: str | PathLike[str], run_id: str | None = None) -> str:
        """As `AsyncUpkeep.import_run`."""
        return _now(transfer.import_run(self._access(), Path(file), run_id), "import_run")

    def copy_run(self, run_id: str, to: Store, new_id: str | None = None) -> str:
        """As `AsyncUpkeep.copy_run`."""
        return _now(transfer.copy_run(self._access(), run_id, Access(to), new_id), "copy_run")

    def _access(self) -> Access:
        return Access(self)  # type: ignore[arg-type]  # whoever has this base is a store


def _now(work: Coroutine[Any, Any, T], method: str) -> T:
    return background.run(work, method=method, instead=f"await asyncio.to_thread(store.{method}, ...)")
