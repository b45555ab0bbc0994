"""A store that fails after it has saved: nothing stands in the log twice, whatever is tried again."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from places import opened

from agentor import Agentor, function_tool
from agentor.errors import StoreError
from agentor.testing import ScriptedModel, call
from agentor.testing.settled import Settled


class LosesAnswers:
    """Saves, and at the n-th append says that it failed all the same."""

    def __init__(self, store: Any, at: int) -> None:
        self._store, self._at, self.appends = store, at, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("append_many", "append_group"):
            return method

        async def answered(*args: Any) -> Any:
            outcome = method(*args)
            outcome = await outcome if inspect.isawaitable(outcome) else outcome
            self.appends += 1
            if self.appends == self._at:
                raise StoreError("r", "a timeout after success")
            return outcome

        return answered


def run(
    folder: Path, place: str, at: int, durability: Any, act: str, run_id: str
) -> tuple[Any, LosesAnswers]:
    @function_tool(on_crash="retry")
    def step(n: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{n}\n")
        return "ok"

    model = ScriptedModel([call("step", {"n": 1}), call("step", {"n": 2}), call("step", {"n": 3}), "done"])
    store = LosesAnswers(opened(place), at)
    agent = Agentor("a", model=model, tools=[step], store=store, durability=durability)
    return (agent.run("go", run_id=run_id) if act == "run" else agent.resume(run_id)), store


@pytest.mark.parametrize("durability", ["best_effort", "strict"])
def test_no_answer_that_is_lost_makes_a_record_or_a_tool_call_twice(
    tmp_path: Path, place: str, durability: str
) -> None:
    _, store = run(tmp_path, place, 0, durability, "run", "whole")
    for at in range(1, store.appends + 1):
        folder = tmp_path / str(at)
        folder.mkdir()
        run_id = f"r{at}"
        if durability == "strict":
            with pytest.raises(StoreError, match="timeout after success"):
                run(folder, place, at, durability, "run", run_id)
            result, _ = run(folder, place, 0, durability, "resume", run_id)
        else:
            result, _ = run(folder, place, at, durability, "run", run_id)
            assert len(result.store_errors) == 1
            assert result.durable is (at < store.appends)  # the next save takes along what may be lost
        assert (result.status, result.final_output) == ("completed", "done"), at
        events = Settled(opened(place)).load(run_id)
        assert [e.seq for e in events] == list(range(len(events))), at
        assert [e.type for e in events if e.type == "generation"] == ["generation"] * 4, at
        assert [e.type for e in events if e.type == "tool_result"] == ["tool_result"] * 3, at
        assert Counter((folder / "ledger").read_text().split()) == {"1": 1, "2": 1, "3": 1}, at
