"""Which runs may go, and their removal one by one."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta

from agentor.engine.store.access import Access
from agentor.engine.store.summary import RunInfo
from agentor.errors import CorruptLog, RunBusy, RunNotFound

# A run that has one of these still has something to do, or to tell: it goes only where it is named.
UNFINISHED = frozenset({"running", "interrupted", "paused", "in_doubt", "corrupt", "unreadable"})


async def prune(
    access: Access,
    *,
    older_than: timedelta | None = None,
    keep_last: int = 0,
    status: Collection[str] | str | None = None,
    dry_run: bool = True,
) -> list[RunInfo]:
    """Remove runs, each one whole or not at all, oldest first.

    A run that somebody holds, that went on since it was looked at, or that turns out to be damaged, is left.

    Args:
        older_than: Only runs whose last record is older than this.
        keep_last: Of the runs with a fitting status, the newest ones that stay in any case.
        status: Only runs with one of these. None: all that are over; an unfinished or paused run goes
            only where its status is named here.
        dry_run: Only say what would go.

    Returns:
        The runs that went, or would go.
    """
    if keep_last < 0:
        raise ValueError(f"keep_last must be 0 or more, not {keep_last}")
    names = {status} if isinstance(status, str) else status
    fitting = [
        info
        for info in await access.describe()
        if (info.status not in UNFINISHED if names is None else info.status in names)
    ]
    fitting.sort(key=lambda info: (info.updated_at or 0.0, info.run_id))
    fitting = fitting[: max(0, len(fitting) - keep_last)]
    if older_than is not None:
        limit = time.time() - older_than.total_seconds()
        fitting = [info for info in fitting if (info.updated_at or 0.0) < limit]
    if dry_run:
        return fitting
    return [info for info in fitting if await _remove(access, info)]


async def _remove(access: Access, seen: RunInfo) -> bool:
    """Delete a run that is still as it was seen; True if it went."""
    try:
        lease = await access.lease(seen.run_id, "prune") if access.method("lease") else None
    except (RunBusy, CorruptLog):
        return False
    try:
        if await access.describe([seen.run_id]) != [seen]:
            return False
        if seen.status not in UNFINISHED:
            await access.load(seen.run_id)  # its ends do not show whether it is damaged between them
        await access.delete(seen.run_id, getattr(lease, "epoch", None))
    except (RunNotFound, CorruptLog):
        return False
    finally:
        if lease is not None:
            await access.call(lease.release)
    return True
