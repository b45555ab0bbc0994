"""`Hold`: one worker's right to a run while it works, renewed in time and asked before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from agentor.engine.events import Event
from agentor.engine.store.access import Access
from agentor.engine.store.base import Lease
from agentor.errors import Fenced


class Hold:
    """A run in a store, under the lease that this worker has on it (or none, where the store has none).

    Args:
        strict: A worker whose lease ran out while the store did not answer stops. Otherwise it goes on:
            a failing store stops no run, and the store refuses its writes if another one has the run.
        clock: Seconds that only go forward, also while the process is stopped.
    """

    def __init__(
        self,
        access: Access,
        run_id: str,
        lease: Lease | None,
        *,
        strict: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._run_id, self._lease = access, run_id, lease
        self._strict, self._clock = strict, clock
        self._ttl_s = getattr(lease, "ttl_s", None)  # a store of one's own may give less than a Lease
        self._renewed = clock()

    @property
    def epoch(self) -> int | None:
        """The lease's number among those of this run; None where the store gives none."""
        return getattr(self._lease, "epoch", None)

    @property
    def can_be_asked(self) -> bool:
        """Whether somebody else can ask this worker to stop."""
        return self.epoch is not None and self._access.method("cancel_requested") is not None

    async def asked_to_stop(self) -> str | None:
        """Why this worker is asked to stop; None where it is not, or the store does not answer."""
        method = self._access.method("cancel_requested")
        if method is None or self.epoch is None:
            return None
        with contextlib.suppress(Exception):  # a store may raise anything, and is asked again
            reason: str | None = await self._access.call(method, self._run_id, self.epoch)
            return reason
        return None

    async def append(self, events: Sequence[Event]) -> int:
        """Save the first of these events, or all; returns how many are now durable.

        Raises:
            Fenced: the lease is over.
        """
        return await self._access.append(self._run_id, events, self.epoch)

    async def assure(self) -> None:
        """Return only while no other worker is known to have the run; the lease is renewed in time.

        Raises:
            Fenced: another one has it; or, if `strict`, its time is over and the store does not answer.
        """
        asked = self._clock()
        if self._lease is None or self._ttl_s is None or asked - self._renewed < self._ttl_s / 3:
            return
        try:
            await self._access.call(self._lease.renew)
        except Fenced:
            raise
        except Exception as error:  # a store may raise anything
            if self._strict and self._clock() - self._renewed >= self._ttl_s:
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
        if self._ttl_s is None:
            yield
            return
        lost: list[Fenced] = []
        body = asyncio.current_task()
        watcher = asyncio.create_task(self._watch(self._ttl_s / 3, body, lost))
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
        """Give the lease back; where the store does not answer it ends by itself."""
        if self._lease is None:
            return
        with contextlib.nullcontext() if self._ttl_s is None else contextlib.suppress(Exception):
            await self._access.call(self._lease.release)
