"""What can be seen of a run, and done about it, without running it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from agentor.engine.children import prefixes, split
from agentor.engine.decisions import Pending, approvals, pending
from agentor.engine.events import Event
from agentor.engine.journal import Journal
from agentor.engine.policy import Decision
from agentor.engine.recording import Recording
from agentor.engine.store.follow import follow
from agentor.engine.store.hold import Hold
from agentor.engine.store.names import check_run_id
from agentor.engine.stored import StoredRuns
from agentor.engine.transcript import Transcript, advance, hydrate_next
from agentor.engine.words import INTERRUPTED
from agentor.errors import RunBusy, RunNotFound

WAITING = ("paused", "in_doubt")  # for a person
UNDER_WAY = ("running", INTERRUPTED, *WAITING)
_LOOK_S = 0.2  # between two looks whether a worker has stopped


class Steering(StoredRuns):
    """Runs from outside: by any process that reads their store."""

    async def unresolved(self, run_id: str) -> list[Pending]:
        """The calls of a run that wait for a decision.

        Raises:
            RunNotFound, CorruptLog, UnsupportedLog: as named.
        """
        _, transcript = await self._load(run_id)
        return await self._waiting(transcript)

    async def _waiting(self, t: Transcript) -> list[Pending]:
        """What waits in a run, and in those of its sub-agents."""
        return [*pending(t), *await self._below(t)]

    async def _below(self, t: Transcript) -> list[Pending]:
        """What waits in the runs of the sub-agents, under the ids of the calls that they are."""
        found = list[Pending]()
        for child, prefix in prefixes(t).items():
            for p in await self._waiting(await self._child(child, t)):
                found.append(replace(p, call_id=prefix + p.call_id, run_id=p.run_id or child))
        return found

    async def _child(self, child: str, t: Transcript) -> Transcript:
        """How a sub-agent's run stands; empty where the parent's process died before it began.

        Raises:
            RunNotFound: its log is gone.
        """
        try:
            return (await self._load(child))[1]
        except RunNotFound as error:
            if child not in t.children:
                return Transcript()
            call_id = next(c.call.call_id for c in t.open_calls if c.child == child)
            error.add_note(
                f"the run waits for this one, its call {call_id!r}: cancel() the run and resume() it to have "
                "that call begun anew, or fork it with a new message"
            )
            raise

    async def _check(self, run_id: str, t: Transcript, decisions: Mapping[str, Decision]) -> None:
        """Refuse decisions, about any run in the tree, before one of them is written.

        Raises:
            DecisionRefused: one that its run has no use for.
        """
        own, below = split(decisions, t)
        approvals(run_id, t, own, time.time())
        for child, words in below.items():
            await self._check(child, (await self._load(child))[1], words)

    async def _decide_below(
        self, run_id: str, t: Transcript, decisions: Mapping[str, Decision], wait_s: float
    ) -> dict[str, Decision]:
        """Write down what is decided about sub-agents' calls, in their logs; gives the rest.

        Raises: as `decide`.
        """
        own, below = split(decisions, t)
        if below:
            await self._check(run_id, t, decisions)
        for child, words in below.items():
            await self.decide(child, words, wait_s)
        return own

    async def decide(self, run_id: str, decisions: Mapping[str, Decision], wait_s: float) -> list[Pending]:
        """Write decisions down, and run nothing; what still waits.

        Raises:
            RunNotFound, RunBusy, CorruptLog, UnsupportedLog, StoreError: as named.
            DecisionRefused: one of them; then none is written.
        """
        events, transcript = await self._load(run_id)  # first: an unknown run leaves no lock file
        own = await self._decide_below(run_id, transcript, decisions, wait_s)
        if decisions and not own:
            return await self._waiting(transcript)
        async with self._held(run_id, wait_s) as hold:
            _, transcript = await self._latest(run_id, events, transcript)
            words = approvals(run_id, transcript, own, time.time())
            journal = Journal(
                run_id, hold, next_seq=transcript.next_seq, strict=True, redact=self._spec.redact
            )
            for word in words:
                transcript, _ = advance(transcript, journal.add(word))
            await journal.commit()
            return await self._waiting(transcript)

    async def cancel(self, run_id: str, reason: str, wait_s: float) -> str:
        """Have a run stopped, by its worker or, where it has none, in its log; its status then.

        Raises:
            RunNotFound, CorruptLog, UnsupportedLog, StoreError: as named.
            TypeError: a worker has it, and the store has no way to tell it.
        """
        events, transcript = await self._load(run_id)
        until = time.monotonic() + wait_s
        while transcript.status in UNDER_WAY:
            try:
                async with self._held(run_id) as hold:
                    events, transcript = await self._latest(run_id, events, transcript)
                    if transcript.status in UNDER_WAY:
                        transcript = await self._cut_off(run_id, hold, transcript, reason)
                    return transcript.status
            except RunBusy:
                await self._store().request_cancel(run_id, reason)
            if (left_s := until - time.monotonic()) <= 0:
                break
            await asyncio.sleep(min(_LOOK_S, left_s))
            events, transcript = await self._latest(run_id, events, transcript)
        return transcript.status

    async def _cut_off(
        self, run_id: str, hold: Hold | None, transcript: Transcript, reason: str
    ) -> Transcript:
        """Close a run that no worker has; as `decide`, this is no segment of its own."""
        journal = Journal(run_id, hold, next_seq=transcript.next_seq, strict=True, redact=self._spec.redact)
        log = Recording(self._spec, journal, transcript, [])
        log.cut_off(reason, cancelled=True, abandoned=True)
        await journal.commit()
        return log.transcript

    async def attach(self, run_id: str, from_seq: int) -> AsyncIterator[Event]:
        """A run's events as its own process sees them, from a number on, until it has ended.

        Raises:
            RunNotFound, CorruptLog, UnsupportedLog: as named.
        """
        check_run_id(run_id)
        transcript = Transcript()
        async for event in follow(self._store(), run_id, 0):
            transcript, seen = hydrate_next(run_id, transcript, event)
            if transcript.next_seq > from_seq:
                yield seen
