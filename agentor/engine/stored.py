"""The runs of one agent in one store: loaded, and held under a lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agentor.engine.calls import AgentSpec
from agentor.engine.events import Event, Fork
from agentor.engine.journal import finish
from agentor.engine.reuse import Known
from agentor.engine.store.access import Access
from agentor.engine.store.base import Lease
from agentor.engine.store.hold import Hold
from agentor.engine.store.names import check_run_id
from agentor.engine.transcript import Transcript
from agentor.errors import RunBusy, RunNotFound


class StoredRuns:
    """The runs of one agent in one store (or in none).

    Args:
        engine_version: Of this package; for the log.
    """

    def __init__(self, spec: AgentSpec, access: Access | None, engine_version: str) -> None:
        self._spec, self._access, self._version = spec, access, engine_version

    @property
    def spec(self) -> AgentSpec:
        """The agent."""
        return self._spec

    def _store(self) -> Access:
        if self._access is None:
            raise ValueError("this needs a store; build the agent with store=FileStore('runs')")
        return self._access

    async def _load(self, run_id: str) -> tuple[list[Event], Transcript]:
        check_run_id(run_id)
        events, transcript = await self._store().load(run_id)
        if not events:
            raise RunNotFound(run_id, self._store().where)
        return events, transcript

    async def _known(self, events: Sequence[Event], t: Transcript) -> Known | None:
        """What a fork's parent has behind the cut, for a fork that uses it; None where its log is gone."""
        if t.reuses is None or self._access is None:
            return None
        parent, seq = t.reuses
        theirs, _ = await self._access.load(parent)
        own = next((n for n, e in reversed(list(enumerate(events))) if isinstance(e, Fork)), 0)
        return Known(theirs[seq + 1 :], events[own:])

    async def _latest(
        self, run_id: str, events: list[Event], transcript: Transcript
    ) -> tuple[list[Event], Transcript]:
        """What was loaded before the lease was ours, or more, if somebody wrote in between."""
        if await self._store().is_current(run_id, len(events)):
            return events, transcript
        return await self._load(run_id)

    @asynccontextmanager
    async def _held(self, run_id: str, wait_s: float = 0.0) -> AsyncIterator[Hold | None]:
        """The run under this worker's lease; None without a store.

        Raises:
            RunBusy: another worker holds it, and has not given it back within `wait_s` seconds.
            Fenced: the lease was lost on the way.
        """
        if self._access is None:
            yield None
            return
        lease = await self._lease(self._access, run_id, wait_s)
        hold = Hold(self._access, run_id, lease, strict=self._spec.strict)
        try:
            async with hold.kept():
                yield hold
        finally:
            await finish(hold.release())

    async def _lease(self, access: Access, run_id: str, wait_s: float) -> Lease | None:
        until, pause_s = time.monotonic() + wait_s, 0.05
        while True:
            taking = asyncio.ensure_future(access.lease(run_id, self._spec.name))
            try:
                return await asyncio.shield(taking)
            except RunBusy:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 2, 1.0)
            except asyncio.CancelledError:
                # It may be ours a moment later, with nobody left to give it back.
                await asyncio.wait({taking})
                if taking.exception() is None:
                    await finish(Hold(access, run_id, taking.result()).release())
                raise
