"""`Hold`: one worker's right to a run while it works, renewed in time and asked before anything starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from agentor.engine.events import Event
from agentor.engine.store.access import Access
from agentor.engine.store.base import Lease, TimedLease
from agentor.errors import Fenced


class Hold:
    """A run in a store, under the lease that this worker has on it (or none, where the store has none).

    Args:
        clock: Seconds that only go forward, also while the process is stopped.
    """

    def __init__(
        self,
        access: Access,
        run_id: str,
        lease: Lease | TimedLease | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._run_id, self._lease = access, run_id, lease
        self._timed = lease if isinstance(lease, TimedLease) else None
        self._clock = clock
        self._renewed = clock()

    @property
    def epoch(self) -> int | None:
        """The lease's number among those of this run; None where the store gives none."""
        return None if self._timed is None else self._timed.epoch

    async def append(self, events: Sequence[Event]) -> int:
        """Save the first of these events, or all; returns how many are now durable.

        Raises:
            Fenced: the lease is another worker's now.
        """
        if self._timed is None:
            return await self._access.append(self._run_id, events)
        await self._access.call_own(self._timed.append_many, list(events))
        return len(events)

    async def assure(self) -> None:
        """Return only while the lease is surely ours; it is renewed when a third of its time is over.

        Raises:
            Fenced: it is not.
        """
        if self._timed is None:
            return
        asked = self._clock()
        if asked - self._renewed < self._timed.ttl_s / 3:
            return
        try:
            await self._access.call_own(self._timed.renew)
        except Fenced:
            raise
        except Exception as error:  # the store does not answer; until its time is over the lease holds
            if self._clock() - self._renewed >= self._timed.ttl_s:
                reason = f"its lease ran out and could not be renewed ({type(error).__name__}: {error})"
                raise Fenced(self._run_id, reason) from error
        else:
            self._renewed = asked

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew the lease in the background while the body runs; the body is cancelled once it is lost.

        Raises:
            Fenced: in place of that cancellation.
        """
        if self._timed is None:
            yield
            return
        lost: list[Fenced] = []
        body = asyncio.current_task()
        watcher = asyncio.create_task(self._watch(self._timed.ttl_s / 3, body, lost))
        try:
            yield
        except asyncio.CancelledError:
            if not lost or body is None:
                raise
            body.uncancel()
            raise lost[0] from None
        finally:
            watcher.cancel()
            await asyncio.wait({watcher})

    async def _watch(self, every_s: float, body: asyncio.Task[None] | None, lost: list[Fenced]) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.assure()
            except Fenced as error:
                lost.append(error)
                if body is not None:
                    body.cancel()
                return

    async def release(self) -> None:
        """Give the lease back."""
        if self._lease is not None:
            await self._access.call_own(self._lease.release)
