"""Cancelling a run: from anywhere, at any step, with nothing lost and a conversation that goes on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agentor import (
    Agentor,
    Approve,
    Happened,
    MemoryStore,
    NotHappened,
    SQLiteStore,
    Unknown,
    function_tool,
)
from agentor.engine.events import Generation, Interrupted, ToolResult
from agentor.engine.result import RunResult
from agentor.engine.transcript import fold
from agentor.errors import RunNotFound
from agentor.testing import ScriptedModel, answer, call


class Endless:
    """An agent with tools that only a cancellation, or the test, ends."""

    def __init__(self, script: Any = None, **options: Any) -> None:
        self.store = MemoryStore()
        self.began, self.goes_on = threading.Event(), threading.Event()
        self.stopped = threading.Event()

        @function_tool(**options)
        async def wait(n: int = 0) -> str:
            self.began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            return "never"

        def slow() -> str:
            self.began.set()
            self.goes_on.wait(30)
            return "slow but done"

        def quick() -> str:
            return "quick"

        self.model = ScriptedModel(script or [[call("quick"), call("wait")], "done"])
        self.agent = Agentor("a", model=self.model, tools=[wait, slow, quick], store=self.store)

    async def cancelled_in_a_tool(self, reason: str = "enough") -> RunResult:
        """The result that the worker's caller gets, after another one has cancelled the run."""
        outside = Agentor("page", model=ScriptedModel([]), store=self.store)
        running = asyncio.create_task(self.agent.arun("go", run_id="r"))
        await asyncio.to_thread(self.began.wait, 30)
        assert await outside.acancel("r", reason) == "cancelled"
        return await running


async def test_a_cancelled_run_says_so_keeps_its_results_and_can_be_resumed() -> None:
    endless = Endless()
    result = await endless.cancelled_in_a_tool()
    assert (result.status, result.error, endless.stopped.is_set()) == ("cancelled", "enough", True)
    last = result.events[-1]
    assert isinstance(last, Interrupted)
    assert (last.in_doubt, last.abandoned) == (["call_2"], None)
    assert [m["content"][:25] for m in result.messages[-2:]] == ["quick", "Error: This call was inte"]
    assert endless.store.describe(["r"])[0].status == "cancelled"
    again = await endless.agent.aresume("r")
    assert (again.status, again.text, len(endless.model.requests)) == ("completed", "done", 2)
    assert again.messages[: len(result.messages)] == result.messages


async def test_a_cancelled_run_can_be_told_what_to_do_instead() -> None:
    endless = Endless(script=[call("wait"), "something else"])
    await endless.cancelled_in_a_tool()
    result = await endless.agent.acontinue_run("r", "No: do something else.")
    assert result.text == "something else"
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_a_sync_tool_that_ends_in_time_keeps_its_result() -> None:
    endless = Endless(script=[[call("slow"), call("wait")], "done"])
    outside = Agentor("page", model=ScriptedModel([]), store=endless.store)
    running = asyncio.create_task(endless.agent.arun("go", run_id="r"))
    await asyncio.to_thread(endless.began.wait, 30)
    cancelling = asyncio.create_task(outside.acancel("r"))
    await asyncio.to_thread(endless.stopped.wait, 30)  # at once; the thread is waited for
    assert not cancelling.done()
    endless.goes_on.set()
    assert await cancelling == "cancelled"
    result = await running
    assert next(e.content for e in result.events if isinstance(e, ToolResult)) == "slow but done"


@pytest.mark.parametrize(
    ("options", "then"),
    [
        ({"on_crash": "ask"}, "in_doubt"),
        ({"on_crash": "rewind", "reconcile": lambda ctx, args: Happened("it did")}, "completed"),
        ({"on_crash": "ask", "reconcile": lambda ctx, args: Unknown()}, "in_doubt"),
    ],
    ids=["ask", "reconcile", "unknown"],
)
async def test_a_call_that_a_resume_can_find_out_about_stays_in_doubt(
    options: dict[str, Any], then: str
) -> None:
    endless = Endless(**options)
    result = await endless.cancelled_in_a_tool()
    assert result.messages[-1]["role"] == "assistant"  # no note stands in for what is not known
    resumed = await endless.agent.aresume("r")
    assert resumed.status == then
    if then == "in_doubt":
        assert [p.call_id for p in endless.agent.unresolved("r")] == ["call_2"]
        resumed = await endless.agent.aresume("r", decisions={"call_2": Happened("yes")})
    assert resumed.text == "done"


async def test_a_call_that_failed_for_good_is_closed_as_failed() -> None:
    endless = Endless(on_crash="fail")
    result = await endless.cancelled_in_a_tool()
    assert "counts as failed" in result.messages[-1]["content"]


async def test_an_answer_that_is_on_its_way_is_stopped_and_what_was_seen_of_it_is_kept() -> None:
    store = MemoryStore()
    seen = asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, *args: Any) -> Any:  # type: ignore[override]  # the same chunks
            async for chunk in super().stream(*args):
                yield chunk
                seen.set()
                await asyncio.Event().wait()

    agent = Agentor("a", model=Slow([answer("one two", chunks=["one ", "two"])]), store=store)

    async def read() -> list[str]:
        return [e.text async for e in agent.astream("go", run_id="r") if e.type == "text_delta"]

    reading = asyncio.create_task(read())
    await seen.wait()
    assert await agent.acancel("r", "bored") == "cancelled"
    assert await reading == ["one "]
    made = [e for e in store.load("r") if isinstance(e, Generation)]
    assert [(e.text, e.error_type) for e in made] == [("one ", "cancelled")]
    assert not any(m["role"] == "assistant" for m in fold(store.load("r")).messages)


async def test_a_run_that_waits_for_a_person_is_cancelled_in_its_log() -> None:
    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        raise AssertionError("nobody approved it")

    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel([call("pay", {"euros": 5}), "done"]), tools=[pay], store=store)
    assert agent.run("go", run_id="r").status == "paused"
    before = store.load("r")
    assert Agentor("page", model=ScriptedModel([]), store=store).cancel("r", "no") == "cancelled"
    after = store.load("r")
    assert [e.type for e in after[len(before) :]] == ["tool_result", "interrupted"]
    assert after[-1].to_dict()["abandoned"] is True
    assert agent.unresolved("r") == []
    with pytest.raises(ValueError, match="does not wait"):
        agent.resume("r", decisions={"call_1": Approve()})
    result = agent.resume("r")
    assert (result.text, "not run" in result.messages[2]["content"]) == ("done", True)


def test_what_a_person_has_to_say_about_a_doubt_is_not_taken_away_by_a_page_without_the_tools() -> None:
    store = MemoryStore()
    ran = []

    @function_tool(on_crash="ask")
    def pay() -> str:
        ran.append(True)
        return "paid"

    agent = Agentor("a", model=ScriptedModel([call("pay"), "done"]), tools=[pay], store=store)
    agent.run("go", run_id="whole")
    log = store.load("whole")
    started = next(n for n, e in enumerate(log) if e.type == "tool_call")
    store.append_many("r", log[: started + 1])  # its process died in the tool
    assert agent.resume("r").status == "in_doubt"
    assert Agentor("page", model=ScriptedModel([]), store=store).cancel("r") == "cancelled"
    assert agent.resume("r").status == "in_doubt"
    assert agent.resume("r", decisions={"call_1": NotHappened()}).text == "done"
    assert len(ran) == 2


def test_a_run_that_is_over_is_left_as_it_is() -> None:
    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel(["done"]), store=store)
    agent.run("go", run_id="r")
    before = store.load("r")
    assert agent.cancel("r") == "completed"
    assert store.load("r") == before
    with pytest.raises(RunNotFound):
        agent.cancel("unknown")
    with pytest.raises(ValueError, match="needs a store"):
        Agentor("a", model=ScriptedModel([])).cancel("r")


def test_the_time_between_a_crash_and_its_cancel_is_nobodys_work() -> None:
    store = MemoryStore()
    Agentor("a", model=ScriptedModel(["done"]), store=store).run("go", run_id="whole")
    first, *_ = store.load("whole")
    store.append_many("r", [first])
    agent = Agentor("a", model=ScriptedModel(["done"]), store=store)
    assert agent.cancel("r") == "cancelled"
    *_, last = store.load("r")
    late = last.to_dict() | {"at": (last.at or 0.0) + 86_400}
    assert fold([first, type(last).from_dict(late)]).spent.seconds_active < 1


def test_cancelling_a_run_again_and_again_does_not_poison_it() -> None:
    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel(["done"]), store=store)
    agent.run("go", run_id="whole")
    store.append_many("r", store.load("whole")[:1])
    for _ in range(6):
        log = store.load("r")
        if log[-1].type == "interrupted":
            begun = type(log[0]).from_dict(log[0].to_dict() | {"seq": len(log), "format": None})
            store.append_many("r", [begun])
        assert agent.cancel("r") == "cancelled"
    assert agent.resume("r").text == "done"


async def test_a_store_that_cannot_pass_it_on_says_what_to_do_instead() -> None:
    endless = Endless()

    class Plain:
        def __init__(self, store: MemoryStore) -> None:
            self.append, self.load, self.list_runs = store.append, store.load, store.list_runs
            self.lease, self.append_many = store.lease, store.append_many

    endless.agent = Agentor("a", model=endless.model, tools=endless.agent.tools, store=Plain(endless.store))
    running = asyncio.create_task(endless.agent.arun("go", run_id="r"))
    await asyncio.to_thread(endless.began.wait, 30)
    with pytest.raises(TypeError, match="cancel the task"):
        await endless.agent.acancel("r")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert endless.store.describe(["r"])[0].status == "cancelled"


async def test_a_worker_that_does_not_stop_in_time_is_reported_as_running() -> None:
    endless = Endless(script=[[call("slow"), call("wait")], "done"])
    running = asyncio.create_task(endless.agent.arun("go", run_id="r"))
    await asyncio.to_thread(endless.began.wait, 30)
    assert await endless.agent.acancel("r", wait_s=0.0) == "running"
    await asyncio.to_thread(endless.stopped.wait, 30)
    endless.goes_on.set()
    assert (await running).status == "cancelled"


async def test_a_request_that_comes_as_the_run_ends_changes_nothing(tmp_path: Any) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    for n in range(8):
        began = asyncio.Event()
        agent = Agentor(
            "a",
            model=ScriptedModel([answer("done", delay_s=0.38 + 0.01 * n)]),
            store=store,
            tracer=lambda event, began=began: began.set(),
        )
        running = asyncio.create_task(agent.arun("go", run_id=f"r{n}"))
        await began.wait()
        said, result = await asyncio.gather(agent.acancel(f"r{n}"), running)
        assert said == result.status
        assert [e.seq for e in store.load(f"r{n}")] == list(range(len(result.events)))
        assert (await agent.aresume(f"r{n}")).text == "done"


async def test_whoever_follows_a_cancelled_run_comes_to_its_end() -> None:
    endless = Endless()
    await endless.cancelled_in_a_tool()
    seen = [event async for event in endless.agent.attach("r")]
    assert [e.type for e in seen] == [e.type for e in endless.store.load("r")]


async def test_cancelling_the_task_still_raises_and_leaves_a_cancelled_run() -> None:
    endless = Endless()
    running = asyncio.create_task(endless.agent.arun("go", run_id="r"))
    await asyncio.to_thread(endless.began.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert endless.store.describe(["r"])[0].status == "cancelled"
    assert (await endless.agent.aresume("r")).text == "done"
