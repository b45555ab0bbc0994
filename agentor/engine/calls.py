"""One tool call: checked, run, and its outcome as an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any  # arguments are JSON, the context is the user's own

from agentor.engine.budget import Budget
from agentor.engine.compaction import Hook
from agentor.engine.events import Approval, ApprovalRequest, Event, ToolResult
from agentor.engine.messages import digest
from agentor.engine.models import Model
from agentor.engine.opencalls import OpenCall
from agentor.engine.policy import Happened, NotHappened
from agentor.engine.words import DISABLED
from agentor.errors import ToolArgumentError
from agentor.tools import Tool, ToolContext, parse_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What the engine needs to know of an agent."""

    name: str
    model: Model
    fallbacks: tuple[Model, ...] = ()
    instructions: str | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    response_format: dict[str, Any] | None = None
    parse_output: Callable[[str], Any] | None = None
    max_turns: int = 20
    max_tool_failures: int = 2
    max_attempts: int = 5  # run_starts in a row that came to nothing; the run is poisoned then
    context: Any = None
    strict: bool = False
    budget: Budget | None = None  # of a new run
    compaction: Hook | None = None
    on_change: str = "warn"  # where another agent wrote the run: warn, refuse, accept
    redact: Callable[[Event], Event] | None = None  # what every event passes before it is numbered

    @property
    def model_name(self) -> str:
        return name_of(self.model)

    @property
    def model_names(self) -> list[str]:
        return [name_of(model) for model in (self.model, *self.fallbacks)]

    def chosen(self, fallback: str | None) -> Model:
        """The model that a run goes on with: the fallback of this name, else the first one."""
        return next((m for m in self.fallbacks if name_of(m) == fallback), self.model)

    def next_after(self, model: Model) -> Model | None:
        """The model to ask once this one has failed for good."""
        models = [self.model, *self.fallbacks]
        place = models.index(model) + 1
        return models[place] if place < len(models) else None

    def keeps_doubt(self, tool_name: str) -> bool:
        """Whether a call that was cut off stays in doubt, also where its run is cancelled."""
        tool = self.tools.get(tool_name)
        return tool is None or tool.on_crash in ("ask", "retry") or tool.reconcile is not None

    def on_crash(self, tool_name: str) -> str:
        tool = self.tools.get(tool_name)
        return "rewind" if tool is None else tool.on_crash


def request_schemas(spec: AgentSpec, disabled: Collection[str]) -> list[dict[str, Any]] | None:
    """The tools that a request shows to the model; None where there are none."""
    return [tool.schema for name, tool in spec.tools.items() if name not in disabled] or None


def name_of(model: Model) -> str:
    """What a model is called in the log."""
    return str(getattr(model, "model", None) or type(model).__name__)


class Refused(Exception):
    """A call that does not start; `result` tells the model why."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.error)
        self.result = result


def checked(c: OpenCall, spec: AgentSpec, disabled: frozenset[str]) -> tuple[Tool, dict[str, Any]]:
    """The tool and the arguments of a call that may start.

    Raises:
        Refused: an unknown tool, one that is switched off, or arguments that are no JSON object.
    """
    name = c.call.name
    tool = spec.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(spec.tools)) or "none"
        text = f"there is no tool {name!r}; available tools: {known}"
        raise Refused(result_event(c, error=text, error_type="unknown_tool"))
    if name in disabled:
        text = f"the tool {name!r} is switched off after repeated failures"
        raise Refused(result_event(c, error=text, error_type=DISABLED))
    try:
        return tool, c.edited_args if c.edited_args is not None else parse_arguments(c.call.arguments)
    except ToolArgumentError as error:
        raise Refused(result_event(c, error=str(error), error_type="ToolArgumentError")) from None


@dataclass(frozen=True, slots=True)
class Worker:
    """Who runs a call: the run, the epoch of the worker's lease, and the user's own context."""

    run_id: str
    epoch: int
    context: Any


def context_of(c: OpenCall, args: dict[str, Any], worker: Worker) -> ToolContext:
    """What a tool may know of the call that it serves."""
    call = c.call
    return ToolContext(
        run_id=worker.run_id,
        call_id=call.call_id,
        turn=call.turn,
        attempt=c.attempt + 1,
        idempotency_key=digest([worker.run_id, call.turn, call.index, call.name, args])[:32],
        fencing_token=worker.epoch,
        context=worker.context,
    )


async def run_tool(c: OpenCall, tool: Tool, args: dict[str, Any], worker: Worker) -> ToolResult:
    """Run the body; whatever it raises, or what comes before it, is the model's to handle.

    Nothing but a cancellation may get out: the loop would plan a call without a result again, for ever.
    """
    started = time.perf_counter()
    try:
        text = await tool.run(args, context_of(c, args, worker))
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return failed(c, error, started)  # the tool's own, not ours
    except Exception as error:  # the edge: a tool may raise anything
        return failed(c, error, started)
    return result_event(c, result=text, elapsed=round(time.perf_counter() - started, 4))


async def reconciled(c: OpenCall, tool: Tool, worker: Worker) -> Approval | None:
    """What the tool's `reconcile` says of a call in doubt; None where it cannot tell."""
    call = c.call
    try:
        args = c.edited_args if c.edited_args is not None else parse_arguments(call.arguments)
        # The attempt that is in doubt is the one before the next.
        word = await tool.reconciled(args, replace(context_of(c, args, worker), attempt=c.attempt))
    except Exception:  # the edge: it could not find out
        return None
    about: dict[str, Any] = {"call_id": call.call_id, "turn": call.turn, "index": call.index}
    about |= {"hash": call.hash, "by": "reconcile", "reason": getattr(word, "reason", None)}
    if isinstance(word, Happened):
        return Approval(**about, decision="happened", result=word.result)
    if isinstance(word, NotHappened):
        return Approval(**about, decision="not_happened")
    return None


def request_event(c: OpenCall, reason: str) -> ApprovalRequest:
    """The event that asks a person about a call."""
    call = c.call
    return ApprovalRequest(
        name=call.name,
        call_id=call.call_id,
        turn=call.turn,
        index=call.index,
        hash=call.hash,
        reason=reason,
    )


def failed(c: OpenCall, error: BaseException, started: float) -> ToolResult:
    """The result of a call that raised."""
    name = type(error).__name__
    text = str(error) if isinstance(error, ToolArgumentError) else f"{name}: {error}"
    elapsed = round(time.perf_counter() - started, 4)
    return result_event(c, error=text, error_type=name, elapsed=elapsed)


def result_event(
    c: OpenCall,
    *,
    result: str | None = None,
    error: str | None = None,
    error_type: str | None = None,
    elapsed: float | None = None,
    by: str | None = None,
) -> ToolResult:
    """The event that ends a call."""
    call = c.call
    return ToolResult(
        name=call.name,
        call_id=call.call_id,
        turn=call.turn,
        index=call.index,
        result=result,
        error=error,
        error_type=error_type,
        elapsed=elapsed,
        by=by,
    )
