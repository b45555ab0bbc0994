"""Forks: the part of an agent that branches runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from agentor.engine.edits import Edit
from agentor.engine.result import RunResult
from agentor.engine.threads import background
from agentor.inputs import Input, messages_of, one_of
from agentor.starts import Starts
from agentor.subagent import Nesting
from agentor.tracer import Tracing


class Branching(Nesting):
    """Runs of an agent that go on from a copy of another one."""

    _starts: Starts

    async def afork(
        self,
        run_id: str,
        input: Input | None = None,
        *,
        at: int | None = None,
        at_turn: int | None = None,
        fork_id: str | None = None,
        edit: Mapping[int, Edit] | None = None,
        tools: Literal["live", "recorded"] = "live",
        max_turns: int | None = None,
        tracing: Tracing = None,
    ) -> RunResult:
        """Branch a run under a new id, at its end or at an earlier step; the parent is never touched.

        Args:
            input: A new message for the branch. None: an unfinished run is finished in the branch,
                a finished one is only copied.
            at: Copy up to this record (`event.seq`), included.
            at_turn: Copy up to the last result of this turn.
            fork_id: A name of your own for the branch; it must be unused.
            edit: What is otherwise in the branch's copy, by record (`event.seq`): the text of a tool's
                result; the text, or the message, of an answer or of an input; a message of the role "system"
                at record 0 for other instructions. Without `at` and `at_turn` the copy ends where
                a model hears of it first.
            tools: "recorded": a call that the parent has made behind the step, with the same arguments, gets
                the parent's result; only others run.
            max_turns: Model calls for the branch alone.

        Raises:
            RunNotFound, RunExists, InvalidRunId, CorruptLog, UnsupportedLog: as named.
            ValueError: no store, no such step, a turn whose results are not all there, or an edit that
                cannot be made.
        """
        messages = [] if input is None else messages_of(input)
        start = self._starts.start(max_turns, tracing)
        one_of("tools", tools, ("live", "recorded"))
        return await self._runs.fork(
            run_id,
            messages,
            start,
            at=at,
            at_turn=at_turn,
            fork_id=fork_id,
            edit=edit,
            reuse=tools == "recorded",
        )

    def fork(
        self,
        run_id: str,
        input: Input | None = None,
        *,
        at: int | None = None,
        at_turn: int | None = None,
        fork_id: str | None = None,
        edit: Mapping[int, Edit] | None = None,
        tools: Literal["live", "recorded"] = "live",
        max_turns: int | None = None,
        tracing: Tracing = None,
    ) -> RunResult:
        """`afork` for callers that are not async."""
        work = self.afork(
            run_id,
            input,
            at=at,
            at_turn=at_turn,
            fork_id=fork_id,
            edit=edit,
            tools=tools,
            max_turns=max_turns,
            tracing=tracing,
        )
        return background.run(work, method="fork")
