"""Follow a run: its events from a number on, then each one as it is saved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from agentor.engine.events import Event, RunEnd
from agentor.engine.store.access import Access
from agentor.engine.words import CANCELLED
from agentor.errors import RunNotFound, StoreError

_CHECK_EVERY = 8  # looks that find nothing, after which it is asked whether the run is still there

Wait = Callable[[bool], Awaitable[None]]  # True: there was something new just now


async def followed(
    access: Access, run_id: str, from_seq: int, wait: Wait | None = None
) -> AsyncIterator[Event]:
    """The events from `from_seq` on, until the last one says that the run has ended, or was cancelled.

    A run that was interrupted has not ended: it is followed until somebody resumes and finishes it.

    Args:
        wait: Returns when it is worth to look again; None looks again and again, more seldom while
            nothing happens.

    Raises:
        RunNotFound: no such run.
        CorruptLog, StoreError: as the store's `load_from`.
    """
    wait = wait or Pauses()
    start = max(0, from_seq - 1)  # the record before says whether the run has ended already
    events = await access.load_from(run_id, start)
    if not events and not await access.exists(run_id):
        raise RunNotFound(run_id, access.where)
    last, events = events[:1], events[from_seq - start :]
    seq, looks = from_seq, 0
    while True:
        for event in events:
            yield event
        last, seq = events[-1:] or last, seq + len(events)
        if last and (isinstance(last[0], RunEnd) or getattr(last[0], "status", None) == CANCELLED):
            return
        await wait(bool(events))
        events = await access.load_from(run_id, seq)
        looks = 0 if events else looks + 1
        if looks % _CHECK_EVERY == _CHECK_EVERY - 1 and not await access.load_from(run_id, max(0, seq - 1)):
            await _raise_gone(access, run_id)


async def _raise_gone(access: Access, run_id: str) -> None:
    if not await access.exists(run_id):
        raise RunNotFound(run_id, access.where)
    raise StoreError(run_id, "its log was cut while it was followed; follow it again from where it ends now")


class Pauses:
    """Waits between two looks: short ones where much happens, up to `longest_s` where nothing does."""

    def __init__(self, shortest_s: float = 0.01, longest_s: float = 0.25) -> None:
        self._shortest_s, self._longest_s = shortest_s, longest_s
        self._next_s = shortest_s

    async def __call__(self, busy: bool) -> None:
        pause_s = self._shortest_s if busy else self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        await asyncio.sleep(pause_s)


def follow(access: Access, run_id: str, from_seq: int) -> AsyncIterator[Event]:
    """The store's own `follow` where it has one, else `followed`."""
    own: Callable[[str, int], AsyncIterator[Event]] | None = access.method("follow")
    return followed(access, run_id, from_seq) if own is None else own(run_id, from_seq)
