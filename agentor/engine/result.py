"""`RunResult`: what a run's events come to for the caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any  # final_output is whatever output_type is

from agentor.engine.budget import left
from agentor.engine.decisions import Pending, pending
from agentor.engine.events import Event, RunEnd, ToolCall
from agentor.engine.lineage import root_of
from agentor.engine.messages import Message, Usage
from agentor.engine.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The state of a run, over all its segments.

    Attributes:
        run_id: Give it to `resume`, `fork` or `continue_run`; None without a store.
        final_output: The answer's text, or the validated object where the agent has an
            `output_type`; None where there is no answer.
        status: `completed`, `max_turns`, `failed`, `truncated`, `filtered`, `in_doubt`,
            `cancelled`, `poisoned` …; `error` says why it is not `completed`.
        left: What the run's budget still allows, by the names of `Budget`; empty without one.
        pending: The calls that wait for a decision: an approval, or what became of a call in doubt.
        events: Every event of the run, oldest first.
        messages: The conversation, system message included.
        usage, cost: Of the whole run; `cost` in US dollars, None where no price is known.
        durable: True if every event is in the store; else `store_errors` says why not.
    """

    run_id: str | None = None
    final_output: Any = None
    status: str = "completed"
    pending: list[Pending] = field(default_factory=list)
    left: dict[str, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list, repr=False)
    messages: list[Message] = field(default_factory=list, repr=False)
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    error: str | None = None
    durable: bool = False
    store_errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The answer's text; empty where there is none."""
        end = next((e for e in reversed(self.events) if isinstance(e, RunEnd)), None)
        return (end.text if end is not None else None) or ""

    @property
    def trace_id(self) -> str | None:
        """Of the trace that the run begins in, 32 hex digits, for links and scores; None without a store."""
        return None if self.run_id is None else root_of(self.run_id, self.events).trace_id

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Each start of a tool call, oldest first."""
        return [e for e in self.events if isinstance(e, ToolCall)]


def result_of(
    run_id: str | None,
    events: list[Event],
    transcript: Transcript,
    *,
    parse_output: Callable[[str], Any] | None = None,
    durable: bool = True,
    store_errors: list[str] | None = None,
) -> RunResult:
    """The result of a run whose events and transcript are at hand.

    Raises:
        ValueError: a completed run's answer is not of this agent's `output_type` (another one wrote it).
    """
    end = transcript.end
    output: Any = end.text if isinstance(end, RunEnd) else None
    if parse_output is not None and transcript.status == "completed":
        output = parse_output(output or "")
    error = end.error if isinstance(end, RunEnd) else None if end is None else end.reason
    return RunResult(
        run_id=run_id,
        final_output=output,
        status=transcript.status,
        events=events,
        messages=transcript.messages,
        usage=transcript.whole_usage,
        cost=transcript.whole_cost,
        error=error,
        pending=pending(transcript),
        left=left(transcript, time.time()),
        durable=durable,
        store_errors=list(store_errors or []),
    )
