"""The loop: from the transcript alone to the next step, until a segment is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any  # arguments are JSON

from agentor.engine.asking import Asking
from agentor.engine.budget import for_child, over
from agentor.engine.calls import (
    AgentSpec,
    Refused,
    Worker,
    checked,
    context_of,
    reconciled,
    request_event,
    result_event,
    run_tool,
)
from agentor.engine.cancel import CancelWatch
from agentor.engine.children import Nest, SubAgent, Task, child_id, served, stand
from agentor.engine.decisions import names_of
from agentor.engine.events import Child, Event, Rewind, ToolCall, ToolResult
from agentor.engine.journal import GRACE_S, Journal, finish
from agentor.engine.lineage import root_of
from agentor.engine.opencalls import OpenCall
from agentor.engine.policy import plan
from agentor.engine.recording import Recording
from agentor.engine.reuse import RECORDED, Known
from agentor.engine.spans import span_id
from agentor.engine.transcript import Transcript
from agentor.engine.words import CANCELLED, DENIED, INTERRUPTED
from agentor.errors import StoreError
from agentor.tools import Tool

OUTPUT_MISMATCH = "OutputMismatch"  # error_type of a run whose answer is not of its output_type
_CUT_OFF = {"length": "truncated", "content_filter": "filtered"}  # finish_reason -> status


class Session(Recording):
    """One segment of a run while it happens, with its tools in flight."""

    def __init__(
        self,
        spec: AgentSpec,
        journal: Journal,
        transcript: Transcript,
        events: list[Event],
        *,
        stream: Callable[[Event], None] | None = None,
        nest: Nest | None = None,
        known: Known | None = None,
    ) -> None:
        super().__init__(spec, journal, transcript, events)
        self._known = known
        self._nest = nest
        self._stands: dict[str, Child] = {}  # how they stand, by call id, until that is recorded
        self._asking = Asking(self, stream)
        self._reconciled: set[str] = set()  # calls whose tools were asked, in this segment
        self._running: dict[asyncio.Task[ToolResult | None], OpenCall] = {}

    async def drive(self) -> None:
        """Go on until the segment is over; every way out is recorded.

        Raises:
            StoreError: as `Journal.commit`.
        """
        watch = CancelWatch(self.journal.hold)
        try:
            async with watch:
                while self.transcript.end is None:
                    await self._step()
                await self.journal.commit()
        except StoreError:
            # Nothing new starts; what is under way gets its chance to be saved after all.
            await finish(self._give_up())
            raise
        except asyncio.CancelledError:
            await finish(self._interrupt(watch.reason or CANCELLED, cancelled=True))
            if not watch.heeded():
                raise
        except BaseException as error:
            await finish(self._interrupt(repr(error)))
            raise

    async def _step(self) -> None:
        t = self.transcript
        last = t.last
        if (reason := over(t, self.journal.now())) is not None:
            self.end("budget", error=f"{reason}; resume(run_id, budget=Budget(...)) raises it")
        elif last is None or last.error is not None:
            turn = t.turn + 1 if last is None else t.turn
            limit = t.limits.get("max_turns", self.spec.max_turns)
            if turn > limit:
                self.end("max_turns", error=f"no final answer after max_turns={limit} turns")
            else:
                await self._asking.generate(turn)
        elif last.finish_reason in _CUT_OFF:
            status = _CUT_OFF[last.finish_reason]
            self.end(status, text=last.text, error=f"the answer ended by {last.finish_reason!r}")
        elif t.calls:
            await self._settle()
        else:
            self._answer(last.answer)

    # --- the end --------------------------------------------------------------------------------

    def _answer(self, text: str) -> None:
        if self.spec.parse_output is not None:
            try:
                self.spec.parse_output(text)
            except ValueError as error:
                self.end("failed", text=text, error=str(error), error_type=OUTPUT_MISMATCH)
                return
        self.end("completed", text=text)

    # --- tools ----------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Act on the plan for the open calls: rewind, note, run, or stop and ask."""
        if self._reuse() or await self._reconcile():
            return
        gated = await self._gated()
        chosen = plan(self.transcript, self.spec.on_crash, gated, self.journal.now())
        last = self.transcript.last
        if chosen.rewind and last is not None:
            self.record(Rewind(to=last.seq or 0, reason="no call of this turn has a result"))
            return
        for c, text in chosen.happened:
            self.record(result_event(c, result=text, by="decision"))
        for c, text in chosen.denied:
            self.record(result_event(c, error=f"denied: {text}", error_type=DENIED, by="decision"))
        for c, text in chosen.notes:
            self.record(result_event(c, error=text, error_type=INTERRUPTED))
        if chosen.run:
            await self._run_calls(chosen.run)
        elif self.transcript.calls and (chosen.request or chosen.wait):
            self._stop_and_ask(chosen.request, chosen.wait, gated)

    def _stop_and_ask(
        self, request: tuple[OpenCall, ...], wait: tuple[OpenCall, ...], gated: Mapping[str, str]
    ) -> None:
        limited = [c for c in wait if c.stopped == "budget"]
        if limited:
            why = "; ".join(
                f"{c.call.name}: {self.transcript.children[c.child or ''].error}" for c in limited
            )
            self.end("budget", error=f"sub-agents have spent their share: {why}")
            return
        for c in request:
            self.record(request_event(c, gated[c.call.call_id]))
        doubts = [c for c in wait if (c.in_doubt and c.child is None) or c.stopped == "in_doubt"]
        if doubts:
            self.end(
                "in_doubt",
                error=f"interrupted calls may or may not have happened: {names_of(doubts)}; resume with "
                "decisions={call_id: Happened(result) | NotHappened() | Deny(why)}",
            )
        else:
            self.end(
                "paused",
                error=f"calls wait for an approval: {names_of([*wait, *request])}; resume with "
                "decisions={call_id: Approve() | Deny(why)}",
            )

    def _reuse(self) -> bool:
        """Answer calls as the run did that this one is a fork of; True if that answered one."""
        answered = False
        for c in self.transcript.open_calls if self._known is not None else ():
            if c.attempt and not c.elsewhere:
                continue  # the fork's own has started
            try:
                _, args = checked(c, self.spec, self.transcript.disabled)
            except Refused:
                continue
            if self._known is not None and (was := self._known.take(c.call.name, args)) is not None:
                given = result_event(c, result=was.result, error=was.error, error_type=was.error_type)
                self.record(replace(given, by=RECORDED, taken_from=was.seq))
                answered = True
        return answered

    async def _reconcile(self) -> bool:
        """Ask the outside world about calls in doubt whose tools can; True if that decided something."""
        decided = False
        for c in self.transcript.open_calls:
            tool = self.spec.tools.get(c.call.name)
            asked = c.call.call_id in self._reconciled or not c.in_doubt or c.decision is not None
            if tool is None or tool.reconcile is None or asked:
                continue
            self._reconciled.add(c.call.call_id)
            word = await reconciled(c, tool, self._worker)
            if word is not None:
                self.record(word)
                decided = True
        return decided

    async def _gated(self) -> dict[str, str]:
        """By call id, why a call that has not started needs an approval first."""
        gated = {}
        for c in self.transcript.open_calls:
            if c.in_doubt or c.requested or c.attempt:
                continue
            try:
                tool, args = checked(c, self.spec, self.transcript.disabled)
            except Refused:
                continue  # it will not start anyway
            if (reason := await tool.approval_reason(args, context_of(c, args, self._worker))) is not None:
                gated[c.call.call_id] = reason
        return gated

    @property
    def _worker(self) -> Worker:
        return Worker(self.journal.run_id, self.transcript.epoch, self.spec.context)

    async def _run_calls(self, calls: tuple[OpenCall, ...]) -> None:
        ready: list[tuple[OpenCall, Tool, dict[str, Any]]] = []
        started: dict[str, int] = {}  # seq of each call's start, by call id
        for c in calls:
            call, refused, child = c.call, None, None
            try:
                tool, args = checked(c, self.spec, self.transcript.disabled)
                ready.append((c, tool, args))
                if isinstance(tool, SubAgent):
                    child = child_id(context_of(c, args, self._worker).idempotency_key)
            except Refused as error:
                refused = error
            started[call.call_id] = self.journal.next_seq
            self.record(
                ToolCall(
                    name=call.name,
                    call_id=call.call_id,
                    turn=call.turn,
                    index=call.index,
                    attempt=c.attempt + 1,
                    edited_args=c.edited_args,
                    child=child,
                )
            )
            if refused is not None:
                self.record(refused.result)
        await self.journal.commit()  # write-ahead: the calls are on disk before any body runs
        agents = [c.call.call_id for c, tool, _ in ready if isinstance(tool, SubAgent)]
        for c, tool, args in ready:
            work = self._run_call(c, tool, args, started[c.call.call_id], agents)
            self._running[asyncio.create_task(work)] = c
        while self._running:
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            self._record_results(done)
            await self.journal.commit()  # each result when it is there, not when the turn is over

    async def _run_call(
        self, c: OpenCall, tool: Tool, args: dict[str, Any], seq: int, agents: list[str]
    ) -> ToolResult | None:
        with self.journal.watch.use_span(seq):
            if isinstance(tool, SubAgent):
                assert self._nest is not None
                return await served(c, tool, args, self._task(c, tool, args, seq, agents), self._nest)
            return await run_tool(c, tool, args, self._worker)

    def _task(self, c: OpenCall, tool: SubAgent, args: dict[str, Any], seq: int, agents: list[str]) -> Task:
        child, place = (
            child_id(context_of(c, args, self._worker).idempotency_key),
            agents.index(c.call.call_id),
        )
        root = root_of(self.journal.run_id, self.events)

        def report(t: Transcript) -> None:
            self._stands[c.call.call_id] = stand(c, task, t)

        task = Task(
            run_id=self.journal.run_id,
            call_id=c.call.call_id,
            child=child,
            context=self.spec.context,
            budget=for_child(self.transcript, child, place, len(agents), tool.budget),
            traceparent=replace(root, span_id=span_id(self.journal.run_id, seq)).traceparent,
            report=report,
        )
        return task

    def _record_results(self, done: set[asyncio.Task[ToolResult | None]]) -> None:
        """Record what these calls came to, in the order in which they started.

        Raises:
            StoreError: of a sub-agent's run.
        """
        order = {task: place for place, task in enumerate(self._running)}
        failures = list[BaseException]()
        for task in sorted(done, key=order.__getitem__):
            c = self._running.pop(task)
            if (child := self._stands.pop(c.call.call_id, None)) is not None:
                self.record(child)
            if task.cancelled():
                continue
            if (error := task.exception()) is not None:
                failures.append(error)
            elif (result := task.result()) is not None:
                self.record(result)
        if failures:
            raise failures[0]

    # --- ways out -------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for the tools in flight, at most `GRACE_S`, and record what they give."""
        if self._running:
            done, late = await asyncio.wait(self._running, timeout=GRACE_S)
            with suppress(StoreError):  # of a sub-agent: another failure is being raised
                self._record_results(done)
            for task in late:
                task.cancel()

    async def _give_up(self) -> None:
        await self._drain()
        try:
            await self.journal.commit()
        except StoreError:
            return  # the first failure is being raised, and says what to do

    async def _interrupt(self, reason: str, *, cancelled: bool = False) -> None:
        for task, c in self._running.items():
            if self.spec.tools[c.call.name].is_async:  # a thread cannot be stopped, only waited for
                task.cancel()
        await self._drain()
        if self.transcript.end is None:
            self.cut_off(reason, cancelled=cancelled)
        await self._give_up()
