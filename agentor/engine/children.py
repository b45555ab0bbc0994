"""Sub-agents: a tool call that is a run of another agent, with a log of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable  # Any: arguments are JSON, the context is the user's own

from agentor.engine.budget import Budget
from agentor.engine.calls import failed, result_event
from agentor.engine.events import Child, ToolResult
from agentor.engine.opencalls import OpenCall
from agentor.engine.policy import Decision
from agentor.engine.state import Transcript
from agentor.errors import StoreError, ToolArgumentError, ToolTimeout

BELOW = "/"  # between the id of a call and that of a call of its sub-agent
INPUT = "input"  # the argument that a sub-agent is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a sub-agent's run serves.

    Attributes:
        run_id, call_id: The parent's run, and its call.
        child: The id of the sub-agent's own run.
        budget: What the parent's run leaves it, as it stands in the log.
        traceparent: The span of the call, as a W3C header.
        report: Called with how the run stands, each time that it stops.
    """

    run_id: str
    call_id: str
    child: str
    context: Any
    budget: dict[str, Any] | None
    traceparent: str
    report: Callable[[Transcript], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sub-agent's run ended: with an answer, an error for the parent's model, or not yet (neither)."""

    text: str | None = None
    error: str | None = None


@runtime_checkable
class SubAgent(Protocol):
    """A tool that is an agent; `budget` is a limit of each of its runs."""

    budget: Budget | None
    timeout_s: float | None

    def serve(self, task: Task, message: str, /, *place: Any) -> Awaitable[Outcome]:
        """Run to the end, or go on where the run of this task stopped.

        Args:
            place: Where runs are, which is for whoever calls it to know.

        Raises:
            StoreError: its log cannot be read or written, or somebody else has it.
        """
        ...


Nest = Callable[[SubAgent, Task, str], Awaitable[Outcome]]  # `serve`, in the place where the parent's run is


def child_id(idempotency_key: str) -> str:
    """The run of a sub-agent's call: the same after a crash, another one for another call."""
    return f"child-{idempotency_key}"


def stand(c: OpenCall, task: Task, t: Transcript) -> Child:
    """How a sub-agent's run stands, as an event of its parent's."""
    return Child(
        child=task.child,
        call_id=c.call.call_id,
        turn=c.call.turn,
        index=c.call.index,
        status=t.status,
        error=getattr(t.end, "error", None) or getattr(t.end, "reason", None),
        usage=t.whole_usage if t.whole_usage.to_dict() else None,
        cost=t.whole_cost,
        turns=t.spent.turns,
        tool_calls=t.spent.tool_calls,
        active_s=round(t.spent.seconds_active, 3),
    )


async def served(
    c: OpenCall, agent: SubAgent, args: Mapping[str, Any], task: Task, nest: Nest
) -> ToolResult | None:
    """The result of a sub-agent's call; None where its run stopped, and waits.

    Raises:
        StoreError: as `SubAgent.serve`.
    """
    started, message = time.perf_counter(), args.get(INPUT)
    if not isinstance(message, str):
        return failed(c, ToolArgumentError(f"{INPUT!r} must be a text"), started)
    try:
        async with asyncio.timeout(agent.timeout_s):
            outcome = await nest(agent, task, message)
    except TimeoutError:
        return failed(c, ToolTimeout(f"no result after {agent.timeout_s:g} s"), started)
    except StoreError:
        raise
    except Exception as error:  # the edge: a model, or a setting, of the sub-agent's
        return failed(c, error, started)
    if outcome.text is None and outcome.error is None:
        return None
    error_type = None if outcome.error is None else "SubAgentFailed"
    elapsed = round(time.perf_counter() - started, 4)
    return result_event(c, result=outcome.text, error=outcome.error, error_type=error_type, elapsed=elapsed)


def split(
    decisions: Mapping[str, Decision], t: Transcript
) -> tuple[dict[str, Decision], dict[str, dict[str, Decision]]]:
    """Decisions about a run's own calls, and by run id those about its sub-agents'."""
    own, below = dict[str, Decision](), dict[str, dict[str, Decision]]()
    children = prefixes(t)
    for call_id, decision in decisions.items():
        child = next((child for child, prefix in children.items() if call_id.startswith(prefix)), None)
        if child is None:
            own[call_id] = decision
        else:
            below.setdefault(child, {})[call_id.removeprefix(children[child])] = decision
    return own, below


def prefixes(t: Transcript) -> dict[str, str]:
    """By run id of each sub-agent that has not ended, what goes before the ids of its calls.

    Providers' own ids may hold any character, so a prefix is quoted, and no id of the turn begins with it.
    """
    found, ids = dict[str, str](), [c.call.call_id for c in t.calls]
    for c in t.open_calls:
        if c.child is not None:
            prefix = c.call.call_id.replace("%", "%25").replace(BELOW, "%2F") + BELOW
            while any(call_id.startswith(prefix) for call_id in ids):
                prefix += BELOW
            found[c.child] = prefix
    return found
