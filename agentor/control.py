"""`Control`: what can be seen and decided about an agent's runs from any process, without running them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from agentor.engine.calls import AgentSpec
from agentor.engine.decisions import Pending, check_types
from agentor.engine.events import Event
from agentor.engine.policy import Decision
from agentor.engine.recovery import Runs
from agentor.engine.threads import background


class Control:
    """The runs of an agent, from outside.

    Args:
        runs: Where they are.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    @property
    def spec(self) -> AgentSpec:
        """The agent as the engine sees it, for whatever looks at agents, such as replay."""
        return self._runs.spec

    def attach(self, run_id: str, *, from_seq: int = 0) -> AsyncIterator[Event]:
        """Every saved event of a run that runs anywhere, as `astream` gives them, until it has ended.

        Text deltas are not saved, so they do not come here. Leaving the loop early stops nothing.

        Args:
            from_seq: Leave out the events before this one.

        Raises:
            RunNotFound, CorruptLog, UnsupportedLog: as named.
        """
        return self._runs.attach(run_id, from_seq)

    async def aunresolved(self, run_id: str) -> list[Pending]:
        """The calls of a run that wait for somebody: for an approval, or for a word on a doubt.

        Raises:
            RunNotFound, CorruptLog, UnsupportedLog: as named.
        """
        return await self._runs.unresolved(run_id)

    def unresolved(self, run_id: str) -> list[Pending]:
        """`aunresolved` for callers that are not async."""
        return background.run(self.aunresolved(run_id), method="unresolved")

    async def adecide(
        self, run_id: str, decisions: Mapping[str, Decision], *, wait_s: float = 5.0
    ) -> list[Pending]:
        """Write decisions into the run's log, and run nothing; the next `resume` acts on them.

        Args:
            decisions: By call id, as for `resume`; all of them are written, or none.
            wait_s: Seconds to wait for somebody else who decides, or works, at the same moment.

        Returns: What waits, with what is decided now marked so.

        Raises:
            RunNotFound, RunBusy, CorruptLog, UnsupportedLog, StoreError: as named.
            DecisionRefused: one that the run has no use for.
        """
        check_types(decisions)
        return await self._runs.decide(run_id, decisions, wait_s)

    async def acancel(self, run_id: str, reason: str = "cancelled", *, wait_s: float = 10.0) -> str:
        """Stop a run, whichever process works on it; it can be resumed.

        Its worker hears of it within a second, also in the middle of an answer: it cancels tools that are
        async, waits up to 5 s for the others, and closes the calls that are open with a note to the model.
        Calls that started, of tools with `on_crash="ask"` or `"retry"` or a `reconcile`, stay in doubt.

        Args:
            reason: For the log, and the result's `error`.
            wait_s: Seconds to wait until it has stopped; it is asked to in any case.

        Returns: The run's status: `cancelled`; or how it ended if that came first; or `running`, if its
            worker has not stopped yet.

        Raises:
            RunNotFound, CorruptLog, UnsupportedLog, StoreError: as named.
            TypeError: another process has it, and the store has no way to tell it; or `reason` is no text.
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a text, not {reason!r}")
        return await self._runs.cancel(run_id, reason, wait_s)

    def cancel(self, run_id: str, reason: str = "cancelled", *, wait_s: float = 10.0) -> str:
        """`acancel` for callers that are not async."""
        return background.run(self.acancel(run_id, reason, wait_s=wait_s), method="cancel")

    def decide(self, run_id: str, decisions: Mapping[str, Decision], *, wait_s: float = 5.0) -> list[Pending]:
        """`adecide` for callers that are not async."""
        return background.run(self.adecide(run_id, decisions, wait_s=wait_s), method="decide")
