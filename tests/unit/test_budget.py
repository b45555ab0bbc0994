"""Budgets are functions of the log: they survive crashes, count nothing twice, and can be raised."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor import Agentor, Approve, Budget, MemoryStore, function_tool
from agentor.engine.messages import Spent, Usage
from agentor.engine.transcript import fold
from agentor.errors import ModelError
from agentor.testing import ScriptedModel, answer, attempts, call

USED = Usage(input_tokens=100, output_tokens=10)
SCRIPT = [answer("", call("step", {"n": n}), usage=USED, cost=0.5) for n in range(4)] + [
    answer("done", usage=USED, cost=0.5)
]


def agent(store: Any = None, script: Any = SCRIPT, ran: list[int] | None = None, **more: Any) -> Agentor:
    @function_tool(on_crash="retry")
    def step(n: int) -> str:
        if ran is not None:
            ran.append(n)
        return "ok"

    return Agentor("a", model=ScriptedModel(list(script)), tools=[step], store=store or MemoryStore(), **more)


@pytest.mark.parametrize(
    ("budget", "turns", "ran", "why"),
    [
        (Budget(turns=2), 2, [0, 1], "turns: 2 of 2 spent, and the next step needs at least 1"),
        (Budget(tool_calls=2), 3, [0, 1], "tool_calls: 2 of 2 spent, and the next step needs at least 1"),
        (
            Budget(input_tokens=250),
            2,
            [0, 1],
            "input_tokens: 200 of 250 spent, and the next step needs at least 100",
        ),
        (Budget(output_tokens=20), 2, [0], "output_tokens: 20 of 20 spent"),
        (Budget(usd=1.0), 2, [0], "usd: 1 of 1 spent"),
        (Budget(usd=0.9, turns=2), 2, [0], "usd: 1 of 0.9 spent"),
    ],
)
def test_a_run_stops_before_the_step_that_would_go_over(
    budget: Budget, turns: int, ran: list[int], why: str
) -> None:
    did: list[int] = []
    result = agent(ran=did, budget=budget).run("go", run_id="r")
    assert (result.status, did) == ("budget", ran)
    assert str(result.error).startswith(why)
    assert "resume(run_id, budget=Budget(...))" in str(result.error)
    assert result.usage.input_tokens == 100 * turns


def test_a_budget_that_is_enough_is_no_limit_and_the_rest_is_told() -> None:
    result = agent(budget=Budget(turns=5, tool_calls=4, usd=3.0)).run("go")
    assert (result.status, result.left) == ("completed", {"turns": 0, "tool_calls": 0, "usd": 0.5})
    assert agent().run("go").left == {}


def test_a_higher_budget_goes_on_where_the_run_stopped_and_a_lower_one_changes_nothing() -> None:
    store, ran = MemoryStore(), list[int]()
    agent(store, ran=ran, budget=Budget(usd=1.0)).run("go", run_id="r")
    other = agent(store, ran=ran)
    length = len(store.load("r"))
    assert other.resume("r").status == "budget"  # its own budget, whatever agent resumes it
    assert other.resume("r", budget=Budget(usd=0.7)).status == "budget"
    assert len(store.load("r")) == length
    result = other.resume("r", budget=Budget(usd=9.0))
    assert (result.status, ran) == ("completed", [0, 1, 2, 3])
    assert result.left == {"usd": 6.5}


def test_of_one_run_its_own_budget_counts_before_the_agents() -> None:
    assert agent(budget=Budget(turns=1)).run("go", budget=Budget(turns=9)).status == "completed"


@pytest.mark.parametrize(("forks", "status", "own"), [("count", "budget", 1), ("from_zero", "completed", 3)])
def test_a_fork_counts_what_its_parent_spent_once_or_not_at_all(forks: Any, status: str, own: int) -> None:
    store = MemoryStore()
    clerk = agent(store, budget=Budget(turns=3, forks=forks))
    assert clerk.run("go", run_id="r").status == "budget"
    branch = clerk.fork("r", "again", at_turn=2, fork_id="f")
    assert (branch.status, branch.usage.input_tokens) == (status, 100 * (2 + own))
    assert branch.left == {"turns": 0}
    assert clerk.resume("r").left == {"turns": 0}  # the parent's is untouched


def test_retries_cost_nothing_and_failed_calls_are_no_turns() -> None:
    again = ModelError("busy", error_type="RateLimitError", retryable=True, retry_after_s=0.0)
    script = [attempts(again, again, SCRIPT[0]), SCRIPT[4]]
    assert agent(script=script, budget=Budget(turns=2)).run("go").status == "completed"


def test_waiting_for_a_person_is_free_and_working_is_not() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    def clerk(store: MemoryStore) -> Agentor:
        model = ScriptedModel([call("pay"), "done"])
        return Agentor("a", model=model, tools=[pay], store=store, budget=Budget(seconds_active=60))

    week_s = 7 * 86400.0
    store, late = MemoryStore(), MemoryStore()
    assert clerk(store).run("go", run_id="r").status == "paused"
    late.append_many("r", [replace(e, at=(e.at or 0.0) - week_s) for e in store.load("r")])
    result = clerk(late).resume("r", decisions={"call_1": Approve()})
    assert result.status == "completed"
    assert 50 < result.left["seconds_active"] < 60

    slow = MemoryStore()  # the same, but it was at work for a minute before it asked
    events = store.load("r")
    slow.append_many("r", [replace(events[0], at=(events[0].at or 0.0) - 60.0), *events[1:]])
    result = clerk(slow).resume("r", decisions={"call_1": Approve()})
    assert result.status == "budget"
    assert str(result.error).startswith("seconds_active: 60")


def test_a_deadline_ends_a_run_and_a_later_one_goes_on() -> None:
    store, past = MemoryStore(), datetime.now(UTC) - timedelta(seconds=1)
    result = agent(store, budget=Budget(deadline=past)).run("go", run_id="r")
    assert (result.status, result.usage.input_tokens) == ("budget", 0)
    assert f"deadline: {past.isoformat()[:19]}" in str(result.error)
    later = Budget(deadline=datetime.now(UTC) + timedelta(hours=1))
    assert agent(store).resume("r", budget=later).status == "completed"


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda: Budget(turns=0), ValueError, "turns must be a whole number above 0"),
        (lambda: Budget(tool_calls=1.5), ValueError, "tool_calls must be a whole number"),  # type: ignore[arg-type]
        (lambda: Budget(input_tokens="5"), ValueError, "input_tokens must be a whole number"),  # type: ignore[arg-type]
        (lambda: Budget(usd=float("nan")), ValueError, "usd must be a number above 0"),
        (lambda: Budget(usd=float("inf")), ValueError, "usd must be a number above 0"),
        (lambda: Budget(deadline=5), TypeError, "deadline must be a datetime"),  # type: ignore[arg-type]
        (lambda: Budget(usd=-1.0), ValueError, "usd must be a number above 0"),
        (lambda: Budget(deadline=datetime(2030, 1, 1)), ValueError, "needs a time zone"),
        (lambda: Budget(forks="maybe"), ValueError, "forks must be"),  # type: ignore[arg-type]
        (lambda: agent().run("go", budget={"turns": 1}), TypeError, "budget takes a Budget"),  # type: ignore[arg-type]
    ],
)
def test_a_budget_that_cannot_work_is_refused(make: Any, error: Any, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        make()


@given(cuts=st.lists(st.floats(0, 1), max_size=4), limit=st.integers(1, 6))
def test_whatever_crashes_in_between_nothing_is_counted_twice_or_forgotten(
    cuts: list[float], limit: int
) -> None:
    store = MemoryStore()
    budget = Budget(turns=limit)
    agent(store, budget=budget).run("go", run_id="r")
    for where in cuts:
        events = store.load("r")
        store = MemoryStore()
        store.append_many("r", events[: 1 + int(where * (len(events) - 1))])
        agent(store).resume("r")
    log = store.load("r")
    answers = [e for e in log if e.type == "generation" and getattr(e, "error", None) is None]
    spent = fold(log).spent
    assert spent.turns == len(answers) <= limit
    assert spent.tool_calls == sum(e.type == "tool_call" for e in log)
    assert spent.input_tokens == 100 * len(answers)
    assert spent.usd == pytest.approx(0.5 * len(answers))
    assert spent - spent == Spent()


def test_an_answer_whose_calls_a_budget_kept_back_is_not_paid_for_again() -> None:
    ran: list[int] = []

    @function_tool  # on_crash="rewind"
    def step(n: int) -> str:
        ran.append(n)
        return "ok"

    model = ScriptedModel([[call("step", {"n": 1}), call("step", {"n": 2})], "done"])
    held = Agentor("a", model=model, tools=[step], store=MemoryStore(), budget=Budget(tool_calls=1))
    assert (held.run("go", run_id="r").status, ran) == ("budget", [])
    result = held.resume("r", budget=Budget(tool_calls=2))
    assert (result.text, ran, len(model.requests)) == ("done", [1, 2], 2)
