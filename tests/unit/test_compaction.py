"""A conversation that is made shorter: pairs stay whole, the original stays in the log, nothing is paid twice."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor import Agentor, Budget, MemoryStore, Summary
from agentor.engine.compaction import Compacted, problem_of, whole_from
from agentor.engine.events import Context, Generation
from agentor.engine.messages import Usage
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.testing import ScriptedModel, answer, call


def step(n: int) -> str:
    return f"result {n}"


def script(messages: Any, _: Any) -> Any:
    """Five steps, whatever was made of the conversation: the result of the last one tells which is next."""
    last = next((m["content"] for m in reversed(messages) if m["role"] == "tool"), "result 0")
    n = int(last.split()[-1]) + 1
    usage = Usage(input_tokens=100 * len(messages), output_tokens=10)
    return answer("done", usage=usage) if n > 5 else answer("", call("step", {"n": n}), usage=usage)


def agent(store: Any, compaction: Any, **more: Any) -> Agentor:
    model = ScriptedModel(script)
    return Agentor("a", "Be brief.", model, [step], store=store, compaction=compaction, **more)


def summary(text: str = "they did steps", keep: int = 3) -> Summary:
    told = answer(text, usage=Usage(input_tokens=7, output_tokens=3), cost=0.1)
    return Summary(ScriptedModel(lambda messages, _: told), over_tokens=500, keep=keep)


def test_an_old_part_becomes_a_summary_once_the_request_is_too_large() -> None:
    store = MemoryStore()
    result = agent(store, summary()).run("go", run_id="r")
    assert result.status == "completed"
    log = hydrate("r", store.load("r"))[0]
    contexts = [e for e in log if isinstance(e, Context)]
    assert len(contexts) >= 1
    short = contexts[0].messages
    assert short[0] == {"role": "system", "content": "Be brief."}
    assert short[1]["content"] == "Summary of the conversation so far:\n\nthey did steps"
    assert problem_of(short) is None
    sizes = [len(e.messages) for e in log if isinstance(e, Generation)]
    assert max(sizes) <= 7
    assert result.usage.input_tokens == sum(100 * s for s in sizes) + 7 * len(contexts)
    assert result.cost == pytest.approx(0.1 * len(contexts))


def test_the_original_stays_in_the_log_and_a_fork_from_before_sees_it_whole() -> None:
    store = MemoryStore()
    agent(store, summary()).run("go", run_id="r")
    log = hydrate("r", store.load("r"))[0]
    place = next(e.seq for e in log if isinstance(e, Context)) or 0
    branch = agent(store, None).fork("r", "and now?", at=place - 1, fork_id="f")
    first = next(e for e in branch.events[place:] if isinstance(e, Generation))
    assert "Summary" not in str(first.messages)
    assert [m["content"] for m in first.messages if m["role"] == "tool"] == [
        "result 1",
        "result 2",
        "result 3",
    ]


def test_a_resume_makes_no_summary_again_that_is_in_the_log() -> None:
    whole = MemoryStore()
    agent(whole, summary()).run("go", run_id="r")
    events = whole.load("r")
    for length in range(1, len(events)):
        asked: list[int] = []

        def hook(messages: Any, used: Any, asked: list[int] = asked) -> Any:
            asked.append(len(messages))
            return None

        store = MemoryStore()
        store.append_many("r", events[:length])
        result = agent(store, hook).resume("r")
        assert result.status == "completed"
        made = sum(isinstance(e, Context) for e in events[:length])
        assert sum(isinstance(e, Context) for e in result.events) == made


def test_a_function_of_ones_own_may_be_sync_and_gives_messages() -> None:
    def newest(messages: Any, used: Any) -> Any:
        return [messages[0], messages[1], *messages[-2:]] if len(messages) > 4 else None

    store = MemoryStore()
    assert agent(store, newest).run("go", run_id="r").status == "completed"
    sizes = [len(e.messages) for e in hydrate("r", store.load("r"))[0] if isinstance(e, Generation)]
    assert max(sizes) == 4


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (lambda messages, used: messages[1:2] + messages[3:4], "is a result without its call"),
        (lambda messages, used: messages[:3], "is missing"),
        (lambda messages, used: [], "not empty"),
        (lambda messages, used: [{"content": "x"}], "under 'role'"),
        (lambda messages, used: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_no_provider_would_take_is_not_used_and_said(bad: Any, complaint: str) -> None:
    def hook(messages: Any, used: Any) -> Any:
        return bad(messages, used) if len(messages) == 4 else None

    store = MemoryStore()
    with pytest.warns(RuntimeWarning, match=complaint):
        assert agent(store, hook).run("go", run_id="r").status == "completed"
    assert not any(isinstance(e, Context) for e in store.load("r"))


def test_what_a_summary_costs_counts_in_the_budget() -> None:
    store = MemoryStore()
    result = agent(store, summary(), budget=Budget(usd=0.05)).run("go", run_id="r")
    assert result.status == "budget"
    assert "usd: 0.1 of 0.05 spent" in str(result.error)


def test_the_first_request_after_it_is_shown_whole_in_the_trace() -> None:
    store = MemoryStore()
    agent(store, summary()).run("go", run_id="r")
    log = hydrate("r", store.load("r"))[0]
    place = next(e.seq for e in log if isinstance(e, Context)) or 0
    (chat,) = [s for s in project("r", log) if getattr(s, "generation", None) and s.seq == place + 1]
    assert list(chat.new) == log[place].messages  # type: ignore[attr-defined]


def test_a_summary_that_gains_nothing_is_not_asked_for() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = MemoryStore()
        agent(store, summary(keep=100)).run("go", run_id="r")
    assert not any(isinstance(e, Context) for e in store.load("r"))
    for wrong in ({"over_tokens": 0}, {"over_tokens": 5, "keep": 0}):
        with pytest.raises(ValueError, match="above 0"):
            Summary(ScriptedModel([]), **wrong)
    assert Compacted(messages=[]).usage is None


TURNS = st.lists(st.integers(0, 3), max_size=6)  # calls of each turn


@given(turns=TURNS, place=st.integers(-2, 30))
def test_no_place_splits_a_call_from_its_results(turns: list[int], place: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    for number, calls in enumerate(turns):
        ids = [f"c{number}_{n}" for n in range(calls)]
        asked = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
        messages.append({"role": "assistant", "content": "y", **({"tool_calls": asked} if asked else {})})
        messages += [{"role": "tool", "tool_call_id": i, "content": "z"} for i in ids]
    cut = whole_from(messages, place)
    assert 0 <= cut <= len(messages)
    assert cut == len(messages) or problem_of(messages[cut:]) is None
    assert problem_of(messages) is None
