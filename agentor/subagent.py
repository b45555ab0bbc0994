"""An agent as a tool of another one: a durable run of its own for each call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any  # approvals are a function of the user's own

from agentor.control import Control
from agentor.engine.budget import Budget
from agentor.engine.children import INPUT, Outcome, Task
from agentor.engine.recovery import Runs
from agentor.inputs import count
from agentor.tools import Tool, ToolContext


class AgentTool(Tool):
    """A tool that is an agent; made by `Agentor.as_tool`."""

    def __init__(self, runs: Runs, *, budget: Budget | None, max_turns: int | None, **about: Any) -> None:
        async def invoke(args: dict[str, Any]) -> str:
            raise TypeError(f"{about['name']!r} is an agent; call its run()")

        parameters = {
            "type": "object",
            "properties": {
                INPUT: {"type": "string", "description": "What it is to do, with all it must know."}
            },
            "required": [INPUT],
            "additionalProperties": False,
        }
        super().__init__(parameters=parameters, invoke=invoke, on_crash="retry", **about)
        self._runs, self.budget, self._max_turns = runs, budget, max_turns

    async def serve(self, task: Task, message: str, /, *place: Any) -> Outcome:
        """See `agentor.engine.children.SubAgent`."""
        return await self._runs.serve(task, message, *place, own=self.budget, max_turns=self._max_turns)


class Nesting(Control):
    """The part of an agent that lets others use it."""

    name: str

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        budget: Budget | None = None,
        max_turns: int | None = None,
        needs_approval: bool | Callable[[ToolContext, dict[str, Any]], Any] = False,
        timeout_s: float | None = None,
    ) -> Tool:
        """This agent as a tool of another one, which tells it one text and gets its answer.

        Each call is a run with a log of its own, saved where the caller's run is, and linked both ways. It
        survives as any run: if the process dies, the caller's `resume` goes on with it. What waits for a
        person in it waits in the caller's `result.pending` too, under `call_1/call_2`. A cancel and the
        caller's budget reach it, and what it spends counts for the caller.

        Args:
            name: By default the agent's.
            description: What it is for, for the model that uses it.
            budget: What each of its runs may spend, within the caller's own budget.
            max_turns: Instead of the agent's.
            needs_approval, timeout_s: As for any tool.

        Raises:
            ToolDefinitionError: a name or an option that cannot work.
        """
        own = re.sub(r"[^a-zA-Z0-9_-]", "_", self.name)[:64]
        return AgentTool(
            self._runs,
            budget=budget,
            max_turns=None if max_turns is None else count("max_turns", max_turns),
            name=own if name is None else name,
            description=f"Asks the agent {self.name}." if description is None else description,
            needs_approval=needs_approval,
            timeout_s=timeout_s,
        )
