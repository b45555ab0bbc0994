"""Fork: a branch at any step, whole or not at all; the parent is never touched."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from agentor import Agentor, FileStore, MemoryStore, function_tool
from agentor.engine.events import Event, Fork
from agentor.errors import InvalidRunId, RunExists, StoreWarning
from agentor.testing import ScriptedModel, call

SCRIPT = [call("note", {"text": "one"}), call("note", {"text": "two"}), "done", "short", "shorter"]


def build(store: Any, ran: list[str], on_crash: Any = "rewind") -> Agentor:
    @function_tool(on_crash=on_crash)
    def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    return Agentor("a", "Be brief.", ScriptedModel(SCRIPT), [note], store=store)


@pytest.mark.parametrize("at", range(9))
def test_a_fork_at_any_record_ends_and_leaves_the_parent_alone(at: int, tmp_path: Any) -> None:
    store = FileStore(tmp_path / "runs")
    ran: list[str] = []
    agent = build(store, ran)
    parent = str(agent.run("go", run_id="parent").run_id)
    before = store.path(parent).read_bytes()
    branch = agent.fork(parent, at=at)
    assert (branch.status, branch.final_output) == ("completed", "done")
    assert store.path(parent).read_bytes() == before
    assert store.path(str(branch.run_id)).read_bytes().startswith(b"".join(before.splitlines(True)[: at + 1]))
    marker = branch.events[at + 1]
    assert isinstance(marker, Fork)
    assert (marker.forked_from, marker.parent_seq) == (parent, at)


@pytest.mark.parametrize("on_crash", ["rewind", "retry", "fail"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_fork_inside_a_turn_does_not_run_what_the_parent_has_a_result_for(at: int, on_crash: str) -> None:
    store, ran = MemoryStore(), []  # type: MemoryStore, list[str]
    agent = build(store, ran, on_crash)
    parent = str(agent.run("go").run_id)
    ran.clear()
    branch = agent.fork(parent, at=at)
    assert branch.status == "completed"
    # Rewound, the model itself asks for the first note again; else that call has a note instead.
    assert ran == (["one", "two"] if on_crash == "rewind" else ["two"])


def test_a_fork_of_a_finished_run_without_input_is_a_copy_and_calls_nothing() -> None:
    store, ran = MemoryStore(), []  # type: MemoryStore, list[str]
    agent = build(store, ran)
    parent = agent.run("go")
    ran.clear()
    copy = agent.fork(str(parent.run_id))
    assert (copy.final_output, copy.messages, ran) == ("done", parent.messages, [])
    assert copy.run_id != parent.run_id


def test_a_fork_with_a_message_goes_on_from_there() -> None:
    store = MemoryStore()
    agent = build(store, [])
    parent = str(agent.run("go").run_id)
    end = agent.fork(parent, "Shorter.", fork_id="short")
    assert (end.run_id, end.final_output) == ("short", "short")
    assert end.messages[-2:] == [
        {"role": "user", "content": "Shorter."},
        {"role": "assistant", "content": "short"},
    ]
    earlier = agent.fork(parent, "And now?", at_turn=1)
    assert [m["role"] for m in earlier.messages[:5]] == ["system", "user", "assistant", "tool", "user"]
    assert agent.continue_run("short", "Once more.").final_output == "shorter"
    assert build(store, []).resume(parent).final_output == "done"


def test_a_fork_with_a_message_first_closes_the_calls_that_are_open() -> None:
    store = MemoryStore()
    agent = build(store, [])
    parent = str(agent.run("go").run_id)
    branch = agent.fork(parent, "Stop that.", at=1)
    roles = [m["role"] for m in branch.messages]
    assert roles[:5] == ["system", "user", "assistant", "tool", "user"]
    assert "interrupted" in branch.messages[3]["content"]


def test_steps_that_do_not_exist_and_ids_that_are_taken_are_refused() -> None:
    store = MemoryStore()
    agent = build(store, [])
    parent = str(agent.run("go").run_id)
    with pytest.raises(RunExists):
        agent.fork(parent, "x", fork_id=parent)
    with pytest.raises(ValueError, match="no record 99"):
        agent.fork(parent, at=99)
    with pytest.raises(ValueError, match="no turn 9"):
        agent.fork(parent, at_turn=9)
    with pytest.raises(ValueError, match="not both"):
        agent.fork(parent, at=1, at_turn=1)
    with pytest.raises(InvalidRunId):
        agent.fork(parent, fork_id="../evil")
    with pytest.raises(RunExists):
        agent.run("again", run_id=parent)
    assert store.list_runs() == [parent]


def test_another_agent_fills_in_its_instructions_only_where_there_are_none() -> None:
    store = MemoryStore()
    bare = str(Agentor("a", model=ScriptedModel(["x"]), store=store).run("go").run_id)
    told = str(Agentor("a", "Old.", ScriptedModel(["x"]), store=store).run("go").run_id)
    other = Agentor("b", "New.", ScriptedModel(["x", "y"]), store=store)
    with pytest.warns(UserWarning, match="its instructions"):
        filled = other.fork(bare, "and?")
    with pytest.warns(UserWarning, match="its instructions"):
        kept = other.fork(told, "and?")
    assert filled.messages[0] == {"role": "system", "content": "New."}
    assert kept.messages[0] == {"role": "system", "content": "Old."}


class ThreeMethods:
    """The smallest store that the documentation allows."""

    def __init__(self) -> None:
        self.logs: dict[str, list[str]] = {}

    def append(self, run_id: str, event: Event) -> None:
        self.logs.setdefault(run_id, []).append(event.to_json())

    def load(self, run_id: str) -> list[Event]:
        import json

        return [Event.from_dict(json.loads(line)) for line in self.logs.get(run_id, [])]

    def list_runs(self) -> list[str]:
        return sorted(self.logs)


class AsyncMethods(ThreeMethods):
    """The same with async methods."""

    async def append(self, run_id: str, event: Event) -> None:  # type: ignore[override]
        super().append(run_id, event)

    async def load(self, run_id: str) -> list[Event]:  # type: ignore[override]
        return super().load(run_id)


class OldFork(ThreeMethods):
    """With the fork of agentor 0.1: two arguments, no marker."""

    def fork(self, src: str, dst: str) -> None:
        if dst in self.logs:
            raise ValueError("taken")
        self.logs[dst] = list(self.logs[src])


@pytest.mark.parametrize("kind", [ThreeMethods, AsyncMethods, OldFork])
def test_a_store_of_three_methods_runs_resumes_and_forks_with_one_warning_each(kind: Any) -> None:
    store = kind()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        agent = build(store, [])
        parent = str(agent.run("go").run_id)
        assert agent.resume(parent).final_output == "done"
        for at in (None, 3):
            branch = agent.fork(parent, "Shorter.", at=at)
            assert branch.status == "completed"
            assert sum(isinstance(e, Fork) for e in branch.events) == 1
    assert len([w for w in warned if w.category is StoreWarning]) == 2
