"""The loop: from the transcript alone to the next step, until a segment is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any  # arguments are JSON

from agentor.engine.budget import over
from agentor.engine.calls import (
    AgentSpec,
    Refused,
    Worker,
    checked,
    context_of,
    name_of,
    reconciled,
    request_event,
    result_event,
    run_tool,
)
from agentor.engine.decisions import names_of
from agentor.engine.events import (
    Event,
    Generation,
    Interrupted,
    Retry,
    Rewind,
    RunEnd,
    TextDelta,
    ToolCall,
    ToolResult,
)
from agentor.engine.journal import GRACE_S, Journal, finish
from agentor.engine.messages import split_message
from agentor.engine.models import Model, ModelResponse
from agentor.engine.opencalls import OpenCall
from agentor.engine.policy import DENIED, INTERRUPTED, plan, retry_wait_s
from agentor.engine.spans import MODEL
from agentor.engine.transcript import Transcript, advance
from agentor.errors import ModelError, StoreError, as_model_error
from agentor.tools import Tool

OUTPUT_MISMATCH = "OutputMismatch"  # error_type of a run whose answer is not of its output_type
_CUT_OFF = {"length": "truncated", "content_filter": "filtered"}  # finish_reason -> status


class Session:
    """One segment of a run while it happens: its journal, its transcript, its tools in flight."""

    def __init__(
        self,
        spec: AgentSpec,
        journal: Journal,
        transcript: Transcript,
        events: list[Event],
        *,
        stream: Callable[[Event], None] | None = None,
    ) -> None:
        self.spec, self.journal = spec, journal
        self.transcript, self.events = transcript, events
        self._stream = stream
        self._reconciled: set[str] = set()  # calls whose tools were asked, in this segment
        self._params: dict[str, Any] | None = None  # those of the last generation, as they were
        self._running: dict[asyncio.Task[ToolResult], OpenCall] = {}

    def record(self, event: Event) -> None:
        """Number an event and fold it; it is saved with the next commit, before anything acts."""
        self.transcript, seen = advance(self.transcript, self.journal.add(event))
        self.events.append(seen)
        self.journal.show(seen)

    async def drive(self) -> None:
        """Go on until the segment is over; every way out is recorded.

        Raises:
            StoreError: as `Journal.commit`.
        """
        try:
            while self.transcript.end is None:
                await self._step()
            await self.journal.commit()
        except StoreError:
            # Nothing new starts; what is under way gets its chance to be saved after all.
            await finish(self._give_up())
            raise
        except BaseException as error:
            reason = "cancelled" if isinstance(error, asyncio.CancelledError) else repr(error)
            await finish(self._interrupt(reason))
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
                await self._generate(turn)
        elif last.finish_reason in _CUT_OFF:
            status = _CUT_OFF[last.finish_reason]
            self.end(status, text=last.text, error=f"the answer ended by {last.finish_reason!r}")
        elif t.calls:
            await self._settle()
        else:
            self._answer(last.answer)

    # --- the model ------------------------------------------------------------------------------

    async def _generate(self, turn: int) -> None:
        await self.journal.commit()  # the model is only ever sent what is on disk
        attempt, model = 1, self.spec.chosen(self.transcript.fallback)
        opened = self.journal.next_seq  # the first event about this model's call names its span
        while True:
            started = time.perf_counter()
            try:
                with self.journal.watch.use_span(opened, MODEL):
                    response, first_s = await self._ask(model, turn, started)
                break
            except asyncio.CancelledError:
                self._record_cancelled(turn, model, time.perf_counter() - started)
                raise
            except Exception as error:  # a custom model may raise anything
                failure = as_model_error(error)
                wait_s = retry_wait_s(failure, attempt)
                fallback = self.spec.next_after(model) if wait_s is None else None
                elapsed = round(time.perf_counter() - started, 4)
                if wait_s is None and fallback is None:
                    self._record_failure(turn, model, failure, elapsed)
                    return
                self.record(
                    Retry(
                        turn=turn,
                        attempt=attempt,
                        error=str(failure),
                        error_type=failure.error_type,
                        wait_s=wait_s,
                        model=name_of(model),
                        elapsed=elapsed,
                        fallback=None if fallback is None else name_of(fallback),
                    )
                )
                await self.journal.commit()
                await asyncio.sleep(wait_s or 0)
                attempt += 1
                if fallback is not None:
                    attempt, model, opened = 1, fallback, self.journal.next_seq
        elapsed = round(time.perf_counter() - started, 4)
        self._record_answer(turn, model, response, first_s, elapsed)

    async def _ask(self, model: Model, turn: int, started: float) -> tuple[ModelResponse, float | None]:
        messages = self.transcript.messages
        tools = [
            tool.schema for name, tool in self.spec.tools.items() if name not in self.transcript.disabled
        ] or None
        if not self.transcript.streams:
            return await model.complete(messages, tools, self.spec.response_format), None
        first_s: float | None = None
        chunks = model.stream(messages, tools, self.spec.response_format)
        try:
            async for chunk in chunks:
                if first_s is None:
                    first_s = round(time.perf_counter() - started, 4)
                if self._stream is not None and (chunk.text or chunk.reasoning):
                    run_id, text = self.journal.shown_id, chunk.text
                    self._stream(TextDelta(turn=turn, text=text, reasoning=chunk.reasoning, run_id=run_id))
                if chunk.final is not None:
                    return chunk.final, first_s
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        raise ModelError("the stream ended early", error_type="LostStream", retryable=True)

    def _record_answer(
        self, turn: int, model: Model, response: ModelResponse, first_s: float | None, elapsed: float
    ) -> None:
        params = getattr(model, "params", None) or {}
        known = params in (self._params, self.transcript.params or {})  # the log's may be redacted
        self._params = params
        self.record(
            Generation(
                turn=turn,
                model=response.model or name_of(model),
                **split_message(response.message),
                usage=response.usage if response.usage.to_dict() else None,
                cost=response.cost,
                finish_reason=response.finish_reason,
                raw_finish_reason=response.raw_finish_reason,
                response_id=response.response_id,
                estimated=response.estimated or None,
                left_out=response.left_out or None,
                params=None if known else params,
                sent=self.transcript.sent(),
                time_to_first_chunk=first_s,
                elapsed=elapsed,
            )
        )

    def _record_failure(self, turn: int, model: Model, failure: ModelError, elapsed: float) -> None:
        self.record(
            Generation(
                turn=turn,
                model=name_of(model),
                error=str(failure),
                error_type=failure.error_type,
                elapsed=elapsed,
            )
        )
        self.end("failed", error=str(failure), error_type=failure.error_type)

    def _record_cancelled(self, turn: int, model: Model, took_s: float) -> None:
        """The call was on its way: its tokens may be paid for, and nobody knows how many."""
        self.record(
            Generation(
                turn=turn,
                model=name_of(model),
                error="the model call was cancelled",
                error_type="cancelled",
                elapsed=round(took_s, 4),
            )
        )

    # --- the end --------------------------------------------------------------------------------

    def _answer(self, text: str) -> None:
        if self.spec.parse_output is not None:
            try:
                self.spec.parse_output(text)
            except ValueError as error:
                self.end("failed", text=text, error=str(error), error_type=OUTPUT_MISMATCH)
                return
        self.end("completed", text=text)

    def end(
        self,
        status: str,
        *,
        text: str | None = None,
        error: str | None = None,
        error_type: str | None = None,
    ) -> None:
        """Record the end of the segment, with the figures of the whole run."""
        t = self.transcript
        self.record(
            RunEnd(
                status=status,
                text=text,
                usage=t.usage if t.usage.to_dict() else None,
                cost=t.cost,
                turns=t.turn,
                error=error,
                error_type=error_type,
            )
        )

    # --- tools ----------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Act on the plan for the open calls: rewind, note, run, or stop and ask."""
        if await self._reconcile():
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
        for c in request:
            self.record(request_event(c, gated[c.call.call_id]))
        doubts = [c for c in wait if c.in_doubt]
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
            call = c.call
            started[call.call_id] = self.journal.next_seq
            self.record(
                ToolCall(
                    name=call.name,
                    call_id=call.call_id,
                    turn=call.turn,
                    index=call.index,
                    attempt=c.attempt + 1,
                    edited_args=c.edited_args,
                )
            )
            try:
                ready.append((c, *checked(c, self.spec, self.transcript.disabled)))
            except Refused as refused:
                self.record(refused.result)
        await self.journal.commit()  # write-ahead: the calls are on disk before any body runs
        for c, tool, args in ready:
            self._running[asyncio.create_task(self._run_call(c, tool, args, started[c.call.call_id]))] = c
        while self._running:
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            self._record_results(done)
            await self.journal.commit()  # each result when it is there, not when the turn is over

    async def _run_call(self, c: OpenCall, tool: Tool, args: dict[str, Any], seq: int) -> ToolResult:
        with self.journal.watch.use_span(seq):
            return await run_tool(c, tool, args, self._worker)

    def _record_results(self, done: set[asyncio.Task[ToolResult]]) -> None:
        order = {task: place for place, task in enumerate(self._running)}
        for task in sorted(done, key=order.__getitem__):
            del self._running[task]
            if not task.cancelled() and task.exception() is None:
                self.record(task.result())

    # --- ways out -------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for the tools in flight, at most `GRACE_S`, and record what they give."""
        if self._running:
            done, late = await asyncio.wait(self._running, timeout=GRACE_S)
            self._record_results(done)
            for task in late:
                task.cancel()

    async def _give_up(self) -> None:
        await self._drain()
        try:
            await self.journal.commit()
        except StoreError:
            return  # the first failure is being raised, and says what to do

    async def _interrupt(self, reason: str) -> None:
        for task, c in self._running.items():
            if self.spec.tools[c.call.name].is_async:  # a thread cannot be stopped, only waited for
                task.cancel()
        await self._drain()
        if self.transcript.end is None:
            started = [c.call.call_id for c in self.transcript.open_calls if c.attempt]
            self.record(Interrupted(reason=reason, in_doubt=started))
        await self._give_up()
