"""One run's log while it is being written: the only writer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any  # what a wrapped coroutine returns

from agentor.engine.events import Event, numbered
from agentor.engine.observer import Watch
from agentor.engine.store.hold import Hold
from agentor.errors import Conflict, CorruptLog, Fenced, RunBusy, RunExists, StoreError

GRACE_S = 5.0  # how long a cancelled run waits for what is under way

# Not outages: somebody else writes to this run, or its log is no log. They stop a run in any mode.
_FATAL = (Fenced, Conflict, RunExists, RunBusy, CorruptLog)


class Journal:
    """Numbers events and saves them in durable batches.

    Best effort: a failing store never raises; events are held back and written in order as soon as
    the store answers, so the log stays a prefix. `strict`: the first failure raises `StoreError`.
    """

    def __init__(
        self,
        run_id: str,
        hold: Hold | None,
        *,
        next_seq: int = 0,
        strict: bool = False,
        redact: Callable[[Event], Event] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run_id, self.hold = run_id, hold
        self.shown_id = None if hold is None else run_id  # without a store there is no run to name
        self.next_seq, self._strict = next_seq, strict
        self._clock = clock
        self.watch = Watch(run_id)
        self._redact = redact
        self._unsaved: list[Event] = []  # in order; the first ones may be held back
        self._unseen: list[Event] = []  # not yet given to the observers
        self.store_errors: list[str] = []

    @property
    def durable(self) -> bool:
        """True if every event so far is acknowledged by the store."""
        return self.hold is not None and not self._unsaved

    def now(self) -> float:
        """Epoch seconds, by the clock that events are dated with."""
        return self._clock()

    def add(self, event: Event) -> Event:
        """Redact and number an event for the next batch; nothing may act on it before `commit`."""
        if self._redact is not None:
            event = self._redact(event)
        event = numbered(event, self.next_seq, round(self._clock(), 3), self.shown_id)
        self.next_seq += 1
        self._unsaved.append(event)
        return event

    def show(self, event: Event) -> None:
        """Give this event, as readers see it, to the observers after the next commit."""
        self._unseen.append(event)

    async def commit(self) -> None:
        """Save all added events in one durable batch; a cancelled commit still runs to its end.

        Raises:
            StoreError: in strict mode for any failure; in both modes where another writer has the
                run, or its log is damaged.
        """
        if self.hold is None:
            self._unsaved.clear()
        else:
            if self._unsaved:
                await finish(self._save(self.hold))
            await self.hold.assure()
        seen, self._unseen = self._unseen, []
        for event in seen:
            self.watch.tell(event)
        self.watch.saved((self._unsaved[0].seq or 0) - 1 if self._unsaved else self.next_seq)

    async def _save(self, hold: Hold) -> None:
        try:
            while self._unsaved:
                saved = await hold.append(self._unsaved)
                del self._unsaved[:saved]
        except _FATAL:
            raise
        except Exception as error:  # a custom store may raise anything
            self.store_errors.append(f"{type(error).__name__}: {error}")
            if self._strict:
                raise self._failure(error) from error

    def _failure(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        count, first = len(self._unsaved), self._unsaved[0].seq
        return StoreError(
            self.run_id,
            f"{count} event(s) from seq {first} on could not be saved ({type(error).__name__}: "
            f"{error}); mend the store, then resume the run",
        )


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end, at most `GRACE_S` longer, even if the awaiting task is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=GRACE_S)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise
