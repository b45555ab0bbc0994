"""Whoever follows a run is woken by the server's notifications; without them it looks now and then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agentor.engine.store.postgrespool import Connection, DatabaseError
from agentor.engine.store.postgreswrite import CHANNEL
from agentor.engine.threads import background

_POLL_S = 1.0  # between two looks where notifications come: one may be lost with its connection
_POLL_UNHEARD_S = 0.25  # where none come
_RECONNECT_S = 1.0


class Listener:
    """One connection that listens for all followers of a store, as long as there are any.

    Behind a pooler, which gives each transaction another session, it does not listen at all.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._ears: set[Ear] = set()
        self._task: asyncio.Task[None] | None = None
        self.hears = False

    def ear(self, run_id: str) -> Ear:
        """For one follower."""
        return Ear(self, run_id)

    def join(self, ear: Ear) -> None:
        """Listen for this one too. On agentor's own event loop, as the rest."""
        if self._pid != os.getpid():  # the connection is the parent's, and its task died with its loop
            self._begin()
        self._ears.add(ear)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def leave(self, ear: Ear) -> None:
        """Stop listening for this one; after the last one the connection is closed."""
        self._ears.discard(ear)
        if self._ears or self._task is None or self._pid != os.getpid():
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait({task})

    async def _listen(self) -> None:
        while True:
            try:
                async with await self._connect() as connection:
                    if await _is_pooled(connection):
                        return
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self.hears = True
                    self._wake(None)  # what was saved before it listened
                    async for notification in connection.notifies():
                        self._wake(notification.payload)
            except (DatabaseError, OSError):  # followers look without it meanwhile
                await asyncio.sleep(_RECONNECT_S)
            finally:
                self.hears = False

    def _wake(self, run_id: str | None) -> None:
        for ear in self._ears:
            if run_id in (None, ear.run_id):
                ear.news.set()


class Ear:
    """One follower's wait for news of one run; not listening before the first wait."""

    def __init__(self, listener: Listener, run_id: str) -> None:
        self._listener, self.run_id = listener, run_id
        self.news = asyncio.Event()

    async def wait(self, busy: bool) -> None:
        """Return when the run may have something new."""
        await background.call(self._wait())

    async def _wait(self) -> None:
        self._listener.join(self)
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S if self._listener.hears else _POLL_UNHEARD_S):
                await self.news.wait()
        self.news.clear()

    async def close(self) -> None:
        """Stop waiting."""
        await background.call(self._listener.leave(self))


async def _is_pooled(connection: Connection) -> bool:
    """True if somebody between us and the server made up the session that we were told of."""
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    return row is None or row[0] != connection.info.backend_pid
