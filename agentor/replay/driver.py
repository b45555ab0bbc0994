"""An agent driven through a recording, event by event, and what it does otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal  # Any: arguments are JSON

from agentor.engine.calls import (
    AgentSpec,
    Refused,
    Worker,
    checked,
    context_of,
    failed,
    request_schemas,
    run_tool,
)
from agentor.engine.children import SubAgent
from agentor.engine.compaction import Hook, Summary, compacted, summary_in
from agentor.engine.events import (
    Context,
    Event,
    Generation,
    RunEnd,
    RunStart,
    ToolCall,
    ToolResult,
)
from agentor.engine.messages import Message, parsed_arguments, raw_calls, split_message
from agentor.engine.opencalls import OpenCall
from agentor.engine.transcript import Transcript, advance
from agentor.engine.words import CANCEL, DISABLED, INTERRUPTED
from agentor.errors import ToolArgumentError
from agentor.replay.compare import (
    agent_differences,
    message_differences,
    model_difference,
    result_difference,
    settings_differences,
    text_of,
)
from agentor.replay.report import Difference, ReplayReport, Status, TurnReport

Tools = Literal["recorded", "live", "deny"]
Model = Literal["recorded", "live"]
_SENT = ("instructions", "message", "result", "compaction", "answer")  # what later requests hold too
_REFUSED = ("unknown_tool", "ToolArgumentError", DISABLED)  # error types of calls whose tool never ran


@dataclass(slots=True)
class _Turn:
    """One generation of the recording, while it is looked at."""

    turn: int
    seq: int
    found: list[Difference] = field(default_factory=list)
    carried: bool = False  # something that differed before differs in it too
    left: bool = False

    @property
    def report(self) -> TurnReport:
        status: Status = "changed" if self.found else "recorded" if self.carried else "same"
        return TurnReport(self.turn, self.seq, "left" if self.left else status, tuple(self.found))


class Driver:
    """One replay: two transcripts, the recorded one and that of the present agent, side by side.

    The second one is folded from the same events, with what the agent would have put there: its
    instructions, its shorter conversations, the results of its tools where they are live.
    """

    def __init__(
        self, spec: AgentSpec, run_id: str, events: Sequence[Event], tools: Tools, model: Model, strict: bool
    ) -> None:
        self._spec, self._run_id, self._events = spec, run_id, events
        self._tools, self._model, self._strict = tools, model, strict
        self._then, self._now = Transcript(), Transcript()
        self._turns: list[_Turn] = []
        self._known: list[Difference] = []  # reported so far
        self._early: list[Difference] = []  # found before the first turn, or between two
        self._notes: list[str] = []
        self._compared = (0, 0)  # messages of each request that are compared already
        self._lists: tuple[list[Message], list[Message]] | None = None  # that they were in
        self._shortened = False  # the conversation was, since the last request or start
        self._about: Any = None  # the fingerprint that the agent was compared with last
        self._about_found: list[Difference] = []
        self._starts_with: str | None = None  # the model that the segment began with
        self._called: dict[str, str] = {}  # the tool of each call id
        self._refused: dict[str, ToolResult | None] = {}  # by call id, what the agent says itself
        self._live: dict[str, ToolResult] = {}
        self._params: tuple[Any, Any, list[Difference]] = (None, None, [])

    async def drive(self) -> ReplayReport:
        """To the end of the recording, or to where it is left."""
        for event in self._events:
            present = await self._present(event)
            if self._turns and self._turns[-1].left and (self._strict or present is None):
                break
            self._then, _ = advance(self._then, event)
            self._now, _ = advance(self._now, event if present is None else present)
        self._flush()
        return ReplayReport(
            run_id=self._run_id,
            agent=self._spec.name,
            turns=tuple(turn.report for turn in self._turns),
            recorded_turns=sum(isinstance(e, Generation) for e in self._events),
            strict=self._strict,
            notes=tuple(dict.fromkeys(self._notes)),
        )

    async def _present(self, event: Event) -> Event | None:
        """The event as the present agent's log would have it; None where it cannot go on."""
        if isinstance(event, RunStart):
            return self._start(event)
        if isinstance(event, Context):
            return await self._context(event)
        if isinstance(event, Generation):
            return await self._generation(event)
        if isinstance(event, ToolCall):
            self._called[event.call_id] = event.name
            await self._call(event)
        elif isinstance(event, ToolResult):
            return self._result(event)
        elif isinstance(event, RunEnd):
            self._end(event)
        return event

    # --- what is found --------------------------------------------------------------------------

    def _find(self, found: Sequence[Difference], *, left: bool = False) -> None:
        if not self._turns:
            self._early += found
            return
        turn = self._turns[-1]
        for difference in found:
            if any(difference.repeats(known) for known in self._known):
                turn.carried = True
            else:
                self._known.append(difference)
                turn.found.append(difference)
        turn.left = turn.left or left

    def _flush(self) -> None:
        if self._turns and self._early:
            early, self._early = self._early, []
            self._find(early)

    # --- starts and requests --------------------------------------------------------------------

    def _start(self, event: RunStart) -> RunStart:
        self._shortened = False
        self._starts_with = event.model
        if event.engine is None:  # agentor 0.1
            return replace(event, messages=self._with_instructions(event.messages))
        limits = {**(event.limits or {}), "max_tool_failures": self._spec.max_tool_failures}
        has_system = self._now.has_system or any(m.get("role") == "system" for m in event.messages)
        return replace(event, system=None if has_system else self._spec.instructions, limits=limits)

    def _with_instructions(self, messages: list[Message]) -> list[Message]:
        """agentor 0.1 wrote the instructions as a message like any other."""
        told = self._spec.instructions
        if told is None or not messages or messages[0].get("role") != "system":
            return messages
        return [{**messages[0], "content": told}, *messages[1:]]

    async def _generation(self, event: Generation) -> Event | None:
        self._turns.append(_Turn(event.turn or len(self._turns) + 1, event.seq or 0))
        self._flush()
        is_old = "messages" in event.extra
        if is_old:
            old = event.extra["messages"]
            self._find(message_differences(old[:1], self._with_instructions(old)[:1], 0, {}))
        else:
            if not self._shortened:
                await self._unrecorded_context()
            self._check_digest(event)
            self._requests()
        self._shortened = False
        if self._about is not self._then.fingerprint:
            self._about, self._about_found = (
                self._then.fingerprint,
                agent_differences(self._spec, self._then),
            )
        self._find([*self._about_found, *model_difference(self._starts_with, self._spec)])
        if not self._then.fingerprint:
            self._notes.append(
                "the log does not say which tools the model was told of: they are not compared"
            )
        self._find(self._settings(event))
        if self._model == "live" and event.error is None:
            return await self._answer(event)
        if is_old:
            told = self._with_instructions(event.extra["messages"])
            return replace(event, extra={**event.extra, "messages": told})
        return event

    def _requests(self) -> None:
        then, now = self._then, self._now
        lists = (then.conversation, now.conversation)
        if self._lists is None or any(a is not b for a, b in zip(lists, self._lists, strict=True)):
            self._compared = (0, 0)
        old = then.conversation[self._compared[0] : then.length]
        new = now.conversation[self._compared[1] : now.length]
        self._find(message_differences(old, new, self._compared[0], self._called))
        self._compared = (then.length, now.length)
        self._lists = lists
        if any(known.kind in _SENT for known in self._known):
            self._turns[-1].carried = True

    def _check_digest(self, event: Generation) -> None:
        if event.sent is not None and event.sent != self._then.sent():
            what = (
                "the recorded messages, or their order, are not those that were sent (their digest differs)"
            )
            self._find([Difference("log", what)])

    def _settings(self, event: Generation) -> list[Difference]:
        if "messages" in event.extra or event.error is not None:
            return []  # agentor 0.1 wrote no settings, and a failed call has none
        old = event.params if event.params is not None else self._then.params
        model = self._spec.chosen(self._then.fallback)
        if not hasattr(model, "params"):
            if old:
                self._notes.append("the agent's model has no settings to look at: they are not compared")
            return []
        if self._params[0] is not old or self._params[1] is not model:
            probe = Generation(params=model.params)
            if self._spec.redact is not None:
                redacted = self._spec.redact(probe)  # as the log's are
                probe = redacted if isinstance(redacted, Generation) else probe
            self._params = (old, model, settings_differences(old or {}, probe.params or {}))
        return self._params[2]

    # --- shorter conversations ------------------------------------------------------------------

    async def _shorter(self, hook: Hook) -> list[Message] | None:
        try:
            made = await compacted(hook, self._now.messages, self._now.asked)
        except Exception as error:  # the user's own; a run goes on without it too
            self._find([Difference("compaction", f"compaction failed: {error!r}")])
            return None
        return None if made is None else made.messages

    async def _context(self, event: Context) -> Context:
        self._shortened = True
        hook = self._spec.compaction
        if isinstance(hook, Summary):
            hook = hook.answered(summary_in(event.messages))
        made = None if hook is None else await self._shorter(hook)
        self._lists = None
        if made is None:
            self._early_or_now(Difference("compaction", "the conversation is not made shorter here any more"))
            return event
        old, new = list(event.messages), made
        if old != new and self._then.messages == self._now.messages:
            for difference in message_differences(old, new, 0, self._called):
                self._early_or_now(
                    replace(difference, kind="compaction", what=f"compaction: {difference.what}")
                )
        return replace(event, messages=made)

    async def _unrecorded_context(self) -> None:
        hook = self._spec.compaction
        if hook is None:
            return
        if isinstance(hook, Summary):
            hook = hook.answered("…")
        if (made := await self._shorter(hook)) is None:
            return
        if len(made) != self._now.length:
            length = self._now.length
            what = f"the conversation is made shorter here: {len(made)} messages instead of {length}"
            self._find([Difference("compaction", what)])
            return
        for found in message_differences(self._now.messages, made, 0, self._called):
            self._find([replace(found, kind="compaction", what=f"compaction: {found.what}")])

    def _early_or_now(self, difference: Difference) -> None:
        """About the request that comes next, not the one before."""
        self._early.append(difference)

    # --- answers --------------------------------------------------------------------------------

    async def _answer(self, event: Generation) -> Event | None:
        model = self._spec.chosen(self._now.fallback)
        schemas = request_schemas(self._spec, self._now.disabled)
        try:
            response = await model.complete(self._now.messages, schemas, self._spec.response_format)
        except Exception as error:  # a custom model may raise anything
            self._find([Difference("answer", f"the model failed: {error!r}")], left=True)
            return None
        old, new = raw_calls(event.message), raw_calls(response.message)
        if _asked(old) != _asked(new):
            texts = (text_of(event.message), text_of(response.message))
            self._find([Difference("answer", "the model asks for other calls", *texts)], left=True)
            return None
        message = {**response.message}
        if old:
            message["tool_calls"] = old  # their ids are those that the results have
        elif event.answer != response.message.get("content"):
            self._find(
                [Difference("answer", "the model's text", event.answer, str(message.get("content") or ""))]
            )
        bare = replace(event, text=None, reasoning=None, calls=None, rest=None)
        return replace(bare, finish_reason=response.finish_reason, **split_message(message))

    # --- tools ----------------------------------------------------------------------------------

    async def _call(self, event: ToolCall) -> None:
        c = _open(self._now, event.call_id)
        if c is None:
            return
        if event.edited_args is not None:
            c = replace(c, edited_args=event.edited_args)
        self._refused.pop(event.call_id, None)
        try:
            tool, args = checked(c, self._spec, self._now.disabled)
        except Refused as refused:
            self._refused[event.call_id] = refused.result
            return
        context = context_of(c, args, Worker(self._run_id, self._now.epoch, self._spec.context))
        try:
            tool.check(args, context)
        except ToolArgumentError as error:
            self._refused[event.call_id] = failed(c, error, 0.0)
            return
        if self._tools != "deny" and event.attempt == 1:
            reason = await tool.approval_reason(args, context)
            label = f"{c.call.name} ({c.call.call_id})"
            if reason is not None and not c.requested:
                self._find([Difference("call", f"{label} waits for an approval now: {reason}")], left=True)
            elif reason is None and c.requested:
                self._find([Difference("call", f"{label} needs no approval any more")])
        if self._tools == "live" and not isinstance(tool, SubAgent):
            worker = Worker(self._run_id, self._now.epoch, self._spec.context)
            self._live[event.call_id] = await run_tool(c, tool, args, worker)

    def _result(self, event: ToolResult) -> ToolResult:
        by_hand = event.by is not None or event.error_type == INTERRUPTED
        refused = self._refused.pop(event.call_id, None)
        live = self._live.pop(event.call_id, None)
        if by_hand or event.by == CANCEL:
            return event
        recorded_refusal = event.error_type in _REFUSED
        label = f"{event.name} ({event.call_id})"
        if refused is not None and refused.content != event.content:
            what = f"{label} would not run: {refused.error}"
            self._find([Difference("call", what)], left=True)
        elif refused is None and recorded_refusal and live is None:
            self._find(
                [Difference("call", f"{label} would run now; it was refused: {event.error}")], left=True
            )
        elif live is not None and live.content != event.content:
            self._find([result_difference(event.name, event.call_id, event.content, live.content)])
            return replace(event, result=live.result, error=live.error, error_type=live.error_type)
        return event

    def _end(self, event: RunEnd) -> None:
        if self._spec.parse_output is None or event.text is None:
            return
        if event.status != "completed" and event.error_type != "OutputMismatch":
            return
        try:
            self._spec.parse_output(event.text)
            problem = None
        except ValueError as error:
            problem = str(error)
        if (problem is None) != (event.status == "completed"):
            what = "the answer fits the output type now" if problem is None else problem
            self._find([Difference("end", what)], left=problem is not None)


def _asked(calls: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Names and arguments, ids and spelling aside."""
    found = []
    for call in calls:
        function = call.get("function") or {}
        given = function.get("arguments") or "{}"
        found.append(
            (str(function.get("name")), parsed_arguments(given) if isinstance(given, str) else given)
        )
    return found


def _open(t: Transcript, call_id: str) -> OpenCall | None:
    return next((c for c in t.calls if c.call.call_id == call_id), None)
