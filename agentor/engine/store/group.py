"""Group commit: writes that arrive while one is on its way go together in the next."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from agentor.engine.store.base import Write
from agentor.engine.threads import background

_MAX = 256  # writes in one act: what a database takes in some ten milliseconds

Commit = Callable[[Sequence[Write]], Awaitable[Sequence[Exception | None]]]


class _Waiting(NamedTuple):
    write: Write
    saved: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class Group:
    """The writes that wait for one store, from any event loop; they are committed on agentor's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: list[_Waiting] = []
        self._work: Future[None] | None = None  # None: nobody commits just now

    async def add(self, write: Write, commit: Commit) -> None:
        """Return once the write is durable; it is done also if the caller is cancelled.

        Raises: what `commit` gives for this write, or what it raises for all of them.
        """
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._pid != os.getpid():  # what a forked child inherits is its parent's to write
                self._begin()
            self._waiting.append(_Waiting(write, saved, loop))
            if self._work is None:
                self._work = background.start(self._commit_all(commit))
        await saved

    async def _commit_all(self, commit: Commit) -> None:
        while True:
            with self._lock:
                batch, self._waiting = self._waiting[:_MAX], self._waiting[_MAX:]
                if not batch:
                    self._work = None
                    return
            outcomes: Sequence[BaseException | None]
            try:
                outcomes = await commit([each.write for each in batch])
            except BaseException as error:
                outcomes = [error] * len(batch)
            _tell(batch, outcomes)


def _tell(batch: list[_Waiting], outcomes: Sequence[BaseException | None]) -> None:
    """Wake those who wait, with one call to each of their loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[None], BaseException | None]]]
    by_loop = defaultdict(list)
    for each, outcome in zip(batch, outcomes, strict=True):
        by_loop[each.loop].append((each.saved, outcome))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            continue  # the loop is closed: nobody waits any more


def _settle(settled: list[tuple[asyncio.Future[None], BaseException | None]]) -> None:
    for saved, outcome in settled:
        if saved.done():
            continue
        if outcome is None:
            saved.set_result(None)
        else:
            saved.set_exception(outcome)
