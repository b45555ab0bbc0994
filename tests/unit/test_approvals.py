"""Calls that wait for a person: nothing starts without a word, and each word counts once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor import (
    Agentor,
    Approve,
    Deny,
    Happened,
    MemoryStore,
    NotHappened,
    ToolContext,
    Unknown,
    function_tool,
)
from agentor.engine.events import Approval, ApprovalRequest, Event, ToolCall, ToolResult
from agentor.engine.result import RunResult
from agentor.errors import DecisionRefused, RunBusy, ToolDefinitionError
from agentor.testing import ScriptedModel, call

PAY = [call("look", {"n": 1}), call("pay", {"euros": 5}), call("pay", {"euros": 7})]


class Till:
    """An agent that looks, and pays only with an approval; it counts what ran."""

    def __init__(self, store: Any = None, script: Any = None, **options: Any) -> None:
        self.store = store or MemoryStore()
        self.paid: list[tuple[float, str]] = []
        self.looked = 0

        @function_tool(**{"needs_approval": True, **options})
        def pay(ctx: ToolContext, euros: float) -> str:
            self.paid.append((euros, ctx.idempotency_key))
            return f"paid {euros}"

        def look(n: int) -> str:
            self.looked += 1
            return "seen"

        self.model = ScriptedModel(script or [PAY, "done"])
        self.agent = Agentor("till", model=self.model, tools=[pay, look], store=self.store)

    def run(self) -> RunResult:
        return self.agent.run("go", run_id="r")


def kinds(events: list[Event]) -> list[str]:
    return [e.type for e in events]


def test_the_other_calls_of_the_turn_run_and_then_the_run_waits_in_no_process() -> None:
    till = Till()
    stopped = till.run()
    assert (stopped.status, till.looked, till.paid) == ("paused", 1, [])
    assert [(p.call_id, p.tool, p.kind, p.args, p.reason) for p in stopped.pending] == [
        ("call_2", "pay", "approval", {"euros": 5}, "pay needs an approval"),
        ("call_3", "pay", "approval", {"euros": 7}, "pay needs an approval"),
    ]
    assert kinds(stopped.events)[-3:] == ["approval_request", "approval_request", "run_end"]
    assert "pay (call_2), pay (call_3)" in str(stopped.error)
    elsewhere = Till(till.store)
    assert elsewhere.agent.unresolved("r") == stopped.pending
    length = len(till.store.load("r"))
    assert elsewhere.agent.resume("r").status == "paused"
    assert len(till.store.load("r")) == length  # asking again writes nothing


def test_an_answer_in_part_pauses_again_and_the_rest_goes_on_in_another_process() -> None:
    till = Till()
    till.run()
    half = till.agent.resume("r", decisions={"call_2": Approve(by="ann", reason="small")})
    assert (half.status, [e for e, _ in till.paid]) == ("paused", [5])
    assert [p.call_id for p in half.pending] == ["call_3"]
    other = Till(till.store, script=[PAY, "done"])
    end = other.agent.resume("r", decisions={"call_3": Deny("too much", by="bob")})
    assert (end.status, other.paid, other.looked) == ("completed", [], 0)
    assert [m["content"] for m in end.messages if m["role"] == "tool"] == [
        "seen",
        "paid 5.0",
        "Error: denied: too much",
    ]
    words = [e for e in end.events if isinstance(e, Approval)]
    assert [(w.decision, w.by, w.reason) for w in words] == [
        ("approve", "ann", "small"),
        ("deny", "bob", "too much"),
    ]


def test_edited_arguments_are_recorded_before_and_after_and_have_a_key_of_their_own() -> None:
    till = Till(script=[call("pay", {"euros": 500}), "done"])
    stopped = till.run()
    end = till.agent.resume("r", decisions={"call_1": Approve(args={"euros": 5})})
    assert end.status == "completed"
    assert [e for e, _ in till.paid] == [5]
    (started,) = [e for e in end.events if isinstance(e, ToolCall)]
    assert started.args == {"euros": 5}
    assert stopped.pending[0].args == {"euros": 500}
    unedited = Till(script=[call("pay", {"euros": 500}), "done"])
    unedited.run()
    unedited.agent.resume("r", decisions={"call_1": Approve()})
    assert unedited.paid[0][1] != till.paid[0][1]


def test_decisions_can_be_written_by_one_process_and_acted_on_by_another() -> None:
    till = Till()
    till.run()
    page = Till(till.store)
    left = page.agent.decide("r", {"call_2": Approve(by="page")})
    assert [(p.call_id, p.decided) for p in left] == [("call_2", True), ("call_3", False)]
    assert page.paid == []
    page.agent.decide("r", {"call_3": Deny("no")})
    worker = Till(till.store)
    end = worker.agent.resume("r")
    assert (end.status, [e for e, _ in worker.paid]) == ("completed", [5])


def test_a_decision_about_other_arguments_than_the_person_saw_is_refused() -> None:
    till = Till()
    (first, second) = till.run().pending
    assert first.hash != second.hash
    with pytest.raises(DecisionRefused, match="r', call 'call_2': it is about other arguments"):
        till.agent.resume("r", decisions={"call_2": Approve(hash=second.hash)})
    assert till.paid == []
    till.agent.decide("r", {"call_2": Approve(hash=first.hash)})


def test_an_approval_that_ran_out_before_the_call_started_counts_no_more() -> None:
    till = Till(script=[call("pay", {"euros": 5}), "done"])
    till.run()
    till.agent.decide("r", {"call_1": Approve(expires_s=0)})
    again = till.agent.resume("r")
    assert (again.status, till.paid) == ("paused", [])
    assert till.agent.resume("r", decisions={"call_1": Approve(expires_s=60)}).status == "completed"


def test_of_two_approvals_the_one_that_ran_out_starts_nothing() -> None:
    till = Till()
    till.run()
    till.agent.decide("r", {"call_2": Approve(expires_s=0), "call_3": Approve(expires_s=60)})
    again = till.agent.resume("r")
    assert (again.status, [e for e, _ in till.paid]) == ("paused", [7])
    assert [p.call_id for p in again.pending] == ["call_2"]


def test_an_approval_in_the_log_that_is_about_something_else_starts_nothing() -> None:
    till = Till(script=[call("pay", {"euros": 5}), "done"])
    till.run()
    word = Approval(
        seq=len(till.store.load("r")), at=1.0, call_id="call_1", turn=1, decision="approve", hash="f" * 32
    )
    till.store.append("r", word)
    assert (till.agent.resume("r").status, till.paid) == ("paused", [])


def test_a_condition_decides_call_by_call_and_says_why() -> None:
    def dear(ctx: ToolContext, args: dict[str, Any]) -> Any:
        return f"{args['euros']} is over 6" if args["euros"] > 6 else False

    till = Till(needs_approval=dear)
    stopped = till.run()
    assert [e for e, _ in till.paid] == [5]
    assert [(p.call_id, p.reason) for p in stopped.pending] == [("call_3", "7 is over 6")]


def test_a_condition_that_fails_starts_nothing() -> None:
    async def broken(ctx: ToolContext, args: dict[str, Any]) -> bool:
        raise RuntimeError("no service")

    till = Till(needs_approval=broken)
    stopped = till.run()
    assert till.paid == []
    assert stopped.pending[0].reason == "needs_approval failed: RuntimeError: no service"


def test_calls_that_would_be_refused_anyway_ask_nobody() -> None:
    till = Till(script=[[call("pay", "no JSON"), call("nosuch")], "done"])
    assert till.run().status == "completed"


def test_a_fork_keeps_no_decision_that_its_parent_may_still_use() -> None:
    till = Till(script=[call("pay", {"euros": 5}), "done", "done"])
    till.run()
    till.agent.decide("r", {"call_1": Approve()})
    branch = till.agent.fork("r", fork_id="f")
    assert (branch.status, [p.decided for p in branch.pending]) == ("paused", [False])
    assert till.agent.resume("r").status == "completed"
    assert len(till.paid) == 1
    assert till.agent.resume("f").status == "paused"
    assert till.agent.resume("f", decisions={"call_1": Approve()}).status == "completed"
    assert len({key for _, key in till.paid}) == 2  # two payments under two keys, each approved


def test_a_fork_with_a_new_message_leaves_the_waiting_call_aside() -> None:
    till = Till(script=[call("pay", {"euros": 5}), "other"])
    till.run()
    branch = till.agent.fork("r", "Do not pay.")
    assert (branch.final_output, till.paid) == ("other", [])
    assert "was not run" in branch.messages[2]["content"]


def cut(till: Till, length: int) -> MemoryStore:
    store = MemoryStore()
    store.append_many("r", till.store.load("r")[:length])
    return store


def test_a_crash_at_any_point_starts_nothing_without_its_approval_and_nothing_twice() -> None:
    whole = Till()
    whole.run()
    whole.agent.resume("r", decisions={"call_2": Approve(), "call_3": Approve(args={"euros": 1})})
    events = whole.store.load("r")
    for length in range(1, len(events) + 1):
        before = events[:length]
        till = Till(cut(whole, length))
        result = till.agent.resume("r")
        if result.status == "paused":
            asked = {p.call_id: Approve() for p in result.pending}
            result = till.agent.resume("r", decisions=asked)
        assert result.status == "completed", length
        log = till.store.load("r")
        for event in log:
            if isinstance(event, ToolCall) and event.name == "pay":
                words = [
                    e for e in log[: event.seq] if isinstance(e, Approval) and e.call_id == event.call_id
                ]
                assert words, f"cut at {length}: {event.call_id} started without an approval"
        recorded = sum(isinstance(e, ToolResult) and e.name == "pay" and e.error is None for e in before)
        assert len(till.paid) <= 2 - recorded


@pytest.mark.parametrize("policy", ["retry", "ask", "fail", "rewind"])
def test_an_approved_call_that_was_interrupted_goes_by_on_crash(policy: Any) -> None:
    whole = Till(script=[call("pay", {"euros": 5}), "done"], on_crash=policy)
    whole.run()
    whole.agent.resume("r", decisions={"call_1": Approve(args={"euros": 4})})
    place = next(e.seq for e in whole.store.load("r") if isinstance(e, ToolCall)) or 0
    till = Till(cut(whole, place + 1), script=[call("pay", {"euros": 5}), "done"], on_crash=policy)
    result = till.agent.resume("r")
    if policy == "retry":  # the same call with the same edited arguments: its approval covers it
        assert till.paid == whole.paid
    else:
        assert till.paid == []
        assert result.status == ("in_doubt" if policy == "ask" else "completed")
    if policy == "ask":
        with pytest.raises(DecisionRefused, match="it has started, and may have happened"):
            till.agent.resume("r", decisions={"call_1": Approve()})
        assert till.agent.resume("r", decisions={"call_1": Deny("leave it")}).status == "completed"
        assert till.paid == []


# --- wrong words ------------------------------------------------------------------------------------


def test_words_that_a_run_has_no_use_for_are_refused_and_write_nothing() -> None:
    till = Till()
    till.run()
    length = len(till.store.load("r"))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"call_1": Approve()}, "calls that do: call_2, call_3"),
        ({"nosuch": Deny("x")}, "does not wait for a decision"),
        ({"call_2": Happened("x")}, r"it has not started: say Approve\(\)"),
        ({"call_2": NotHappened()}, "it has not started"),
        ({"call_2": Approve(), "nosuch": Approve()}, "does not wait"),
    ]
    for decisions, complaint in refused:
        for act in (till.agent.resume, till.agent.decide):
            with pytest.raises(DecisionRefused, match=complaint):
                act("r", decisions=decisions)
    assert len(till.store.load("r")) == length
    with pytest.raises(TypeError, match=r"must be Approve\(\), Deny\(why\), Happened\(result\)"):
        till.agent.decide("r", {"call_2": True})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda: Approve(args=[1]), TypeError, "args must be a JSON object"),  # type: ignore[arg-type]
        (lambda: Approve(args={"n": {1}}), ValueError, "args cannot be saved as JSON: .*set"),
        (lambda: Approve(args={"n": float("nan")}), ValueError, "args cannot be saved as JSON"),
        (lambda: Approve(expires_s=-1), ValueError, "expires_s must be seconds from 0 on"),
        (lambda: Approve(expires_s=float("nan")), ValueError, "expires_s must be seconds from 0 on"),
        (lambda: Approve(by=7), TypeError, "by must be a text"),  # type: ignore[arg-type]
        (lambda: Deny({"why": 1}), TypeError, "reason must be a text"),  # type: ignore[arg-type]
        (lambda: Happened({"paid": 5}), TypeError, "result must be the text"),  # type: ignore[arg-type]
        (lambda: NotHappened(hash=1), TypeError, "hash must be a text"),  # type: ignore[arg-type]
    ],
)
def test_a_word_that_no_log_could_keep_is_refused_where_it_is_said(
    make: Callable[[], Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        make()


def test_a_second_word_on_the_same_call_is_refused_and_says_who_was_first() -> None:
    till = Till()
    till.run()
    till.agent.decide("r", {"call_2": Approve(by="ann")})
    with pytest.raises(DecisionRefused, match="it is decided already by ann: approve"):
        till.agent.decide("r", {"call_2": Deny("no", by="bob")})


def test_a_finished_run_takes_no_more_words() -> None:
    till = Till(script=[call("pay", {"euros": 5}), "done"])
    till.run()
    till.agent.resume("r", decisions={"call_1": Approve()})
    with pytest.raises(DecisionRefused, match="calls that do: none"):
        till.agent.resume("r", decisions={"call_1": Approve()})
    assert len(till.paid) == 1


async def test_of_two_who_decide_at_once_one_is_heard() -> None:
    till = Till(script=[call("pay", {"euros": 5}), "done"])
    await till.agent.arun("go", run_id="r")
    words = [Approve(by="ann"), Deny("no", by="bob"), Approve(by="eve")]
    outcomes = await asyncio.gather(
        *(till.agent.adecide("r", {"call_1": word}) for word in words), return_exceptions=True
    )
    assert sum(isinstance(o, DecisionRefused) for o in outcomes) == 2
    assert sum(isinstance(e, Approval) for e in till.store.load("r")) == 1


WORDS = st.sampled_from(
    [
        Approve(),
        Approve(hash="0" * 32),
        Approve(expires_s=0),
        Deny("no"),
        Happened("x"),
        NotHappened(),
        Approve(args={"euros": 1}),
    ]
)
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "resume", "fork"]),
        st.dictionaries(st.sampled_from(["call_1", "call_2", "call_3", "zzz"]), WORDS, max_size=2),
    ),
    max_size=5,
)


@given(acts=ACTS)
def test_whatever_is_decided_no_payment_is_made_without_its_own_approval(acts: Any) -> None:
    till = Till(
        script=lambda messages, _: PAY if sum(m["role"] == "assistant" for m in messages) == 0 else "done"
    )
    till.run()
    current = "r"
    for number, (act, decisions) in enumerate(acts):
        with contextlib.suppress(DecisionRefused, RunBusy):
            if act == "decide":
                till.agent.decide(current, decisions)
            elif act == "resume":
                till.agent.resume(current, decisions=decisions)
            else:
                current = str(till.agent.fork(current, fork_id=f"f{number}").run_id)
    for run_id in till.store.list_runs():
        log = till.store.load(run_id)
        own = max((e.seq or 0 for e in log if e.type == "fork"), default=-1)
        starts = [e for e in log if isinstance(e, ToolCall) and e.name == "pay" and (e.seq or 0) > own]
        for start in starts:
            words = [
                e
                for e in log[own + 1 : start.seq]
                if isinstance(e, Approval) and e.call_id == start.call_id and e.decision == "approve"
            ]
            assert words
        assert len({s.call_id for s in starts}) == len(starts)
        asked = [e.call_id for e in log if isinstance(e, ApprovalRequest)]
        assert len(asked) == len(set(asked))


# --- the outside world ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "paid", "shown"),
    [
        (Happened("receipt 7"), 0, "receipt 7"),
        (NotHappened(), 1, "paid 5.0"),
        (Unknown(), 0, "may or may not have taken effect"),
        (RuntimeError("no service"), 0, "may or may not have taken effect"),
    ],
)
def test_a_tool_that_can_ask_the_outside_world_settles_its_own_doubts(
    word: Any, paid: int, shown: str
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def reconcile(ctx: ToolContext, args: dict[str, Any]) -> Any:
        seen.append((ctx.idempotency_key, args))
        if isinstance(word, Exception):
            raise word
        return word

    script = [[call("look", {"n": 1}), call("pay", {"euros": 5})], "done"]
    whole = Till(script=script, needs_approval=False)
    whole.run()
    place = next(e.seq for e in whole.store.load("r") if isinstance(e, ToolResult)) or 0
    store = cut(whole, place + 1)  # one of the two has its result
    started = {e.call_id for e in store.load("r") if isinstance(e, ToolCall)}
    finished = {e.call_id for e in store.load("r") if isinstance(e, ToolResult)}
    assert started - finished == {"call_2"}
    till = Till(store, script=script, needs_approval=False, reconcile=reconcile)
    result = till.agent.resume("r")
    assert result.status == "completed"
    assert len(till.paid) == paid
    assert shown in result.messages[-2]["content"]
    assert seen == [(whole.paid[0][1], {"euros": 5})]


def test_options_that_cannot_work_are_refused() -> None:
    for options, complaint in (({"needs_approval": 3}, "needs_approval"), ({"reconcile": 3}, "reconcile")):
        with pytest.raises(ToolDefinitionError, match=complaint):
            Till(**options)  # type: ignore[arg-type]
