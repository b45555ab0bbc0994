"""Resume: finished results are final, and what was in flight goes by its tool's policy."""

from __future__ import annotations

import asyncio
import threading
import warnings
from typing import Any

import pytest

from agentor import Agentor, Happened, MemoryStore, NotHappened, ToolContext, function_tool
from agentor.engine.events import Event, Generation, RunStart, ToolCall, ToolResult, numbered
from agentor.errors import AgentChangedWarning, CorruptLog, RunBusy, RunNotFound, UnsupportedLog
from agentor.testing import ScriptedModel, answer, attempts, call, error


class Count:
    """Tools that count their runs, by argument."""

    def __init__(self, on_crash: Any = "rewind") -> None:
        self.ran: list[str] = []
        self.keys: list[str] = []

        @function_tool(on_crash=on_crash)
        def charge(what: str, ctx: ToolContext) -> str:
            """Charge."""
            self.ran.append(what)
            self.keys.append(ctx.idempotency_key)
            return f"charged {what}"

        self.tool = charge


def agent(store: MemoryStore, count: Count, script: Any, **more: Any) -> Agentor:
    return Agentor("clerk", "Be exact.", ScriptedModel(script), [count.tool], store=store, **more)


TWO = [[call("charge", {"what": "a"}), call("charge", {"what": "b"})], "done"]


def cut(store: MemoryStore, run_id: str, length: int) -> MemoryStore:
    """The store as a crash would have left it after `length` events."""
    other = MemoryStore()
    other.append_many(run_id, store.load(run_id)[:length])
    return other


def whole(count: Count, script: Any = None) -> tuple[MemoryStore, str, list[Event]]:
    store = MemoryStore()
    result = agent(store, count, TWO if script is None else script).run("go")
    assert result.run_id is not None
    return store, result.run_id, result.events


def test_a_finished_run_gives_its_stored_result_and_calls_nothing() -> None:
    store, run_id, events = whole(Count())
    late = Count()
    model = ScriptedModel(["another answer"])
    again = Agentor("clerk", "Be exact.", model, [late.tool], store=store).resume(run_id)
    assert (again.final_output, again.status, late.ran, model.requests) == ("done", "completed", [], [])
    assert store.load(run_id) == events


@pytest.mark.parametrize("length", range(1, 9))
def test_a_run_cut_after_any_event_ends_with_the_same_answer_and_request(length: int) -> None:
    store, run_id, events = whole(Count())
    last = next(e for e in reversed(events) if isinstance(e, Generation))
    assert len(events) == 8
    resumed = Count("retry")
    result = agent(cut(store, run_id, length), resumed, TWO).resume(run_id)
    assert (result.status, result.final_output) == ("completed", "done")
    again = next(e for e in reversed(result.events) if isinstance(e, Generation))
    assert again.messages == last.messages
    assert again.sent == last.sent
    recorded = [e for e in events[:length] if isinstance(e, ToolResult)]
    assert len(resumed.ran) == 2 - len(recorded)


def in_flight(on_crash: Any, finished: int) -> tuple[MemoryStore, str, Count]:
    """A run that was killed with two calls started and `finished` results saved."""
    store, run_id, _ = whole(Count(on_crash))
    return cut(store, run_id, 4 + finished), run_id, Count(on_crash)


def test_rewind_lets_the_model_decide_again_where_no_call_has_a_result() -> None:
    store, run_id, count = in_flight("rewind", 0)
    result = agent(store, count, TWO).resume(run_id)
    assert [e.type for e in result.events[4:7]] == ["run_start", "rewind", "generation"]
    assert sorted(count.ran) == ["a", "b"]
    assert [e.turn for e in result.events if isinstance(e, Generation)] == [1, 1, 2]


def test_rewind_notes_only_the_missing_call_where_another_has_its_result() -> None:
    store, run_id, count = in_flight("rewind", 1)
    result = agent(store, count, TWO).resume(run_id)
    assert count.ran == []
    tool_messages = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert tool_messages[0] == "charged a"
    assert "may or may not have taken effect" in tool_messages[1]


@pytest.mark.parametrize("finished", [0, 1])
def test_retry_runs_what_is_missing_again_under_the_same_key(finished: int) -> None:
    original = Count("retry")
    store, run_id, _ = whole(original)
    count = Count("retry")
    result = agent(cut(store, run_id, 4 + finished), count, TWO).resume(run_id)
    assert sorted(count.ran) == ["a", "b"][finished:]
    assert set(count.keys) <= set(original.keys)
    assert max(e.attempt for e in result.tool_calls) == 2


def test_fail_never_runs_the_call_again() -> None:
    store, run_id, count = in_flight("fail", 0)
    result = agent(store, count, TWO).resume(run_id)
    assert (count.ran, result.status) == ([], "completed")
    assert "counts as failed" in result.messages[3]["content"]


def test_ask_waits_for_a_person_and_takes_the_word() -> None:
    store, run_id, count = in_flight("ask", 0)
    clerk = agent(store, count, TWO)
    stopped = clerk.resume(run_id)
    assert stopped.status == "in_doubt"
    assert "call_1" in str(stopped.error)
    length = len(store.load(run_id))
    assert clerk.resume(run_id).status == "in_doubt"
    assert len(store.load(run_id)) == length  # asking twice writes nothing

    half = clerk.resume(run_id, decisions={"call_1": Happened("it went through")})
    assert (half.status, count.ran) == ("in_doubt", [])
    result = clerk.resume(run_id, decisions={"call_2": NotHappened()})
    assert (result.status, count.ran) == ("completed", ["b"])
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["it went through", "charged b"]


def test_a_decision_about_another_call_is_refused() -> None:
    store, run_id, count = in_flight("ask", 1)
    clerk = agent(store, count, TWO)
    with pytest.raises(ValueError, match="does not wait for a decision; calls that do: call_2"):
        clerk.resume(run_id, decisions={"call_1": Happened("x")})
    with pytest.raises(TypeError, match="Happened"):
        clerk.resume(run_id, decisions={"call_2": "yes"})  # type: ignore[dict-item]


def test_an_answer_on_disk_is_final_without_its_run_end() -> None:
    store, run_id, _ = whole(Count())
    model = ScriptedModel(["another"])
    result = Agentor("clerk", "Be exact.", model, [Count().tool], store=cut(store, run_id, 7)).resume(run_id)
    assert (result.final_output, model.requests) == ("done", [])


def test_budgets_go_on_counting_over_a_resume() -> None:
    store, count = MemoryStore(), Count()
    script = [call("charge", {"what": "x"})] * 9
    clerk = agent(store, count, script)
    first = clerk.run("go", max_turns=3)
    assert first.run_id is not None
    assert (first.status, len(count.ran)) == ("max_turns", 3)
    assert clerk.resume(first.run_id).status == "max_turns"
    assert len(count.ran) == 3
    more = clerk.resume(first.run_id, max_turns=5)
    assert (more.status, len(count.ran)) == ("max_turns", 5)
    branch = clerk.fork(first.run_id, "go on", max_turns=2)
    assert (branch.status, len(count.ran)) == ("max_turns", 7)
    assert clerk.fork(first.run_id).status == "max_turns"
    assert len(count.ran) == 7  # as a resume would: nothing is left to spend
    assert clerk.fork(first.run_id, max_turns=1).status == "max_turns"
    assert len(count.ran) == 8


def test_failure_counts_survive_a_crash_and_switch_the_tool_off() -> None:
    def breaks() -> str:
        raise RuntimeError("no")

    store = MemoryStore()
    script = [call("breaks"), call("breaks"), call("breaks"), "gave up"]

    def build(s: MemoryStore) -> tuple[Agentor, ScriptedModel]:
        model = ScriptedModel(script)
        return Agentor("a", model=model, tools=[breaks], store=s, max_tool_failures=2), model

    result = build(store)[0].run("go")
    assert result.run_id is not None
    events = store.load(result.run_id)
    place = [i for i, e in enumerate(events) if e.type == "tool_result"][1] + 1
    resumed, model = build(cut(store, result.run_id, place))
    again = resumed.resume(result.run_id)
    assert again.messages == result.messages
    assert model.requests[0]["tools"] is None
    roles = [m["role"] for m in again.messages]
    assert roles == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_five_starts_that_came_to_nothing_poison_a_run() -> None:
    store, count = MemoryStore(), Count()
    for seq in range(5):
        format_ = 1 if seq == 0 else None
        messages = [{"role": "user", "content": "go"}] if seq == 0 else []
        store.append("r", RunStart(seq=seq, at=1.0, agent="a", engine="x", format=format_, messages=messages))
    result = agent(store, count, TWO).resume("r")
    assert (result.status, count.ran) == ("poisoned", [])
    assert agent(store, count, TWO).resume("r").status == "poisoned"
    assert agent(store, count, TWO).fork("r").status == "completed"


def test_a_failed_model_call_is_sent_again_on_resume() -> None:
    store, count = MemoryStore(), Count()
    failed = agent(store, count, [error("no key")]).run("go")
    assert (failed.status, failed.run_id is not None) == ("failed", True)
    assert "no key" in str(failed.error)
    result = agent(store, count, ["fine now"]).resume(str(failed.run_id))
    assert (result.status, result.final_output) == ("completed", "fine now")


def test_retryable_failures_are_events_and_then_an_answer() -> None:
    store, count = MemoryStore(), Count()
    overloaded = error("overloaded", retryable=True)
    result = agent(store, count, [attempts(overloaded, overloaded, "ok")]).run("go")
    assert [e.type for e in result.events] == ["run_start", "retry", "retry", "generation", "run_end"]
    hopeless = agent(store, count, [overloaded]).run("go")
    assert (hopeless.status, [e.type for e in hopeless.events].count("retry")) == ("failed", 3)


@pytest.mark.parametrize(("reason", "status"), [("length", "truncated"), ("content_filter", "filtered")])
def test_a_cut_off_answer_is_no_completed_run_and_its_calls_never_start(reason: str, status: str) -> None:
    store, count = MemoryStore(), Count()
    script = [answer("half", call("charge", {"what": "a"}), finish_reason=reason), "whole"]
    clerk = agent(store, count, script)
    result = clerk.run("go")
    assert (result.status, result.final_output, count.ran) == (status, "half", [])
    run_id = str(result.run_id)
    assert clerk.resume(run_id).status == status
    assert clerk.continue_run(run_id, "go on").final_output == "whole"
    assert clerk.fork(run_id, "go on", at=1).final_output == "whole"
    assert count.ran == []


def test_call_ids_that_are_empty_or_equal_change_nothing_about_what_runs() -> None:
    store, count = MemoryStore(), Count()
    twins = [call("charge", {"what": w}, id=i) for w, i in (("a", ""), ("b", "x"), ("c", "x"))]
    result = agent(store, count, [twins, call("charge", {"what": "d"}, id="x"), "done"]).run("go")
    assert sorted(count.ran) == ["a", "b", "c", "d"]
    ids = [m["tool_call_id"] for m in result.messages if m["role"] == "tool"]
    assert ids == ["call_1_0", "x", "call_1_2", "call_2_0"]
    asked = [c["id"] for m in result.messages for c in m.get("tool_calls", [])]
    assert asked == ids  # a provider refuses a tool message that answers no call
    generation = next(e for e in result.events if isinstance(e, Generation))
    assert [c["id"] for c in generation.calls or []] == ["", "x", "x"]  # the log keeps its own ids


def test_an_unknown_run_and_a_missing_store_are_clear_errors() -> None:
    clerk = agent(MemoryStore(), Count(), TWO)
    with pytest.raises(RunNotFound, match="no run 'nope'"):
        clerk.resume("nope")
    with pytest.raises(KeyError):
        clerk.fork("nope", "x")
    with pytest.raises(ValueError, match="needs a store"):
        Agentor("a", model=ScriptedModel([])).resume("nope")


def test_a_run_that_is_held_is_busy_and_says_by_whom() -> None:
    store, run_id, _ = whole(Count())
    held = cut(store, run_id, 5)
    lease = held.lease(run_id, "somebody else", 30)
    clerk = agent(held, Count(), TWO)
    with pytest.raises(RunBusy, match="somebody else") as caught:
        clerk.resume(run_id)
    assert caught.value.pid is not None
    lease.release()
    assert clerk.resume(run_id).status == "completed"


def test_a_changed_agent_is_warned_about() -> None:
    store, run_id, _ = whole(Count())
    other = Agentor("clerk", "Be quick.", ScriptedModel(["x", "y"]), store=cut(store, run_id, 6))
    with pytest.warns(AgentChangedWarning, match=r"its instructions; tool 'charge' is gone"):
        other.resume(run_id)


def test_a_newer_log_is_refused() -> None:
    store, run_id, events = whole(Count())
    newer = MemoryStore()
    newer.append("r", RunStart(format=99, messages=[{"role": "user", "content": "x"}]))
    with pytest.raises(UnsupportedLog, match="format 99"):
        agent(newer, Count(), TWO).resume("r")
    store = cut(store, run_id, 5)
    store.append(run_id, Event.from_dict({"type": "suspended", "critical": True}))
    with pytest.raises(UnsupportedLog, match="suspended"):
        agent(store, Count(), TWO).resume(run_id)
    harmless = MemoryStore()
    note = Event.from_dict({"type": "note", "text": "kept"})
    harmless.append_many(run_id, [*events[:5], numbered(note, 5, 1.0)])
    fork = agent(harmless, Count("retry"), TWO).fork(run_id)
    assert any(e.type == "note" and e.extra == {"text": "kept"} for e in fork.events)


def test_a_gap_in_any_store_is_a_corrupt_log() -> None:
    class Holey(MemoryStore):
        def load(self, run_id: str) -> list[Event]:
            return [e for e in super().load(run_id) if e.seq != 2]

    _, run_id, events = whole(Count())
    holey = Holey()
    holey.append_many(run_id, events)
    with pytest.raises(CorruptLog, match="seq 2 is missing"):
        agent(holey, Count(), TWO).resume(run_id)


def test_reasoning_and_opaque_parts_go_back_exactly() -> None:
    opaque = {"reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "signature": "s+/="}]}
    first = answer("", call("charge", {"what": "a"}), **opaque)
    store, count = MemoryStore(), Count()
    result = agent(store, count, [first, "done"]).run("go")
    sent = result.messages[2]
    assert {k: sent[k] for k in opaque} == opaque
    assert sent["content"] == ""
    run_id = str(result.run_id)
    resumed = agent(cut(store, run_id, 4), Count(), [first, "done"]).resume(run_id)
    assert resumed.messages == result.messages


@pytest.mark.parametrize("step", [*range(1, 12), *range(12, 60, 3)])
async def test_a_cancelled_run_says_so_and_can_be_resumed(step: int) -> None:
    async def slow(what: str) -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return what

    store = MemoryStore()
    model = ScriptedModel([[call("slow", {"what": "a"}), call("slow", {"what": "b"})], "done"])
    clerk = Agentor("a", model=model, tools=[slow], store=store)
    task = asyncio.create_task(clerk.arun("go", run_id="r"))
    for _ in range(step):
        await asyncio.sleep(0)
    task.cancel()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = (await asyncio.gather(task, return_exceptions=True))[0]
    store.lease("r", "somebody else", 30).release()  # nobody holds it any more
    events = store.load("r")
    if not events:
        return  # cancelled before the run began
    assert events[-1].type in ("interrupted", "run_end"), done
    assert (await clerk.aresume("r")).status == "completed"


def test_the_write_ahead_order_holds_for_every_body() -> None:
    store = MemoryStore()

    @function_tool
    def look(what: str, ctx: ToolContext) -> str:
        """Look at what is on disk while the body runs."""
        kinds = [e for e in store.load(ctx.run_id) if isinstance(e, ToolCall)]
        assert ctx.call_id in {e.call_id for e in kinds}
        return "seen"

    script = [[call("look", {"what": "a"}), call("look", {"what": "b"})], "done"]
    result = Agentor("a", model=ScriptedModel(script), tools=[look], store=store).run("go")
    assert [e.error for e in result.events if isinstance(e, ToolResult)] == [None, None]


def test_a_result_is_saved_when_its_tool_ends_not_when_the_turn_does() -> None:
    saved = threading.Event()

    def quick() -> str:
        return "quick"

    def slow() -> str:
        return "saved before" if saved.wait(10) else "not saved"

    def watch(event: Event) -> None:
        if isinstance(event, ToolResult) and event.name == "quick":
            saved.set()

    model = ScriptedModel([[call("slow"), call("quick")], "done"])
    agent = Agentor("a", model=model, tools=[slow, quick], store=MemoryStore(), tracer=watch)
    result = agent.run("go")
    assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["saved before", "quick"]


async def test_a_lease_that_comes_after_the_cancel_is_given_back() -> None:
    asked, may_go, taken = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def lease(self, run_id: str, owner: str, ttl_s: float) -> Any:
            asked.set()
            may_go.wait(10)
            lease = super().lease(run_id, owner, ttl_s)
            taken.set()
            return lease

    store = Slow()
    task = asyncio.create_task(Agentor("a", model=ScriptedModel(["x"]), store=store).arun("go", run_id="r"))
    await asyncio.to_thread(asked.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(taken.wait, 10)
    store.lease("r", "somebody else", 30).release()
