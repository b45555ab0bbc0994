"""What people expect of a run that stops, waits and goes on, each by its name."""

from __future__ import annotations

from typing import Any

import pytest

from agentor import Agentor, Approve, MemoryStore, function_tool
from agentor.engine.events import Event, ToolCall, ToolResult
from agentor.errors import StoreError
from agentor.testing import ScriptedModel, answer, attempts, call, error


@function_tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return f"paid {euros}"


def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


PAID: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def said(result: Any) -> list[Any]:
    return [(m["role"], m.get("content")) for m in result.messages]


SCRIPT = [[call("look", {"n": 1}), call("look", {"n": 2})], call("look", {"n": 3}), "done"]


async def test_a_store_and_a_stream_change_nothing_of_a_run() -> None:
    def agent(store: Any = None) -> Agentor:
        return Agentor("a", "Be brief.", ScriptedModel(SCRIPT), [look], store=store)

    store = MemoryStore()
    plain, kept = await agent().arun("go"), await agent(store).arun("go")
    streamed = [e async for e in agent(store).astream("go", run_id="s") if e.type != "text_delta"]
    assert said(plain) == said(kept)
    kinds = [e.type for e in plain.events]
    assert [e.type for e in kept.events] == kinds == [e.type for e in streamed]
    assert [e.type for e in store.load("s")] == kinds


class FailsOnce(MemoryStore):
    """Does not take the first result of a tool."""

    failed = False

    def append_many(self, run_id: str, events: Any, epoch: int | None = None) -> None:
        if not self.failed and any(isinstance(e, ToolResult) for e in events):
            self.failed = True
            raise OSError("no space left")
        super().append_many(run_id, events, epoch)


def test_a_result_that_could_not_be_written_is_written_again_and_its_approved_tool_not_run_again() -> None:
    for durability in ("best_effort", "strict"):
        PAID.clear()
        store = FailsOnce()
        script = ScriptedModel([call("pay", {"euros": 5}), "done"])
        agent = Agentor("a", model=script, tools=[pay], store=store, durability=durability)  # type: ignore[arg-type]  # one of the two
        agent.run("go", run_id="r")
        if durability == "strict":
            with pytest.raises(StoreError):
                agent.resume("r", decisions={"call_1": Approve()})
        result = agent.resume("r", decisions={} if durability == "strict" else {"call_1": Approve()})
        assert (result.text, PAID, result.durable) == ("done", [5], True)
        calls = [e.type for e in store.load("r") if isinstance(e, ToolCall | ToolResult)]
        assert calls == ["tool_call", "tool_result"]


def test_an_error_after_a_resume_drops_nothing_that_happened_since_the_pause() -> None:
    store = MemoryStore()
    script = [call("pay", {"euros": 5}), attempts(error("the provider is down"), "done")]
    agent = Agentor("a", model=ScriptedModel(script), tools=[pay], store=store)
    agent.run("go", run_id="r")
    failed = agent.resume("r", decisions={"call_1": Approve()})
    assert (failed.status, failed.messages[-1]["content"]) == ("failed", "paid 5")
    result = agent.resume("r")
    assert (result.text, PAID) == ("done", [5])


def test_a_decision_counts_whatever_the_context_of_the_process_that_goes_on() -> None:
    store = MemoryStore()
    script = [call("pay", {"euros": 5}), "done"]
    Agentor("a", model=ScriptedModel(script), tools=[pay], store=store, context={"user": 1}).run(
        "go", run_id="r"
    )
    other = Agentor("a", model=ScriptedModel(script), tools=[pay], store=store, context=object())
    assert other.resume("r", decisions={"call_1": Approve()}).text == "done"
    assert PAID == [5]


def test_the_same_question_to_a_sub_agent_in_two_turns_or_twice_in_one_is_a_run_each() -> None:
    answers = iter(range(10))
    clerk = Agentor("clerk", model=ScriptedModel(lambda messages, _: f"answer {next(answers)}"))
    asks = call("clerk", {"input": "?"})
    store = MemoryStore()
    boss = Agentor(
        "boss", model=ScriptedModel([[asks, asks], asks, "done"]), tools=[clerk.as_tool()], store=store
    )
    result = boss.run("go", run_id="r")
    told = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert sorted(told) == ["answer 0", "answer 1", "answer 2"]
    assert len(store.list_runs()) == 4


def test_a_fork_behind_a_sub_agents_answer_does_not_ask_it_again() -> None:
    asked: list[Any] = []

    def clerk_step(messages: Any, _: Any) -> str:
        asked.append(messages)
        return "known"

    clerk = Agentor("clerk", model=ScriptedModel(clerk_step)).as_tool()
    script = [call("clerk", {"input": "?"}), call("look", {"n": 1}), "done"]
    store = MemoryStore()
    boss = Agentor("boss", model=ScriptedModel(script), tools=[clerk, look], store=store)
    boss.run("go", run_id="r")
    branch = boss.fork("r", "Once more.", at_turn=1)
    assert (branch.messages[2]["content"], len(asked)) == ("known", 1)
    assert len([r for r in store.list_runs() if r.startswith("child-")]) == 1


@pytest.mark.parametrize("cut", range(1, 11))
@pytest.mark.parametrize("way", ["resume", "fork"])
def test_whatever_was_cut_off_every_call_has_one_result_in_what_a_model_is_sent(cut: int, way: str) -> None:
    store = MemoryStore()
    Agentor("a", model=ScriptedModel(SCRIPT), tools=[look], store=store).run("go", run_id="whole")
    log = store.load("whole")
    assert cut < len(log)
    store.append_many("r", log[:cut])
    model = ScriptedModel(SCRIPT)
    agent = Agentor("a", model=model, tools=[look], store=store)
    assert agent.resume("r").text == "done" if way == "resume" else agent.fork("r", "And now?") is not None
    for request in model.requests:
        open_ids: list[str] = []
        for message in request["messages"]:
            if message["role"] == "tool":
                open_ids.remove(message["tool_call_id"])
            else:
                assert open_ids == []
                open_ids = [c["id"] for c in message.get("tool_calls") or []]
        assert open_ids == []


async def test_events_of_earlier_processes_are_part_of_a_resumed_result() -> None:
    store = MemoryStore()
    agent = Agentor(
        "a", model=ScriptedModel([call("pay", {"euros": 5}), answer("done")]), tools=[pay], store=store
    )
    before: list[Event] = (await agent.arun("go", run_id="r")).events
    after = (await agent.aresume("r", decisions={"call_1": Approve()})).events
    assert after[: len(before)] == before
    assert [e.seq for e in after] == list(range(len(after)))
