"""Group commit: writes that arrive while one is on its way go together in the next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from agentor.engine.store.base import Write

_MAX = 256  # writes in one act: what a database takes in some ten milliseconds

Commit = Callable[[Sequence[Write]], Awaitable[Sequence[Exception | None]]]


class Group:
    """The writes that wait for one store. All of it happens on agentor's own event loop."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._waiting: list[tuple[Write, asyncio.Future[None]]] = []
        self._drain: asyncio.Task[None] | None = None

    async def add(self, write: Write, commit: Commit) -> None:
        """Return once the write is durable.

        Raises: what `commit` gives for this write, or what it raises for all of them.
        """
        if self._pid != os.getpid():  # what a forked child inherits is its parent's to write
            self._pid, self._waiting, self._drain = os.getpid(), [], None
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[None] = loop.create_future()
        self._waiting.append((write, saved))
        if self._drain is None:
            self._drain = loop.create_task(self._commit_all(commit))
        await saved

    async def _commit_all(self, commit: Commit) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX], self._waiting[_MAX:]
            outcomes: Sequence[BaseException | None]
            try:
                outcomes = await commit([write for write, _ in batch])
            except BaseException as error:
                outcomes = [error] * len(batch)
            for (_, saved), outcome in zip(batch, outcomes, strict=True):
                if saved.done():  # its waiter is gone: the loop is being closed
                    continue
                if outcome is None:
                    saved.set_result(None)
                else:
                    saved.set_exception(outcome)
        self._drain = None
