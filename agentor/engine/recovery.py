"""Start, resume, follow up and fork: how a segment of a run begins, and what it starts from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any  # metadata is the user's JSON

from agentor.engine.budget import Budget, over
from agentor.engine.calls import result_event
from agentor.engine.children import Outcome, SubAgent, Task
from agentor.engine.decisions import approvals, pending
from agentor.engine.edits import Edit, edits_of, takes_effect
from agentor.engine.events import FORMAT, Approval, Event, Fork, RunEnd, RunStart
from agentor.engine.fingerprint import (
    fingerprint_of,
    new_definitions,
    new_output,
    refuse_change,
    warn_of_change,
)
from agentor.engine.forkpoint import cut
from agentor.engine.journal import Journal, finish
from agentor.engine.loop import OUTPUT_MISMATCH, Session
from agentor.engine.messages import Message
from agentor.engine.observer import Observer, Tracer, Watch
from agentor.engine.policy import NOT_RUN, OVERTAKEN, is_over
from agentor.engine.result import RunResult, result_of
from agentor.engine.start import Start, new_run_id
from agentor.engine.steering import UNDER_WAY, WAITING, Steering
from agentor.engine.store.access import Access
from agentor.engine.store.hold import Hold
from agentor.engine.store.names import check_run_id
from agentor.engine.transcript import Transcript, fold
from agentor.engine.words import INTERRUPTED
from agentor.errors import RunExists

CHILD_WAIT_S = 30.0  # for a sub-agent's run that another worker has
# A resume returns the stored result of these; going on needs a new message or a fork.
_FINAL = ("completed", "truncated", "filtered", "poisoned")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parent's run is, and so those of its sub-agents; `access` is None where nothing is saved."""

    access: Access | None
    tracer: Observer | Tracer | None
    strict: bool


class Runs(Steering):
    """The runs of one agent in one store (or in none): what works on them."""

    async def run(self, messages: list[Message], run_id: str | None, start: Start) -> RunResult:
        """A new run.

        Raises:
            InvalidRunId, RunExists, RunBusy: about a `run_id` that the caller chose.
        """
        chosen = run_id is not None
        run_id = new_run_id() if run_id is None else run_id
        check_run_id(run_id)
        async with self._held(run_id) as hold:
            if chosen and self._access is not None and await self._access.exists(run_id):
                raise RunExists(run_id)
            return await self._segment(hold, run_id, [], Transcript(), messages, start)

    async def run_many(self, inputs: list[list[Message]], start: Start, limit: int) -> list[RunResult]:
        """A new run for each input, at most `limit` at a time; results in the inputs' order."""
        slots = asyncio.Semaphore(limit)

        async def one(messages: list[Message]) -> RunResult:
            async with slots:
                return await self.run(messages, None, start)

        outcomes = await asyncio.gather(*map(one, inputs), return_exceptions=True)
        for outcome in outcomes:  # one run's failure stops no other: it is raised when all are over
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, RunResult)]

    async def resume(self, run_id: str, start: Start) -> RunResult:
        """Finish a run that has no final answer; else its stored result, with nothing called.

        Raises:
            RunNotFound, RunBusy, CorruptLog, UnsupportedLog: as named.
            DecisionRefused: a decision that the run has no use for.
        """
        events, transcript = await self._load(run_id)
        own = await self._decide_below(run_id, transcript, start.decisions, start.wait_s)
        start = replace(start, decisions=own, below=await self._moved_below(transcript))
        if self._is_settled(transcript, start):
            approvals(run_id, transcript, start.decisions, time.time())
            return await self._stored(run_id, events, transcript)
        async with self._held(run_id, start.wait_s) as hold:
            events, transcript = await self._latest(run_id, events, transcript)
            words = approvals(run_id, transcript, start.decisions, time.time())
            if self._is_settled(transcript, start):
                return await self._stored(run_id, events, transcript)
            return await self._segment(hold, run_id, events, transcript, [], start, words=words)

    async def _moved_below(self, t: Transcript) -> bool:
        """Whether a sub-agent that this run waits for can go on, or has done so by itself."""
        if t.status not in WAITING:
            return False
        for c in t.open_calls:
            if c.child is not None:
                child = await self._child(c.child, t)
                if child.status != c.stopped or _is_decided(child) or await self._moved_below(child):
                    return True
        return False

    async def _nest(
        self, tracer: Observer | Tracer | None, agent: SubAgent, task: Task, message: str
    ) -> Outcome:
        """Have a sub-agent serve where this run is: in its store, under its rules, in its trace."""
        return await agent.serve(task, message, Place(self._access, tracer, self._spec.strict))

    async def serve(
        self,
        task: Task,
        message: str,
        place: Place,
        *,
        own: Budget | None = None,
        max_turns: int | None = None,
    ) -> Outcome:
        """The run of a sub-agent: begun, or gone on with where it stopped.

        Raises:
            StoreError: its log cannot be read or written, or somebody else has it for long.
        """
        spec = replace(
            self._spec,
            strict=place.strict,
            context=task.context if self._spec.context is None else self._spec.context,
        )
        runs = Runs(spec, place.access, self._version)
        start = Start(
            max_turns=max_turns,
            tracer=place.tracer,
            budget=task.budget,
            wait_s=CHILD_WAIT_S,
            parent={"run_id": task.run_id, "call_id": task.call_id},
            traceparent=task.traceparent,
        )
        try:
            if place.access is not None and await place.access.exists(task.child):
                result = await runs.resume(task.child, start)
            else:
                result = await runs.run([{"role": "user", "content": message}], task.child, start)
        except BaseException:
            await finish(_report(task, place.access))
            raise
        t = fold(result.events)
        task.report(t)
        if result.status == "completed":
            return Outcome(text=result.text)
        limited = own is not None and over(replace(t, budget=own.to_dict()), time.time()) is not None
        if result.status in WAITING or (result.status == "budget" and not limited):
            return Outcome()
        return Outcome(error=f"the sub-agent {spec.name!r} ended as {result.status}: {result.error}")

    async def follow_up(self, run_id: str, messages: list[Message], start: Start) -> RunResult:
        """A new message in a run whose last segment is over.

        Raises:
            ValueError: the run is unfinished, or waits for decisions.
            RunNotFound, RunBusy, CorruptLog, UnsupportedLog: as named.
        """
        events, transcript = await self._load(run_id)  # first: an unknown run leaves no lock file
        async with self._held(run_id, start.wait_s) as hold:
            events, transcript = await self._latest(run_id, events, transcript)
            if transcript.status in UNDER_WAY:
                raise ValueError(
                    f"run {run_id!r} is {transcript.status}; resume it to its end before a follow-up, "
                    "or fork it with the new message"
                )
            return await self._segment(hold, run_id, events, transcript, messages, start)

    async def fork(
        self,
        run_id: str,
        messages: list[Message],
        start: Start,
        *,
        at: int | None = None,
        at_turn: int | None = None,
        fork_id: str | None = None,
        edit: Mapping[int, Edit] | None = None,
        reuse: bool = False,
    ) -> RunResult:
        """Copy a run up to a step under a new id, and go on there; the parent is never touched.

        Raises:
            RunNotFound, RunExists, CorruptLog, UnsupportedLog: as named.
            ValueError: no such step, a turn whose results are not all there, or an edit that cannot be made.
        """
        access = self._store()
        fork_id = new_run_id() if fork_id is None else fork_id
        check_run_id(fork_id)
        parent, whole = await self._load(run_id)
        at = cut(run_id, parent, at, at_turn)
        if edit and at is None:
            at = takes_effect(parent, edit)
        before = whole if at is None else fold(parent[: at + 1])
        more: dict[str, Any] = {"reuse": True} if reuse else {}
        if edit:
            more["edits"] = self._clean(edits_of(run_id, parent, edit, len(parent) if at is None else at))
        refuse_change(self._spec, run_id, before, goes_on=not messages)  # before anything is copied
        async with self._held(fork_id) as hold:
            await access.fork(run_id, fork_id, at, parent, more or None)
            events, transcript = await self._load(fork_id)
            try:
                own_turns = start.max_turns is not None
                if not messages and self._is_settled(transcript, start, own_turns=own_turns):
                    copied = self._watch(fork_id, events, start, None)
                    copied.tell(events[-1])  # the marker: nothing else happens
                    copied.saved(events[-1].seq or 0)
                    return await self._stored(fork_id, events, transcript)
                start = replace(start, of_fork=True)
                return await self._segment(hold, fork_id, events, transcript, messages, start, own_turns=True)
            except BaseException as error:
                error.add_note(f"the fork is saved as run {fork_id!r}; resume it to go on")
                raise

    def _clean(self, edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        marker = Fork(edits=edits)
        shown = marker if self._spec.redact is None else self._spec.redact(marker)
        return (shown.edits or []) if isinstance(shown, Fork) else edits

    # --- one segment ----------------------------------------------------------------------------

    async def _segment(
        self,
        hold: Hold | None,
        run_id: str,
        events: list[Event],
        transcript: Transcript,
        messages: list[Message],
        start: Start,
        *,
        own_turns: bool = False,
        words: Sequence[Approval] = (),
    ) -> RunResult:
        journal = Journal(
            run_id,
            hold,
            next_seq=transcript.next_seq,
            strict=self._spec.strict,
            redact=self._spec.redact,
        )
        history = list(events)
        session = Session(
            self._spec,
            journal,
            transcript,
            events,
            stream=start.stream,
            nest=partial(self._nest, start.tracer),
            known=await self._known(events, transcript),
        )
        if transcript.starts >= self._spec.max_attempts:
            journal.watch = self._watch(run_id, history, start, None)
            session.end(
                "poisoned",
                error=f"it was started {transcript.starts} times in a row and never got an answer or "
                "a result; find out why, then fork it",
            )
        else:
            refuse_change(self._spec, run_id, transcript, goes_on=not messages)
            warn_of_change(self._spec, run_id, transcript)
            if messages:
                _close_open_calls(session)
            own_turns = own_turns or bool(messages)
            epoch = max(session.transcript.epoch + 1, (hold and hold.epoch) or 0)
            begin = self._run_start(session.transcript, messages, start, own_turns, epoch)
            begin = replace(begin, seq=journal.next_seq)
            journal.watch = self._watch(run_id, history, start, begin)
            session.record(replace(begin, traceparent=journal.watch.traceparent or begin.traceparent))
            for word in words:
                session.record(word)
        try:
            await session.drive()
        except BaseException as error:
            if journal.shown_id is not None:
                error.add_note(f"run {run_id!r}: resume it to go on")
            raise
        result = result_of(
            journal.shown_id,
            session.events,
            session.transcript,
            parse_output=self._spec.parse_output,
            durable=journal.durable,
            store_errors=journal.store_errors,
        )
        return await self._with_waiting(result, session.transcript)

    def _watch(self, run_id: str, events: list[Event], start: Start, begin: RunStart | None) -> Watch:
        store = None if self._access is None else self._access.store
        return Watch(
            run_id, stream=start.stream, tracer=start.tracer, events=events, start=begin, store=store
        )

    def _run_start(
        self, t: Transcript, messages: list[Message], start: Start, own_turns: bool, epoch: int
    ) -> RunStart:
        spec = self._spec
        has_system = t.has_system or any(m.get("role") == "system" for m in messages)
        return RunStart(
            agent=spec.name,
            model=spec.model_name,
            system=None if has_system else spec.instructions,
            messages=messages,
            format=None if t.next_seq else FORMAT,
            engine=self._version,
            fingerprint=fingerprint_of(spec),
            tools=new_definitions(spec, t) or None,
            output=new_output(spec, t),
            parent=start.parent if not t.next_seq else None,
            traceparent=start.traceparent,
            of_fork=start.of_fork or None,
            stream=True if start.stream and not t.streams else None,
            limits=self._limits(t, start.max_turns, own_turns),
            budget=self._budget(t, start),
            owner=spec.name,
            epoch=epoch,
            metadata=start.metadata,
            trace_group_id=start.trace_group_id,
            trace_metadata=start.trace_metadata,
        )

    def _limits(self, t: Transcript, max_turns: int | None, own_turns: bool) -> dict[str, int]:
        if own_turns:  # of a new run, a follow-up or a fork: this segment's turns alone
            allowed = self._turns_done(t) + (max_turns or self._spec.max_turns)
        else:  # of a resume: the whole run's; by default what the run was started with
            allowed = max_turns or t.limits.get("max_turns") or self._spec.max_turns
        return {"max_turns": allowed, "max_tool_failures": self._spec.max_tool_failures}

    def _budget(self, t: Transcript, start: Start) -> dict[str, Any] | None:
        """The one that was given; a new run has the agent's, and any other keeps its own."""
        if start.budget is not None or t.next_seq or self._spec.budget is None:
            return start.budget
        return self._spec.budget.to_dict()

    @staticmethod
    def _turns_done(t: Transcript) -> int:
        unanswered = t.last is not None and (t.last.error is not None or bool(t.open_calls))
        return t.turn - 1 if unanswered else t.turn

    # --- what a run needs now -------------------------------------------------------------------

    def _is_settled(self, t: Transcript, start: Start, *, own_turns: bool = False) -> bool:
        """True if a resume has nothing to do but to return what is stored."""
        if t.status in _FINAL:
            return True
        if t.status in WAITING:
            decided = start.below or _is_decided(t)
            waits = bool(pending(t)) or any(c.child is not None for c in t.open_calls)  # a fork may not
            return waits and not start.decisions and not decided
        end = t.end
        if isinstance(end, RunEnd) and end.error_type == OUTPUT_MISMATCH:
            return True
        if t.status == "budget":
            return over(replace(t, budget=self._budget(t, start) or t.budget), time.time()) is not None
        allowed = self._limits(t, start.max_turns, own_turns)["max_turns"]
        return t.status == "max_turns" and t.turn >= allowed

    async def _stored(self, run_id: str, events: list[Event], transcript: Transcript) -> RunResult:
        result = result_of(run_id, events, transcript, parse_output=self._spec.parse_output)
        return await self._with_waiting(result, transcript)

    async def _with_waiting(self, result: RunResult, t: Transcript) -> RunResult:
        """With what waits in the runs of its sub-agents, where it waits for them."""
        below = await self._below(t) if t.status in WAITING else []
        return replace(result, pending=[*result.pending, *below]) if below else result


def _is_decided(t: Transcript) -> bool:
    now = time.time()
    return any(c.decision is not None and not is_over(c.decision, now) for c in t.open_calls)


async def _report(task: Task, access: Access | None) -> None:
    with suppress(Exception):  # what went wrong is being raised
        if access is not None:
            task.report((await access.load(task.child))[1])


def _close_open_calls(session: Session) -> None:
    """A new message goes on from here: each open call gets a note in place of its result."""
    for c in session.transcript.open_calls:
        text = OVERTAKEN if c.attempt or c.in_doubt else NOT_RUN
        session.record(result_event(c, error=text, error_type=INTERRUPTED))
