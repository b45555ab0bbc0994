"""A recorded run against today's agent: nothing reported where nothing changed, and each change by its name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import BaseModel
from unit.test_trace import ACTS, TURNS, fails, fine, grown

from agentor import Agentor, Approve, Deny, FileStore, MemoryStore, Tool, function_tool
from agentor.engine.compaction import Summary
from agentor.engine.events import Event, Generation, ToolResult
from agentor.engine.messages import Usage
from agentor.errors import CorruptLog, ReplayDrift, RunNotFound, StoreError
from agentor.replay import Difference, ReplayReport, diff_runs, replay
from agentor.testing import ScriptedModel, answer, call, error

SCRIPT: list[Any] = [
    call("look", {"n": 1}),
    [call("look", {"n": 2}), call("pay", {"euros": 5})],
    answer("All is paid.", usage=Usage(input_tokens=50)),
]


class Named(ScriptedModel):
    """A scripted model with settings, as a real one has."""

    def __init__(self, script: Any = SCRIPT, name: str = "scripted", **params: Any) -> None:
        super().__init__(script, name=name)
        self.params = {"temperature": 0.2, **params}


@function_tool
def look(n: int) -> str:
    """Look at a page."""
    return f"page {n}"


@function_tool
def pay(euros: int, note: str = "") -> str:
    """Pay."""
    return f"paid {euros}"


def agent(
    store: Any = None,
    *,
    instructions: str | None = "Be brief.",
    tools: Sequence[Any] = (look, pay),
    model: Any = None,
    **more: Any,
) -> Agentor:
    return Agentor("a", instructions, model or Named(), list(tools), store=store, **more)


def recorded(**more: Any) -> list[Event]:
    store = MemoryStore()
    agent(store, **more).run("Pay for page 2.", run_id="r")
    return store.load("r")


def statuses(report: ReplayReport) -> list[str]:
    return [turn.status for turn in report.turns]


def found(report: ReplayReport) -> list[tuple[int, str, str]]:
    return [(turn, d.kind, d.what) for turn, d in report.differences]


def test_an_unchanged_agent_does_as_it_did() -> None:
    report = replay(agent(), recorded())
    assert report.ok
    assert statuses(report) == ["same"] * 3
    assert str(report) == "replay of run 'r' by agent 'a': 3 same\n  turns 1 to 3: same"
    report.check()


def renamed() -> Any:
    return Tool(name="view", description="Look at a page.", parameters=look.parameters, invoke=lambda a: "")


@function_tool(name_override="look")
def look_text(n: str) -> str:
    """Look at a page."""
    return f"page {n}"


@function_tool(name_override="look")
def look_default(n: int = 1) -> str:
    """Look at a page."""
    return f"page {n}"


@function_tool(name_override="look")
def look_more(n: int, far: bool) -> str:
    """Look at a page."""
    return f"page {n}"


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ({"instructions": "Be long."}, ["changed", "recorded", "recorded"], (1, "instructions", "the instructions")),
        ({"instructions": None}, ["changed", "recorded", "recorded"], (1, "instructions", "the instructions")),
        ({"tools": [look_default, pay]}, ["changed", "recorded", "recorded"], (1, "tool", "tool 'look': argument 'n' was integer, is integer with the default 1")),
        ({"tools": [look, pay, renamed()]}, ["changed", "recorded", "recorded"], (1, "tool", "tool 'view' is new")),
        ({"model": Named(temperature=0.7)}, ["changed", "recorded", "recorded"], (1, "settings", "temperature was 0.2, is 0.7")),
        ({"model": Named(top_p=0.5)}, ["changed", "recorded", "recorded"], (1, "settings", "top_p is new: 0.5")),
        ({"model": Named(name="other")}, ["changed", "recorded", "recorded"], (1, "model", "the model was scripted, is other")),
    ],
)  # fmt: skip
def test_a_change_that_a_model_sees_is_found_in_the_first_turn_and_named(
    change: dict[str, Any], status: list[str], expected: Any
) -> None:
    report = replay(agent(**change), recorded())
    assert statuses(report) == status
    assert not report.ok
    assert found(report) == [expected]
    assert replay(agent(**change), recorded(), strict=False).ok
    with pytest.raises(ReplayDrift, match="1 changed, 2 answered by the recording"):
        report.check()


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([renamed(), pay], [(1, "tool", "tool 'look' is now called 'view'"), (1, "call", "look (call_1) would not run: there is no tool 'look'; available tools: pay, view")]),
        ([pay], [(1, "tool", "tool 'look' is gone"), (1, "call", "look (call_1) would not run: there is no tool 'look'; available tools: pay")]),
        ([look_text, pay], [(1, "tool", "tool 'look': argument 'n' was integer, is string")]),
        ([look_more, pay], [(1, "tool", "tool 'look': argument 'far' is new: boolean"), (1, "call", "look (call_1) would not run: wrong arguments: far: Field required")]),
    ],
)  # fmt: skip
def test_a_call_that_would_not_run_leaves_the_recording(tools: Any, expected: list[Any]) -> None:
    report = replay(agent(tools=tools), recorded())
    assert found(report)[: len(expected)] == expected
    if len(expected) == 2:
        assert statuses(report) == ["left"]
        assert report.recorded_turns == 3
        assert "1 left the recording, 2 not reached" in str(report)
        whole = replay(agent(tools=tools), recorded(), strict=False)
        assert len(whole.turns) == 3
        assert not whole.ok


def test_a_removed_tool_is_found_where_its_call_stood() -> None:
    report = replay(agent(tools=[look]), recorded())
    assert statuses(report) == ["changed", "left"]
    assert found(report)[-1][:2] == (2, "call")


def test_the_diff_shows_the_lines_that_differ() -> None:
    report = replay(agent(instructions="Be brief.\nBe kind."), recorded(instructions="Be brief.\nBe fast."))
    assert str(report).splitlines()[1:6] == [
        "  turn 1: changed",
        "    the instructions",
        "        Be brief.",
        "      - Be fast.",
        "      + Be kind.",
    ]


def test_white_space_in_definitions_and_the_order_of_keys_are_no_change() -> None:
    wide = Tool(
        name="pay",
        description="  Pay.\n",
        parameters=dict(reversed(list(pay.parameters.items()))),
        invoke=lambda args: "",
    )
    store = MemoryStore()
    agent(store).run("Pay for page 2.", run_id="r")
    mixed = [Event.from_dict(dict(reversed(list(e.to_dict().items())))) for e in store.load("r")]
    assert replay(agent(tools=[wide, look]), mixed).ok


def with_changed(events: list[Event], place: int, **change: Any) -> list[Event]:
    return [replace(e, **change) if n == place else e for n, e in enumerate(events)]


def test_a_log_whose_messages_are_not_those_that_were_sent_is_found() -> None:
    events = recorded()
    places = [n for n, e in enumerate(events) if isinstance(e, ToolResult)]
    changed = with_changed(events, places[0], result="another page")
    report = replay(agent(), changed)
    assert found(report) == [
        (
            2,
            "log",
            "the recorded messages, or their order, are not those that were sent (their digest differs)",
        )
    ]


def test_live_tools_are_run_and_their_results_compared() -> None:
    ran: list[int] = []

    @function_tool(name_override="look")
    def look_anew(n: int) -> str:
        """Look at a page."""
        ran.append(n)
        return f"page {n}" if n == 1 else f"leaf {n}"

    report = replay(agent(tools=[look_anew, pay]), recorded(), tools="live")
    assert ran == [1, 2]
    assert statuses(report) == ["same", "changed", "recorded"]
    assert found(report) == [(2, "result", "the result of look (call_2)")]
    assert report.turns[1].differences[0].diff == ["- page 2", "+ leaf 2"]
    ran.clear()
    assert replay(agent(tools=[look_anew, pay]), recorded()).ok
    assert ran == []


def test_a_live_model_that_asks_for_the_same_is_the_same_and_ids_do_not_count() -> None:
    with_ids = [
        call("look", {"n": 1}, id="x"),
        [call("look", '{ "n" : 2 }', id="y"), call("pay", {"euros": 5}, id="z")],
        "All is paid.",
    ]
    live = Named(with_ids)
    assert replay(agent(model=live), recorded(), model="live").ok
    assert len(live.requests) == 3
    ends = replay(agent(model=Named([*with_ids[:2], "Paid."])), recorded(), model="live")
    assert found(ends) == [(3, "answer", "the model's text")]
    other = replay(agent(model=Named([with_ids[0], "No."])), recorded(), model="live")
    assert statuses(other) == ["same", "left"]
    assert found(other) == [(2, "answer", "the model asks for other calls")]
    failing = replay(agent(model=Named([error("down")])), recorded(), model="live", strict=False)
    assert statuses(failing) == ["left"]


class Total(BaseModel):
    total: int


class Sum(BaseModel):
    sum: int


def test_another_output_type_is_named_and_an_answer_that_does_not_fit_it_leaves_the_recording() -> None:
    script = ['{"total": 5}']
    events = recorded(model=Named(script), output_type=Total)
    assert replay(agent(model=Named(script), output_type=Total), events).ok
    report = replay(agent(model=Named(script), output_type=Sum), events)
    assert statuses(report) == ["left"]
    assert [kind for _, kind, _ in found(report)] == ["output", "end"]
    plain = replay(agent(model=Named(script)), events)
    assert [(kind, what) for _, kind, what in found(plain)] == [("output", "the output type")]


def test_approvals_that_come_or_go_are_told() -> None:
    gated = Tool.from_function(pay._invoke, name_override="pay", needs_approval=True)
    report = replay(agent(tools=[look, gated]), recorded())
    assert found(report) == [(2, "call", "pay (call_3) waits for an approval now: pay needs an approval")]
    assert statuses(report) == ["same", "left"]
    assert replay(agent(tools=[look, gated]), recorded(), tools="deny").ok
    store = MemoryStore()
    one = agent(store, tools=[look, gated])
    one.run("go", run_id="r")
    one.resume("r", decisions={"call_3": Approve(args={"euros": 6})})
    assert replay(one, "r").ok
    free = replay(agent(store), "r")
    assert found(free) == [(2, "call", "pay (call_3) needs no approval any more")]
    one.fork("r", fork_id="f", at_turn=1)
    one.resume("f", decisions={"call_3": Deny("no")})
    assert replay(one, "f").ok


def short(messages: Any, used: Any) -> Any:
    return [*messages[:1], {"role": "user", "content": "Pay."}] if used else None


def shorter(messages: Any, used: Any) -> Any:
    return [*messages[:1], {"role": "user", "content": "Pay it."}] if used else None


def swapped(messages: Any, used: Any) -> Any:
    return [messages[1], messages[0]] if used and len(messages) == 2 else None


def counted(steps: list[Any]) -> Named:
    """A model that gives one step after the other, however short the conversation is made."""
    left = iter(steps)
    return Named(lambda messages, tools: next(left))


LONG: list[Any] = [
    answer(None, call("look", {"n": 1}), usage=Usage(input_tokens=90)),
    answer(None, call("look", {"n": 2}), usage=Usage(input_tokens=95)),
    "done",
]


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (short, []),
        (shorter, [(2, "compaction", "compaction: message 1 (user)")]),
        (None, [(2, "compaction", "the conversation is not made shorter here any more")]),
    ],
)
def test_compaction_is_compared_and_goes_on_by_the_recording(hook: Any, expected: list[Any]) -> None:
    events = recorded(model=counted(LONG), compaction=short)
    assert sum(e.type == "context" for e in events) == 2
    report = replay(agent(model=counted(LONG), compaction=hook), events)
    assert found(report) == expected
    assert len(report.turns) == 3


def test_a_compaction_that_is_new_and_another_order_of_messages_are_told() -> None:
    report = replay(agent(model=counted(LONG), compaction=short), recorded(model=counted(LONG)))
    assert found(report)[0] == (
        2,
        "compaction",
        "the conversation is made shorter here: 2 messages instead of 4",
    )
    store = MemoryStore()

    def order(messages: Any, used: Any) -> Any:
        users = [m for m in messages if m["role"] == "user"]
        return [messages[0], *users] if len(users) == 2 and len(messages) > 3 else None

    def reverse(messages: Any, used: Any) -> Any:
        made = order(messages, used)
        return made and [made[0], *made[:0:-1]]

    one = agent(store, model=Named(["one", "two"]), compaction=order)
    one.run("first", run_id="r")
    one.continue_run("r", "second")
    assert replay(one, "r").ok
    report = replay(agent(store, model=Named(["one", "two"]), compaction=reverse), "r")
    assert found(report) == [(2, "compaction", "compaction: the order of messages 1 to 2")]


def test_a_summary_is_answered_by_the_recording() -> None:
    def summary(keep: int = 2) -> Summary:
        return Summary(ScriptedModel(["A summary."] * 9), over_tokens=80, keep=keep)

    events = recorded(model=counted(LONG), compaction=summary())
    assert "context" in {e.type for e in events}
    broken = Summary(ScriptedModel([error("no network")]), over_tokens=80, keep=2)
    assert replay(agent(model=counted(LONG), compaction=broken), events).ok
    assert not replay(agent(model=counted(LONG), compaction=summary(keep=4)), events).ok


def test_a_run_is_found_by_its_id_its_file_its_result_or_its_events(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    one = agent(store)
    result = one.run("go", run_id="r")
    for run in ("r", str(tmp_path / "r.jsonl"), tmp_path / "r.jsonl", result, result.events, store.load("r")):
        report = replay(one, run)
        assert (report.run_id, report.ok) == ("r", True)
    for missing in ("nosuch", str(tmp_path / "nosuch.jsonl")):
        with pytest.raises(RunNotFound, match="nosuch"):
            replay(one, missing)
    with pytest.raises(RunNotFound, match="no store"):
        replay(agent(), "r")
    with pytest.raises(ValueError, match="tools must be 'recorded' or 'live' or 'deny'"):
        replay(one, "r", tools="real")  # type: ignore[arg-type]


def crashed(events: list[Event], keep: Callable[[Event], bool]) -> MemoryStore:
    store = MemoryStore()
    for event in events:
        store.append("r", event)
        if keep(event):
            break
    return store


def test_crashed_resumed_rewound_forked_and_followed_up_runs_replay() -> None:
    whole = recorded()
    for cut in range(1, len(whole)):
        store = MemoryStore()
        for event in whole[:cut]:
            store.append("r", event)
        one = agent(store)
        assert one.resume("r").status == "completed"
        one.continue_run("r", "And again?") if cut % 3 == 0 else None
        report = replay(one, "r")
        assert report.ok, str(report)
        one.fork("r", "Otherwise.", fork_id="f", at_turn=1)
        report = replay(one, "f")
        assert report.ok, str(report)
        changed = replay(agent(store, instructions="Be long."), "f")
        assert [kind for _, kind, _ in found(changed)] == ["instructions"]


def test_failed_and_retried_requests_replay_and_failing_tools_are_switched_off_alike() -> None:
    @function_tool
    def look(n: int) -> str:
        """Look."""
        raise LookupError("torn")

    script: list[Any] = [call("look", {"n": n}) for n in range(4)] + ["done"]
    events = recorded(model=Named(script), tools=[look], max_tool_failures=2)
    assert replay(agent(model=Named(script), tools=[look], max_tool_failures=2), events).ok
    more = replay(agent(model=Named(script), tools=[look], max_tool_failures=3), events)
    assert not more.ok
    assert (more.turns[0].status, more.turns[1].status) == ("same", "same")
    store = MemoryStore()
    failing = agent(store, model=Named([error("no")]))
    failing.run("go", run_id="r")
    whole = agent(store)
    assert whole.resume("r").status == "completed"
    assert replay(whole, "r").ok


def test_a_thousand_turns_take_a_time_that_grows_with_their_number() -> None:
    def seconds(turns: int) -> float:
        script = [call("look", {"n": n}) for n in range(turns)] + ["done"]
        events = recorded(model=Named(script), max_turns=turns + 1)
        one = agent(model=Named(script))
        best = 9.0
        for _ in range(3):
            started = time.perf_counter()
            assert replay(one, events).ok
            best = min(best, time.perf_counter() - started)
        return best

    assert seconds(1000) < 16 * seconds(125)


def test_needs_no_network_and_no_key(no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    one = Agentor("a", "Be brief.", "gpt-5-mini", [look, pay])
    report = replay(one, recorded(), strict=False)
    assert {kind for _, kind, _ in found(report)} == {"model", "settings"}


def test_a_log_without_generations_says_so() -> None:
    report = replay(agent(), recorded()[:1])
    assert report.ok
    assert str(report) == "replay of run 'r' by agent 'a': no turn"
    assert isinstance(recorded()[1], Generation)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=TURNS, acts=ACTS)
def test_whatever_the_engine_wrote_replays_without_a_difference(turns: Any, acts: Any) -> None:
    def one(instructions: str = "Be brief.") -> Agentor:
        return Agentor("a", instructions, ScriptedModel([]), [fine, fails], max_turns=9)

    for _, events, _ in asyncio.run(grown(turns, acts)):
        report = replay(one(), events)
        assert report.ok, str(report)
        changed = replay(one("Be long."), events)
        kinds = [kind for _, kind, _ in found(changed)]
        assert kinds == ["instructions"] * bool(changed.turns)
        assert [t.status for t in changed.turns] == ["changed", *["recorded"] * len(changed.turns)][
            : len(changed.turns)
        ]
        assert diff_runs(events, events).parts_at is None


@pytest.mark.parametrize(
    "start",
    [
        {"tools": {"look": 5}},
        {"tools": {"look": {"parameters": [1]}}},
        {"tools": {"look": {"parameters": {"required": 5, "properties": {"n": {"enum": 5}, "m": None}}}}},
        {"tools": {"look": {"parameters": {"properties": {"n": {"anyOf": 5}}}}}},
        {"fingerprint": {"instructions": "x", "tools": 5}},
        {"fingerprint": {"instructions": 5, "output": [], "tools": {"it's": 1}}},
    ],
)
def test_a_log_that_tells_nonsense_of_its_agent_is_a_change_and_no_crash(start: dict[str, Any]) -> None:
    told = {"fingerprint": {"instructions": "x", "tools": {"look": "another", "pay": "one"}}, **start}
    events = with_changed(recorded(), 0, **told)
    assert not replay(agent(), events).ok


def test_diffs_of_long_texts_show_the_place_and_end_soon() -> None:
    one = Difference("message", "m", "word " * 200_000, "word " * 100_000 + "other " + "word " * 100_000)
    old, new = one.diff
    assert "word word" in old
    assert "other word" in new
    assert len(old) < 400
    many = Difference(
        "m", "m", "\n".join(map(str, range(100_000))), "\n".join(f"{n}!" for n in range(100_000))
    )
    assert len(many.diff) == 61
    assert many.diff[-1].endswith(" more lines")


def test_a_log_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(StoreError, match="run 'd': its log cannot be read"):
        replay(agent(), tmp_path / "d.jsonl")
    store = FileStore(tmp_path / "runs")
    agent(store).run("go", run_id="r")
    path = tmp_path / "runs" / "r.jsonl"
    path.write_bytes(path.read_bytes().replace(b"brief", b"Brief"))
    with pytest.raises(CorruptLog, match="run 'r' is damaged at record 0"):
        replay(agent(), path)
