"""Cancelling a run from anywhere: its worker asks its store now and then whether it is wanted to stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType

from agentor.engine.store.hold import Hold

_LEAVE_S = 1.0  # that the end of a segment waits for a question
POLL_S = 0.4  # between two questions: a worker is to hear within a second


class CancelWatch:
    """While it is entered, a request to stop cancels the task that entered it.

    Args:
        hold: The run; None for one that nobody else can see.
    """

    def __init__(self, hold: Hold | None) -> None:
        self._hold = hold
        self.reason: str | None = None  # why it was asked to stop
        self._body: asyncio.Task[object] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._over, self._asks = asyncio.Event(), False

    async def __aenter__(self) -> None:
        if self._hold is not None and self._hold.can_be_asked:
            self._body = asyncio.current_task()
            self._watcher = asyncio.create_task(self._look(self._hold))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._watcher is not None and self._asks:  # a request to the store is under way: leave none behind
            await asyncio.wait({self._watcher}, timeout=_LEAVE_S)

    def heeded(self) -> bool:
        """True if the task was cancelled for this and nothing else; then that is over now."""
        return self.reason is not None and self._body is not None and self._body.uncancel() == 0

    async def _look(self, hold: Hold) -> None:
        while self.reason is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._over.wait()
            if self._over.is_set():
                return
            self._asks = True
            reason = await hold.asked_to_stop()
            self._asks = False
            if self._over.is_set():
                return
            self.reason = reason
        if self._body is not None:
            self._body.cancel()
