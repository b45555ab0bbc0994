"""A store whose methods may be sync or async, as sync ones: for tests of any store."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any  # what a store's methods give

from agentor.engine.events import Event
from agentor.engine.store.access import Access
from agentor.engine.store.base import Write
from agentor.engine.store.follow import follow
from agentor.errors import RunBusy


def settle(outcome: Any) -> Any:
    """The value, waited for where it is awaitable."""
    return asyncio.run(_wait(outcome)) if inspect.isawaitable(outcome) else outcome


async def _wait(outcome: Awaitable[Any]) -> Any:
    return await outcome


class Settled:
    """Each method of the object, sync."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.store, name)
        if not callable(value):
            return value

        def method(*args: Any) -> Any:
            found = settle(value(*args))
            return Settled(found) if name == "lease" else found

        return method

    def append_group(self, writes: list[tuple[str, list[Any], int | None]]) -> list[Exception | None]:
        return list(settle(self.store.append_group([Write(*write) for write in writes])))

    def has(self, capability: str) -> bool:
        """True if the store has this optional method."""
        return callable(getattr(self.store, capability, None))

    def needs(self, capability: str) -> None:
        """Skip the test where the store has no such method."""
        import pytest

        if not self.has(capability):
            pytest.skip(f"this store has no {capability!r}, which is optional")

    def taken(self, run_id: str, within_s: float) -> Any:
        """The run's lease, once its last holder's is over.

        Raises:
            RunBusy: it is not over after so many seconds.
        """
        until = time.monotonic() + within_s
        while True:
            try:
                return self.lease(run_id, "bob", 30.0)
            except RunBusy:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)  # the time of a lease can only be waited for

    @contextmanager
    def leased(self, run_id: str, owner: str) -> Iterator[int]:
        """The run under a lease of ours; its epoch."""
        lease = self.lease(run_id, owner, 30.0)
        try:
            yield lease.epoch
        finally:
            lease.release()


def access_of(store: Settled) -> Access:
    """The engine's view of the store."""
    return Access(store.store)


async def follow_while(
    writer: Settled, reader: Settled, events: list[Event], within_s: float
) -> tuple[list[Event], list[Event]]:
    """What a reader gets of a run that is written meanwhile; and, afterwards, from record 2 on."""
    got: list[Event] = []
    async with asyncio.timeout(within_s):
        access = access_of(reader if await access_of(reader).exists("r") else writer)
        async for event in follow(access, "r", 0):
            got.append(event)
            if len(got) < len(events):
                await access_of(writer).append("r", [events[len(got)]])
        late = [event async for event in follow(access, "r", 2)]
    return got, late
