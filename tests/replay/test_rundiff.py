"""Two runs side by side: where they part, what differs, and what each one cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentor import Agentor, FileStore, MemoryStore, function_tool
from agentor.engine import strictjson
from agentor.engine.messages import Usage
from agentor.errors import RunNotFound
from agentor.replay import diff_runs
from agentor.testing import ScriptedModel, answer, call

USED = Usage(input_tokens=10, output_tokens=2)


@function_tool
def look(n: int) -> str:
    """Look."""
    return f"page {n}"


def agent(store: Any, script: list[Any], instructions: str = "Be brief.") -> Agentor:
    return Agentor("a", instructions, ScriptedModel(script), [look], store=store)


ONE: list[Any] = [
    answer(None, call("look", {"n": 1}), usage=USED, cost=0.5),
    answer(None, call("look", {"n": 2}), call("look", {"n": 3}), usage=USED, cost=0.5),
    answer("Two.", usage=USED, cost=0.5),
]
OTHER: list[Any] = [
    ONE[0],
    answer(None, call("look", '{ "n": 2 }', id="z"), call("look", {"n": 4}), usage=USED),
    answer("Three.", usage=USED),
    "more",
]


def test_runs_that_do_the_same_do_not_part_whatever_their_ids(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    agent(store, ONE).run("go", run_id="a")
    result = agent(
        store, [ONE[0], [call("look", {"n": 2}, id="x"), call("look", {"n": 3}, id="y")], "Two."]
    ).run("go", run_id="b")
    diff = diff_runs("a", "b", store=store)
    assert (diff.parts_at, diff.same_turns, diff.turns) == (None, 3, {})
    assert diff_runs(tmp_path / "a.jsonl", result).parts_at is None
    with pytest.raises(RunNotFound, match="nosuch"):
        diff_runs("a", "nosuch", store=store)


def test_the_turn_where_they_part_is_named_with_calls_results_text_and_cost() -> None:
    store = MemoryStore()
    agent(store, ONE).run("go", run_id="a")
    agent(store, OTHER).run("go", run_id="b")
    agent(store, OTHER).continue_run("b", "And?")
    diff = diff_runs("a", "b", store=store)
    assert (diff.parts_at, diff.same_turns) == (2, 1)
    assert [d.what for d in diff.turns[2]] == ["the calls", "the results"]
    assert diff.turns[2][0].diff == ['  look({"n":2})', '- look({"n":3})', '+ look({"n":4})']
    assert diff.turns[2][1].diff == ["  look: page 2", "- look: page 3", "+ look: page 4"]
    assert [(d.what, d.before, d.after) for d in diff.turns[3]] == [("the text", "Two.", "Three.")]
    assert [(d.what, d.after) for d in diff.turns[4]] == [("only the second run has it", "more")]
    first, second = diff.totals
    assert (first["cost"], second["cost"], first["turns"], second["turns"]) == (1.5, 0.5, 3, 4)
    assert (first["input_tokens"], first["tool_calls"], first["status"]) == (30, 3, "completed")
    text = str(diff).splitlines()
    assert text[0] == "runs 'a' (-) and 'b' (+) part at turn 2; 1 turn from the start on are the same"
    assert ["cost", "1.5", "0.5"] in [line.split() for line in text]
    data = strictjson.loads(strictjson.dumps(diff.to_dict()))
    assert (data["parts_at"], data["turns"][0]["turn"]) == (2, 2)


def test_a_fork_parts_where_it_was_told_something_else_and_crashes_do_not_count() -> None:
    store = MemoryStore()
    agent(store, ONE).run("go", run_id="a")
    agent(store, [*ONE, "Four."]).fork("a", "Again.", fork_id="f")
    diff = diff_runs("a", "f", store=store)
    assert (diff.parts_at, diff.same_turns) == (4, 3)
    events = store.load("a")
    for cut in range(1, len(events)):
        again = MemoryStore()
        for event in events[:cut]:
            again.append("c", event)
        result = agent(again, ONE).resume("c")
        found = [d.what for turn in diff_runs(events, result).turns.values() for d in turn]
        assert set(found) <= {"the results", "what it was told"}, str(diff_runs(events, result))
    told = MemoryStore()
    agent(told, ONE, "Be long.").run("go", run_id="a")
    (difference,) = diff_runs(events, told.load("a")).turns[1]
    assert (difference.what, difference.diff[:2]) == (
        "what it was told",
        ["- system: Be brief.", "+ system: Be long."],
    )
