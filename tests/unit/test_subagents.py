"""Agents as tools: durable runs of their own, that go on, wait, stop and count with their parent."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agentor import Agentor, Approve, Budget, Deny, FileStore, Happened, MemoryStore, function_tool
from agentor.engine.events import Child, RunStart, ToolCall
from agentor.engine.messages import Usage
from agentor.engine.transcript import fold
from agentor.errors import DecisionRefused, RunNotFound
from agentor.testing import ScriptedModel, answer, call, error

USAGE = Usage(input_tokens=100, output_tokens=10, total_tokens=110)


class Firm:
    """A boss who asks a clerk, who asks a cashier who pays, each one an agent; what was paid is counted."""

    def __init__(self, store: Any = None, *, pay: dict[str, Any] | None = None, **boss: Any) -> None:
        self.store = MemoryStore() if store is None else store
        self.paid: list[int] = []
        self.asked = {"boss": 0, "clerk": 0, "cashier": 0}

        @function_tool(**(pay or {}))
        def pay_out(euros: int) -> str:
            self.paid.append(euros)
            return f"paid {euros}"

        self.cashier = self._agent("cashier", [call("pay_out", {"euros": 5}), "It is paid."], [pay_out])
        self.clerk = self._agent(
            "clerk", [call("cashier", {"input": "Pay 5."}), "The cashier has paid."], [self.cashier.as_tool()]
        )
        self.boss = self._agent(
            "boss", [call("clerk", {"input": "Have 5 paid."}), "All done."], [self.clerk.as_tool()], **boss
        )

    def _agent(self, name: str, script: list[Any], tools: list[Any], **more: Any) -> Agentor:
        def step(messages: Any, _: Any) -> Any:
            self.asked[name] += 1
            said = script[sum(m["role"] == "assistant" for m in messages)]
            return (
                answer(said, usage=USAGE, cost=0.01)
                if isinstance(said, str)
                else answer(None, said, usage=USAGE, cost=0.01)
            )

        store = self.store if name == "boss" else None
        return Agentor(name, model=ScriptedModel(step, name=name), tools=tools, store=store, **more)

    def child_of(self, run_id: str) -> str:
        return next(e.child for e in self.store.load(run_id) if isinstance(e, ToolCall) and e.child)


def test_a_call_of_an_agent_is_a_run_linked_both_ways_and_counted_above() -> None:
    firm = Firm()
    result = firm.boss.run("go", run_id="r")
    assert result.text == "All done."
    assert result.messages[2]["content"] == "The cashier has paid."
    clerk = firm.child_of("r")
    cashier = firm.child_of(clerk)
    assert sorted(firm.store.list_runs()) == sorted(["r", clerk, cashier])
    start = firm.store.load(clerk)[0]
    assert isinstance(start, RunStart)
    assert (start.agent, start.parent) == ("clerk", {"run_id": "r", "call_id": "call_1"})
    assert start.messages == [{"role": "user", "content": "Have 5 paid."}]
    assert (result.usage.input_tokens, result.cost) == (600, pytest.approx(0.06))
    assert [i.cost for i in firm.store.describe(["r", clerk, cashier])] == [
        pytest.approx(c) for c in (0.06, 0.04, 0.02)
    ]
    spent = fold(firm.store.load("r")).spent
    assert (spent.turns, spent.tool_calls, spent.input_tokens) == (6, 3, 600)


def test_a_parent_that_died_goes_on_with_its_sub_agent_and_starts_no_other_one(tmp_path: Path) -> None:
    firm = Firm(FileStore(tmp_path))
    firm.boss.run("go", run_id="whole")
    clerk, paid = firm.child_of("whole"), len(firm.paid)
    log = firm.store.load("whole")
    started = next(n for n, e in enumerate(log) if isinstance(e, ToolCall))
    path = firm.store.path("whole")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: started + 1]))
    again = Firm(FileStore(tmp_path))
    result = again.boss.resume("whole")
    assert result.text == "All done."
    assert again.asked == {"boss": 1, "clerk": 0, "cashier": 0}  # their answers were there
    assert (firm.child_of("whole"), len(firm.paid), again.paid) == (clerk, paid, [])
    assert result.usage.input_tokens == 600


@pytest.mark.parametrize("how", ["resume", "decide", "deny"])
def test_what_waits_three_deep_waits_at_the_top_in_any_process(tmp_path: Path, how: str) -> None:
    paused = Firm(FileStore(tmp_path), pay={"needs_approval": True}).boss.run("go", run_id="r")
    assert paused.status == "paused"
    (waiting,) = paused.pending
    assert (waiting.call_id, waiting.tool, waiting.args) == ("call_1/call_1/call_1", "pay_out", {"euros": 5})
    firm = Firm(FileStore(tmp_path), pay={"needs_approval": True})
    before = [e.to_json() for e in firm.store.load("r")]
    assert firm.boss.resume("r").pending == paused.pending  # nobody has decided: nothing happens
    assert [e.to_json() for e in firm.store.load("r")] == before
    page = Agentor("page", model=ScriptedModel([]), store=FileStore(tmp_path))
    assert page.unresolved("r") == paused.pending
    word = Deny("too much") if how == "deny" else Approve(args={"euros": 3}, hash=waiting.hash, by="ann")
    if how == "decide":
        (decided,) = page.decide("r", {waiting.call_id: word})
        assert decided.decided
        result = firm.boss.resume("r")
    else:
        result = firm.boss.resume("r", decisions={waiting.call_id: word})
    assert (result.status, result.text, result.pending) == ("completed", "All done.", [])
    assert firm.paid == ([] if how == "deny" else [3])
    assert firm.asked == {"boss": 1, "clerk": 1, "cashier": 1}  # the first answers were there
    assert result.usage.input_tokens == 600
    assert fold(firm.store.load("r")).spent.tool_calls == (2 if how == "deny" else 3)


def test_a_wrong_word_below_is_refused_and_nothing_is_written() -> None:
    firm = Firm(pay={"needs_approval": True})
    paused = firm.boss.run("go", run_id="r")
    logs = {run_id: firm.store.load(run_id) for run_id in firm.store.list_runs()}
    at = paused.pending[0].call_id
    for decisions in (
        {"call_1/call_9": Approve()},
        {"call_1/call_1/call_9": Approve()},
        {at: Approve(hash="0" * 32)},
        {at: Happened("no")},
        {at: Approve(), "call_1": Approve()},
        {at: Approve(), "call_7/x": Deny("no")},
    ):
        for act in (firm.boss.resume, firm.boss.decide):
            with pytest.raises(DecisionRefused):
                act("r", decisions=decisions)
    assert {run_id: firm.store.load(run_id) for run_id in firm.store.list_runs()} == logs


def test_a_doubt_below_waits_at_the_top() -> None:
    firm = Firm(pay={"on_crash": "ask"})
    firm.boss.run("go", run_id="r")
    store = MemoryStore()
    for run_id in firm.store.list_runs():  # all three processes died while the money was paid
        log = firm.store.load(run_id)
        started = next(n for n, e in enumerate(log) if isinstance(e, ToolCall))
        store.append_many(run_id, log[: started + 1])
    again = Firm(store, pay={"on_crash": "ask"})
    doubtful = again.boss.resume("r")
    assert (doubtful.status, [p.kind for p in doubtful.pending]) == ("in_doubt", ["doubt"])
    result = again.boss.resume("r", decisions={doubtful.pending[0].call_id: Happened("paid 5")})
    assert (result.text, again.paid) == ("All done.", [])


def test_a_limit_of_the_parents_holds_below_and_what_stopped_goes_on_once_it_is_raised() -> None:
    firm = Firm(budget=Budget(turns=4))
    stopped = firm.boss.run("go", run_id="r")
    assert stopped.status == "budget"
    assert "clerk" in (stopped.error or "")
    assert stopped.usage.input_tokens == 400
    assert (firm.asked, firm.paid) == ({"boss": 1, "clerk": 1, "cashier": 2}, [5])
    assert firm.boss.resume("r").status == "budget"
    result = firm.boss.resume("r", budget=Budget(turns=6))
    assert (result.text, firm.asked, firm.paid) == ("All done.", {"boss": 2, "clerk": 2, "cashier": 2}, [5])
    assert fold(firm.store.load("r")).spent.turns == 6


def test_a_limit_of_its_own_is_told_to_the_model_above() -> None:
    store = MemoryStore()
    clerk = Agentor("clerk", model=ScriptedModel([call("look"), "never"]), tools=[look])
    tool = clerk.as_tool("ask_clerk", "Knows things.", budget=Budget(turns=1))
    boss = Agentor(
        "boss", model=ScriptedModel([call("ask_clerk", {"input": "?"}), "Well."]), tools=[tool], store=store
    )
    result = boss.run("go")
    assert result.text == "Well."
    assert "ended as budget" in result.messages[2]["content"]


def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ([error("no key")], "ended as failed: no key"),
        ([call("look"), call("look"), call("look")], "ended as max_turns"),
        ([answer("half", finish_reason="length")], "ended as truncated"),
    ],
)
def test_a_sub_agent_that_comes_to_nothing_is_an_error_for_the_model(script: list[Any], told: str) -> None:
    clerk = Agentor("clerk", model=ScriptedModel(script), tools=[look])
    tool = clerk.as_tool(max_turns=2)
    boss = Agentor(
        "boss",
        model=ScriptedModel([call("clerk", {"input": "?"}), "Well."]),
        tools=[tool],
        store=MemoryStore(),
    )
    result = boss.run("go")
    assert (result.text, told in result.messages[2]["content"]) == ("Well.", True)


def test_agents_run_in_agents_without_a_store_and_wrong_arguments_start_nothing() -> None:
    clerk = Agentor("a clerk!", model=ScriptedModel(["Yes."]))
    assert clerk.as_tool().name == "a_clerk_"
    script = [[call("a_clerk_", {"input": 5}), call("a_clerk_", {"input": "?"})], "Well."]
    result = Agentor("boss", model=ScriptedModel(script), tools=[clerk.as_tool()]).run("go")
    assert [m["content"] for m in result.messages[2:4]] == ["Error: 'input' must be a text", "Yes."]


async def test_a_cancel_reaches_the_sub_agent_and_a_resume_goes_on_with_it() -> None:
    began, stopped, goes_on = threading.Event(), threading.Event(), False

    async def wait() -> str:
        began.set()
        if goes_on:
            return "went on"
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    store = MemoryStore()
    clerk = Agentor(
        "clerk",
        model=ScriptedModel([answer(None, call("wait"), usage=USAGE), answer("Yes.", usage=USAGE)]),
        tools=[wait],
    )
    boss = Agentor(
        "boss",
        model=ScriptedModel([call("clerk", {"input": "?"}), "Well."]),
        tools=[clerk.as_tool()],
        store=store,
    )
    running = asyncio.create_task(boss.arun("go", run_id="r"))
    await asyncio.to_thread(began.wait, 30)
    assert await boss.acancel("r", "enough") == "cancelled"
    result = await running
    assert (result.status, stopped.is_set(), result.usage.input_tokens) == ("cancelled", True, 100)
    child = next(e for e in store.load("r") if isinstance(e, Child))
    assert (child.status, store.describe([child.child])[0].status) == ("cancelled", "cancelled")
    goes_on = True
    resumed = await boss.aresume("r")
    assert (resumed.text, resumed.usage.input_tokens) == ("Well.", 200)
    assert len(store.list_runs()) == 2


async def test_a_sub_agent_that_is_cancelled_by_itself_is_an_error_for_the_model() -> None:
    began = threading.Event()

    async def wait() -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    store = MemoryStore()
    clerk = Agentor("clerk", model=ScriptedModel([call("wait"), "never"]), tools=[wait])
    boss = Agentor(
        "boss",
        model=ScriptedModel([call("clerk", {"input": "?"}), "Well."]),
        tools=[clerk.as_tool()],
        store=store,
    )
    running = asyncio.create_task(boss.arun("go", run_id="r"))
    await asyncio.to_thread(began.wait, 30)
    child = next(run_id for run_id in store.list_runs() if run_id != "r")
    assert await boss.acancel(child, "not this one") == "cancelled"
    result = await running
    assert (result.text, "not this one" in result.messages[2]["content"]) == ("Well.", True)


async def test_a_sub_agent_that_takes_too_long_is_stopped_and_the_model_told() -> None:
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    store = MemoryStore()
    clerk = Agentor("clerk", model=ScriptedModel([call("wait"), "never"]), tools=[wait])
    tool = clerk.as_tool(timeout_s=0.1)
    boss = Agentor(
        "boss", model=ScriptedModel([call("clerk", {"input": "?"}), "Well."]), tools=[tool], store=store
    )
    result = await boss.arun("go", run_id="r")
    assert (result.text, "no result after 0.1 s" in result.messages[2]["content"]) == ("Well.", True)
    child = next(run_id for run_id in store.list_runs() if run_id != "r")
    assert store.describe([child])[0].status == "cancelled"


def test_several_at_once_wait_and_are_decided_one_by_one() -> None:
    paid = []

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        paid.append(euros)
        return "paid"

    def clerk_step(messages: Any, _: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "done"
        return call("pay", {"euros": int(messages[-1]["content"])})

    store = MemoryStore()
    clerk = Agentor("clerk", model=ScriptedModel(clerk_step), tools=[pay])
    calls = [call("clerk", {"input": "1"}), call("clerk", {"input": "2"}), call("look")]
    boss = Agentor("boss", model=ScriptedModel([calls, "Well."]), tools=[clerk.as_tool(), look], store=store)
    paused = boss.run("go", run_id="r")
    assert [p.call_id for p in paused.pending] == ["call_1/call_1", "call_2/call_1"]
    half = boss.resume("r", decisions={"call_2/call_1": Approve()})
    assert (half.status, [p.call_id for p in half.pending], paid) == ("paused", ["call_1/call_1"], [2])
    whole = boss.resume("r", decisions={"call_1/call_1": Deny("no")})
    assert (whole.text, paid) == ("Well.", [2])
    assert [m["tool_call_id"] for m in whole.messages if m["role"] == "tool"] == [
        "call_1",
        "call_2",
        "call_3",
    ]


def test_a_run_that_came_to_nothing_so_often_is_poisoned() -> None:
    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel(["done"]), store=store, max_attempts=2)
    agent.run("go", run_id="whole")
    start = store.load("whole")[0]
    store.append_many("r", [start, type(start).from_dict({**start.to_dict(), "seq": 1, "format": None})])
    assert agent.resume("r").status == "poisoned"
    assert agent.fork("r").text == "done"


def test_a_fork_asks_sub_agents_of_its_own() -> None:
    firm = Firm(pay={"needs_approval": True})
    firm.boss.run("go", run_id="r")
    parent = {run_id: firm.store.load(run_id) for run_id in firm.store.list_runs()}
    branch = firm.boss.fork("r", fork_id="b")
    assert branch.status == "paused"
    assert firm.child_of("b") == firm.child_of("r")  # the copied start; its own comes behind the marker
    assert len({e.child for e in firm.store.load("b") if isinstance(e, ToolCall)}) == 2
    result = firm.boss.resume("b", decisions={branch.pending[0].call_id: Approve()})
    assert (result.text, firm.paid) == ("All done.", [5])
    assert {run_id: firm.store.load(run_id) for run_id in parent} == parent
    assert firm.boss.unresolved("r") != []


def test_a_sub_agent_that_was_finished_by_itself_lets_its_parent_go_on() -> None:
    firm = Firm(pay={"needs_approval": True})
    waits = firm.boss.run("go", run_id="r").pending[0]
    cashier = Agentor(
        "cashier", model=firm.cashier.model, tools=firm.cashier.tools, store=firm.store, on_change="refuse"
    )
    assert cashier.resume(str(waits.run_id), decisions={"call_1": Approve()}).status == "completed"
    result = firm.boss.resume("r")
    assert (result.text, firm.paid) == ("All done.", [5])


def test_a_run_whose_sub_agents_log_is_gone_says_so_and_how_to_go_on() -> None:
    firm = Firm(pay={"needs_approval": True})
    firm.boss.run("go", run_id="r")
    firm.store.delete(firm.child_of("r"))
    for act in (firm.boss.resume, firm.boss.unresolved):
        with pytest.raises(RunNotFound, match=firm.child_of("r")) as caught:
            act("r")
        assert "its call 'call_1': cancel() the run and resume() it" in caught.value.__notes__[0]
    firm.boss.cancel("r")
    result = firm.boss.resume("r")
    assert firm.boss.resume("r", decisions={result.pending[0].call_id: Approve()}).text == "All done."


def test_ids_of_calls_with_slashes_name_one_call_each() -> None:
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        paid.append(euros)
        return "paid"

    clerk = Agentor("clerk", model=ScriptedModel([call("pay", {"euros": 1}, id="x"), "done"]), tools=[pay])
    calls = [
        call("clerk", {"input": "go"}, id="a"),
        call("clerk", {"input": "again"}, id="a/"),
        *(call("pay", {"euros": n}, id=call_id) for n, call_id in enumerate(["a/x", "a//x", "a%2F/x"], 2)),
    ]
    store = MemoryStore()
    boss = Agentor("boss", model=ScriptedModel([calls, "Well."]), tools=[clerk.as_tool(), pay], store=store)
    waiting = {p.call_id: p for p in boss.run("go", run_id="r").pending}
    assert [(p.run_id is not None, (p.args or {})["euros"]) for p in waiting.values()] == [
        (False, 2),
        (False, 3),
        (False, 4),
        (True, 1),
        (True, 1),
    ]
    for call_id, p in waiting.items():
        before = list(paid)
        result = boss.resume("r", decisions={call_id: Approve()})
        assert paid == [*before, (p.args or {})["euros"]]
    assert result.text == "Well."


@pytest.mark.parametrize("name", ["turns", "tool_calls"])
@pytest.mark.parametrize("limit", range(1, 9))
def test_no_sub_agent_takes_a_run_over_its_budget_and_raising_it_step_by_step_ends_it(
    name: str, limit: int
) -> None:
    store, clerks = MemoryStore(), 3

    @function_tool
    def look(n: int) -> str:
        return "seen"

    def clerk_step(messages: Any, _: Any) -> Any:
        looks = sum(m["role"] == "assistant" for m in messages)
        return call("look", {"n": looks}) if looks < 2 else f"clerk {messages[0]['content']} is done"

    clerk = Agentor("clerk", model=ScriptedModel(clerk_step), tools=[look])
    calls = [call("clerk", {"input": str(n)}) for n in range(clerks)]
    boss = Agentor("boss", model=ScriptedModel([calls, "Well."]), tools=[clerk.as_tool()], store=store)
    result = boss.run("go", run_id="r", budget=Budget(**{name: limit}))
    while result.status == "budget":
        assert getattr(fold(store.load("r")).spent, name) <= limit
        limit += 1
        result = boss.resume("r", budget=Budget(**{name: limit}))
    spent = fold(store.load("r")).spent
    assert (result.text, spent.turns, spent.tool_calls) == ("Well.", 2 + 3 * clerks, 3 * clerks)
    assert getattr(spent, name) <= limit
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == [
        f"clerk {n} is done" for n in range(clerks)
    ]
