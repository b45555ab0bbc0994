"""Forks that change the past: an edit is in the fork's marker, what is known is not paid for again."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from agentor import Agentor, Approve, FileStore, MemoryStore, SQLiteStore, function_tool
from agentor.engine.events import Event, Fork, Generation, ToolCall, ToolResult
from agentor.engine.redact import Redactor
from agentor.engine.transcript import hydrate
from agentor.replay import diff_runs, replay
from agentor.testing import ScriptedModel, call

SCRIPT: list[Any] = [
    call("look", {"n": 1}),
    [call("look", {"n": 2}), call("look", {"n": 3})],
    call("look", {"n": 2}),
    "done",
]


class Desk:
    """An agent whose looks are counted."""

    def __init__(self, store: Any = None, script: Any = SCRIPT, **more: Any) -> None:
        self.store = MemoryStore() if store is None else store
        self.ran: list[int] = []

        @function_tool(on_crash="retry", **more)
        def look(n: int) -> str:
            self.ran.append(n)
            return f"page {n}"

        self.model = ScriptedModel(script)
        self.agent = Agentor("a", "Be brief.", self.model, [look], store=self.store)

    def seq(self, kind: type[Event], place: int = 0) -> int:
        return [e.seq or 0 for e in self.store.load("r") if isinstance(e, kind)][place]


def test_an_edited_result_is_what_the_model_hears_and_the_parent_is_untouched() -> None:
    desk = Desk()
    desk.agent.run("go", run_id="r")
    before = [e.to_json() for e in desk.store.load("r")]
    desk.ran.clear()
    desk.model.requests.clear()
    at = desk.seq(ToolResult, 1)
    fork = desk.agent.fork("r", fork_id="f", edit={at: "a torn page"})
    asked = [m["content"] for m in desk.model.requests[0]["messages"] if m["role"] == "tool"]
    assert asked == ["page 1", "a torn page", "page 3"]
    assert (desk.ran, fork.text, len(desk.model.requests)) == ([2], "done", 2)
    assert [e.to_json() for e in desk.store.load("r")] == before
    marker = next(e for e in desk.store.load("f") if isinstance(e, Fork))
    assert marker.edits == [{"of": at, "call_id": "call_2", "result": "a torn page"}]
    assert marker.parent_seq == desk.seq(ToolResult, 2)  # with all results of that turn
    assert diff_runs("r", "f", store=desk.store).turns == {}  # the records are as they were
    assert replay(desk.agent, "f").ok


@pytest.mark.parametrize(
    ("edit", "place", "text"),
    [
        ({0: "Go slowly."}, 1, "Go slowly."),
        ({0: {"role": "user", "content": [{"type": "text", "text": "Go."}]}}, 1, [{"type": "text", "text": "Go."}]),
        ({0: {"role": "system", "content": "Be long."}}, 0, "Be long."),
    ],
)  # fmt: skip
def test_inputs_and_instructions_can_be_others(edit: Any, place: int, text: Any) -> None:
    desk = Desk()
    desk.agent.run("go", run_id="r")
    desk.model.requests.clear()
    fork = desk.agent.fork("r", edit=edit)
    assert fork.messages[place]["content"] == text
    assert desk.model.requests[0]["messages"][place]["content"] == text
    assert (fork.text, len(desk.model.requests), len(desk.model.requests[0]["messages"])) == ("done", 4, 2)


def test_an_edited_answer_is_what_a_follow_up_goes_on_from() -> None:
    desk = Desk(script=[call("look", {"n": 1}), "done", "more"])
    desk.agent.run("go", run_id="r")
    fork = desk.agent.fork("r", "And?", edit={desk.seq(Generation, 1): "not done"})
    assert [m["content"] for m in fork.messages[-3:]] == ["not done", "And?", "more"]
    with_calls = desk.agent.fork("r", edit={desk.seq(Generation, 0): "I look."})
    assert with_calls.messages[2]["content"] == "I look."
    assert with_calls.messages[2]["tool_calls"] == desk.agent.resume("r").messages[2]["tool_calls"]
    whole = desk.agent.fork("r", edit={1: {**with_calls.messages[2], "content": None}})
    assert whole.text == "done"


def test_several_edits_go_together_and_at_may_be_later() -> None:
    desk = Desk()
    desk.agent.run("go", run_id="r")
    first, last = desk.seq(ToolResult, 0), desk.seq(ToolResult, 3)
    fork = desk.agent.fork("r", edit={first: "one", 0: "Go!", last: "four"})
    told = [m["content"] for m in fork.messages if m["role"] in ("user", "tool")]
    assert told == ["Go!", "one", "page 2", "page 3", "four"]
    late = desk.agent.fork("r", edit={first: "one"}, at_turn=2)
    assert [m["content"] for m in late.messages if m["role"] == "tool"][:3] == ["one", "page 2", "page 3"]


@pytest.mark.parametrize(
    ("edit", "at", "said"),
    [
        ({99: "x"}, None, "no record 99"),
        ({3: 5}, None, "the new result of a call is a text"),
        ({2: "x"}, None, "a tool_call cannot be edited"),
        ({1: {"role": "user", "content": "x"}}, None, "a message of its role"),
        ({1: {"role": "assistant", "content": "x"}}, None, "calls cannot be edited; fork before it: at=0"),
        ({3: "x"}, 1, "no record 3 up to where it is forked, at 1"),
        ({-1: "x"}, None, "no record -1"),
    ],
)
def test_an_edit_that_cannot_be_made_is_refused_and_nothing_is_copied(edit: Any, at: Any, said: str) -> None:
    desk = Desk()
    desk.agent.run("go", run_id="r")
    with pytest.raises(ValueError, match=said):
        desk.agent.fork("r", fork_id="f", edit=edit, at=at)
    assert desk.store.list_runs() == ["r"]
    with pytest.raises(TypeError, match="numbers of records"):
        desk.agent.fork("r", edit={"3": "x"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="tools must be 'live' or 'recorded'"):
        desk.agent.fork("r", tools="deny")  # type: ignore[arg-type]


def test_secrets_do_not_come_in_by_an_edit() -> None:
    desk = Desk()
    desk.agent.run("go", run_id="r")
    knowing = Agentor(
        "a",
        "Be brief.",
        model=desk.model,
        tools=desk.agent.tools,
        store=desk.store,
        redactor=Redactor().knowing(["hunter22hunter"]),
    )
    edit = {desk.seq(ToolResult): "the key is hunter22hunter"}
    knowing.fork("r", fork_id="f", edit=edit)
    assert "hunter22hunter" not in "".join(e.to_json() for e in desk.store.load("f"))


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
def test_calls_that_the_parent_made_too_get_its_results_and_others_run(kind: str, tmp_path: Any) -> None:
    store = {
        "memory": MemoryStore,
        "file": lambda: FileStore(tmp_path),
        "sqlite": lambda: SQLiteStore(tmp_path / "a.db"),
    }[kind]()
    desk = Desk(store)
    desk.agent.run("go", run_id="r")
    other: list[Any] = [SCRIPT[0], [call("look", {"n": 3}), call("look", {"n": 9})], call("look", {"n": 2}), call("look", {"n": 2}), call("look", {"n": 2}), "end"]  # fmt: skip
    again = Desk(store, other)
    fork = again.agent.fork("r", fork_id="f", at_turn=1, tools="recorded")
    # The parent has looked at 3 once and at 2 twice behind the cut; 9, and 2 for the third time, are new.
    assert (fork.text, again.ran) == ("end", [9, 2])
    taken = [e.taken_from for e in fork.events if isinstance(e, ToolResult) and e.by == "recorded"]
    assert taken == [desk.seq(ToolResult, n) for n in (2, 1, 3)]
    assert replay(again.agent, "f").ok


def test_a_fork_that_died_uses_each_result_once_all_the_same() -> None:
    desk = Desk()
    desk.agent.run("go", run_id="r")
    parent = desk.store.load("r")
    whole = desk.agent.fork("r", fork_id="f", at=0, tools="recorded", edit={0: "Go!"})
    events = desk.store.load("f")
    for cut in range(2, len(events)):
        store = MemoryStore()
        for event in (*parent, *events[:cut]):
            store.append(str(event.run_id), event)
        again = Desk(store)
        result = again.agent.resume("f")
        assert (result.text, again.ran) == ("done", [])
        assert [e.to_dict().get("taken_from") for e in result.events if isinstance(e, ToolResult)] == [
            e.seq for e in parent if isinstance(e, ToolResult)
        ]
    assert not [e for e in whole.events[2:] if isinstance(e, ToolCall)]
    alone = MemoryStore()
    for event in events[:3]:
        alone.append("f", event)
    late = Desk(alone)  # the parent is gone: then the tools run
    assert (late.agent.resume("f").text, late.ran) == ("done", [1, 2, 3, 2])


def test_a_known_result_needs_no_approval_and_an_open_call_is_answered_by_it() -> None:
    desk = Desk(needs_approval=True)
    desk.agent.run("go", run_id="r")
    while pending := desk.agent.unresolved("r"):
        desk.agent.resume("r", decisions={p.call_id: Approve() for p in pending})
    desk.ran.clear()
    fork = desk.agent.fork("r", at=desk.seq(Generation, 1), tools="recorded")
    assert (fork.text, desk.ran, fork.pending) == ("done", [], [])


def test_the_store_of_somebody_else_copies_event_by_event() -> None:
    class Plain:
        def __init__(self) -> None:
            self.runs: dict[str, list[Event]] = {}

        def append(self, run_id: str, event: Event) -> None:
            self.runs.setdefault(run_id, []).append(event)

        def load(self, run_id: str) -> list[Event]:
            return list(self.runs.get(run_id, []))

        def list_runs(self) -> list[str]:
            return list(self.runs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it lacks
        desk = Desk(Plain())
        desk.agent.run("go", run_id="r")
        fork = desk.agent.fork("r", fork_id="f", edit={0: "Go!"}, tools="recorded")
    assert fork.messages[1]["content"] == "Go!"
    _, transcript = hydrate("f", desk.store.load("f"))
    assert transcript.reuses == ("r", 0)
