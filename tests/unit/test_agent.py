"""`Agentor`: sync and async, streams, threads, forks of the process, and what it refuses."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentor import Agentor, FileStore, MemoryStore, ModelSettings
from agentor.engine.events import Event, Generation, RunStart, TextDelta
from agentor.engine.threads import background
from agentor.errors import Conflict, InvalidRunId, MissingKey, StoreError, WrongThread
from agentor.testing import ScriptedModel, answer, call


def hello(**more: Any) -> Agentor:
    return Agentor("a", model=ScriptedModel(["hello there"]), **more)


def test_a_run_without_a_store_has_no_id_and_is_not_durable() -> None:
    result = hello().run("hi")
    assert (str(result), result.run_id, result.durable, result.store_errors) == (
        "hello there",
        None,
        False,
        [],
    )


def test_messages_are_input_too() -> None:
    history = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "again"},
    ]
    agent = Agentor("a", "Ignored here.", ScriptedModel(["x", "hello"]))
    assert agent.run(history).messages == [*history, {"role": "assistant", "content": "hello"}]


async def test_a_list_of_texts_is_one_run_each_at_most_so_many_at_a_time() -> None:
    now, most = 0, 0

    async def tool() -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return "ok"

    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel([call("tool"), "done"]), tools=[tool], store=store)
    results = await agent.arun(["1", "2", "3", "4", "5"], limit_concurrency=2)
    assert [r.messages[0]["content"] for r in results] == ["1", "2", "3", "4", "5"]
    assert most <= 2
    assert len(store.list_runs()) == 5


async def test_one_failing_run_of_a_list_stops_no_other() -> None:
    store = Flaky([2])
    agent = Agentor("a", model=ScriptedModel(["done"]), store=store, durability="strict")
    with pytest.raises(StoreError):
        await agent.arun(["1", "2", "3"], limit_concurrency=1)
    ended = [store.load(run_id)[-1].type for run_id in store.list_runs()]
    assert ended == ["run_end"] * 3  # also of the first: its batch was saved at the second try


class Verdict(BaseModel):
    guilty: bool
    years: int = 0


def test_an_output_type_gives_an_object_and_a_strict_schema() -> None:
    model = ScriptedModel(['{"guilty":true,"years":3}'])
    store = MemoryStore()
    agent = Agentor("judge", model=model, output_type=Verdict, store=store)
    result = agent.run("?")
    assert result.final_output == Verdict(guilty=True, years=3)
    assert agent.resume(str(result.run_id)).final_output == Verdict(guilty=True, years=3)
    schema = model.requests[0]["response_format"]["json_schema"]
    assert (schema["strict"], schema["schema"]["required"]) == (True, ["guilty", "years"])


def test_an_answer_of_another_type_is_a_failed_run_that_says_why() -> None:
    agent = Agentor("judge", model=ScriptedModel(["perhaps"]), output_type=Verdict, store=MemoryStore())
    result = agent.run("?")
    assert (result.status, str(result)) == ("failed", "perhaps")
    assert "no Verdict" in str(result.error)
    assert agent.resume(str(result.run_id)).status == "failed"


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda: Agentor(""), ValueError, "name"),
        (lambda: hello(durability="maybe"), ValueError, "durability"),
        (lambda: hello(max_turns=0), ValueError, "max_turns"),
        (lambda: hello(store=3), TypeError, "append, load and list_runs"),
        (lambda: hello(output_type=dict), TypeError, "pydantic"),
        (lambda: hello(metadata={"x": {1}}), ValueError, "metadata"),
        (lambda: hello(enable_tracing=True), MissingKey, "set CELESTO_API_KEY"),
        (lambda: hello(api_key="x"), ValueError, "api_key"),
        (lambda: hello(model_settings=ModelSettings(seed=1)), ValueError, "model_settings"),
        (lambda: Agentor("a", model=3), TypeError, "complete and stream"),  # type: ignore[arg-type]
        (lambda: hello().run([]), ValueError, "empty list"),
        (lambda: hello().run([{"content": "x"}]), ValueError, "role"),
        (lambda: hello().run([{"role": "user", "content": {1}}]), ValueError, "JSON"),
        (lambda: hello(store=MemoryStore()).run("x", run_id="../evil"), InvalidRunId, "path"),
        (lambda: hello().run("x", tracing=True), MissingKey, "set CELESTO_API_KEY"),
        (lambda: hello(tracer=3), TypeError, "a tracer is a name"),
        (lambda: hello(tracer="nowhere"), ValueError, "no exporter 'nowhere'; installed are: .*otlp"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(make: Any, error: Any, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        make()


# --- streams ------------------------------------------------------------------------------------


async def test_the_first_event_of_a_stream_names_the_run_and_each_is_saved_before_it_is_shown() -> None:
    store = MemoryStore()
    first: Event | None = None
    async for event in hello(store=store).astream("hi"):
        first = first or event
        assert event.run_id == first.run_id
        if not isinstance(event, TextDelta):
            assert event in store.load(str(event.run_id))
    assert isinstance(first, RunStart)


async def test_text_comes_in_pieces_with_the_time_to_the_first() -> None:
    model = ScriptedModel([answer("one two", reasoning_content="hm", chunks=["one", " ", "two"])])
    events = [e async for e in Agentor("a", model=model).astream("hi")]
    deltas = [e for e in events if isinstance(e, TextDelta)]
    assert [(d.text, d.reasoning) for d in deltas] == [("", "hm"), ("one", ""), (" ", ""), ("two", "")]
    (generation,) = [e for e in events if isinstance(e, Generation)]
    assert generation.time_to_first_chunk is not None
    assert generation.messages == [{"role": "user", "content": "hi"}]


async def test_leaving_a_stream_early_cancels_the_run_and_says_so_in_its_log() -> None:
    store = MemoryStore()
    model = ScriptedModel([call("tool"), "done"])

    async def tool() -> str:
        return "ok"

    agent = Agentor("a", model=model, tools=[tool], store=store)
    stream = agent.astream("hi", run_id="r")
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]
    assert store.load("r")[-1].type == "interrupted"
    assert (await agent.aresume("r")).status == "completed"


async def test_stream_chat_gives_json_texts_with_the_run_id_first() -> None:
    model = ScriptedModel([call("tool"), "done"])
    agent = Agentor("a", model=model, tools=[tool_x], store=MemoryStore())
    texts = [json.loads(text) async for text in agent.stream_chat("hi")]
    assert texts[0]["run_id"]
    assert {t["run_id"] for t in texts} == {texts[0]["run_id"]}
    assert [t["tool_action"] and t["tool_action"]["type"] for t in texts] == [
        None,
        "tool_called",
        "tool_output",
        None,
    ]
    assert [t["message"] for t in texts] == [None, None, "x", "done"]
    assert {t["type"] for t in texts} == {"run_item_stream_event"}
    items = [item async for item in agent.stream_chat("hi", serialize=False)]
    assert items[1].tool_action is not None
    assert items[1].tool_action.name == "tool"


def tool_x() -> str:
    return "x"


tool_x.__name__ = "tool"


# --- the sync bridge ----------------------------------------------------------------------------


async def test_run_works_inside_a_running_loop() -> None:
    assert hello().run("hi").status == "completed"


def test_run_works_from_several_threads_at_once() -> None:
    agent, results = hello(store=MemoryStore()), []  # type: Agentor, list[RunResult]
    threads = [threading.Thread(target=lambda: results.append(agent.run("hi"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({r.run_id for r in results}) == 8


def test_a_thousand_runs_leak_nothing() -> None:
    agent = hello(store=MemoryStore())
    agent.run("hi")
    gc.collect()
    fds, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    assert background._loop is not None
    tasks = asyncio.all_tasks(background._loop)  # LiteLLM's own worker, where a test before used it
    for _ in range(1000):
        assert agent.run("hi").status == "completed"
    assert len(os.listdir("/proc/self/fd")) <= fds
    assert threading.active_count() <= threads
    assert asyncio.all_tasks(background._loop) <= tasks


def test_run_in_an_async_tool_names_the_async_twin() -> None:
    async def nested() -> str:
        return str(hello().run("hi"))

    def plain() -> str:
        return str(hello().run("hi"))

    model = ScriptedModel([[call("nested"), call("plain")], "done"])
    result = Agentor("a", model=model, tools=[nested, plain]).run("go")
    contents = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert "await arun(...)" in contents[0]
    assert WrongThread.__name__ in contents[0]
    assert contents[1] == "hello there"


def script(tmp_path: Path, code: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_run_works_in_a_plain_script_and_in_a_forked_child(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        import os
        from agentor import Agentor, FileStore
        from agentor.testing import ScriptedModel
        agent = Agentor("a", model=ScriptedModel(["hello"]), store=FileStore("%s"))
        print(agent.run("hi"), flush=True)
        pid = os.fork()
        print(agent.run("hi"), flush=True)
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        """
        % (tmp_path / "runs"),
    )
    out, err = process.communicate(timeout=60)
    # Two processes write: their line ends may come in any order.
    assert (process.returncode, "".join(out.split()), err) == (0, "hello" * 3, "")
    assert len(FileStore(tmp_path / "runs").list_runs()) == 3


def test_ctrl_c_is_recorded_with_the_results_that_finish_and_names_the_run(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        import signal, threading
        from agentor import Agentor, FileStore
        from agentor.testing import ScriptedModel, call
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
        started = threading.Event()
        def slow() -> str:
            print("started", flush=True)
            started.wait(1)
            return "finished all the same"
        async def endless() -> None:
            import asyncio
            await asyncio.Event().wait()
        model = ScriptedModel([[call("slow"), call("endless")], "done"])
        agent = Agentor("a", model=model, tools=[slow, endless], store=FileStore("%s"))
        agent.run("go", run_id="r")
        """
        % (tmp_path / "runs"),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert "resume it to go on" in err
    events = FileStore(tmp_path / "runs").load("r")
    assert [e.type for e in events[-2:]] == ["tool_result", "interrupted"]
    assert events[-1].to_dict()["in_doubt"] == ["call_2"]
    assert events[-1].to_dict()["status"] == "cancelled"


def test_a_handler_of_sigterm_that_exits_cancels_the_run_as_ctrl_c_does(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        """
        import asyncio, signal, sys
        from agentor import Agentor, FileStore
        from agentor.testing import ScriptedModel, call
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
        async def endless() -> None:
            print("started", flush=True)
            await asyncio.Event().wait()
        agent = Agentor("a", model=ScriptedModel([call("endless"), "done"]), tools=[endless], store=FileStore("%s"))
        agent.run("go", run_id="r")
        """
        % (tmp_path / "runs"),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert FileStore(tmp_path / "runs").load("r")[-1].to_dict()["status"] == "cancelled"


# --- failing stores -----------------------------------------------------------------------------


class Flaky(MemoryStore):
    """Fails the appends whose numbers are given."""

    def __init__(self, failing: Sequence[int]) -> None:
        super().__init__()
        self.failing, self.tries = set(failing), 0

    def append_many(self, run_id: str, events: Sequence[Event]) -> None:
        self.tries += 1
        if self.tries in self.failing:
            raise OSError(28, "No space left on device")
        super().append_many(run_id, events)


def flaky_agent(store: MemoryStore, ran: list[str], **more: Any) -> Agentor:
    def work(what: str) -> str:
        ran.append(what)
        return what

    script = [call("work", {"what": "a"}), call("work", {"what": "b"}), "done"]
    return Agentor("a", model=ScriptedModel(script), tools=[work], store=store, **more)


@pytest.mark.parametrize("failing", [[n] for n in range(1, 7)] + [[2, 3], [1, 2, 3, 4, 5, 6]])
def test_best_effort_goes_on_and_its_log_stays_a_prefix(failing: list[int]) -> None:
    store, ran = Flaky(failing), []  # type: Flaky, list[str]
    result = flaky_agent(store, ran).run("go", run_id="r")
    assert (result.status, ran) == ("completed", ["a", "b"])
    assert "No space left" in result.store_errors[0]
    stored = store.load("r")
    assert stored == result.events[: len(stored)]
    assert result.durable == (len(stored) == len(result.events))


def test_a_store_may_hand_its_calls_on_to_another() -> None:
    class Proxy:
        def __init__(self) -> None:
            self.inner = MemoryStore()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    store: Any = Proxy()
    assert hello(store=store).run("hi", run_id="r").durable
    assert store.inner.list_runs() == ["r"]


@pytest.mark.parametrize("how", ["subclass", "instance"])
def test_a_store_of_ours_with_another_append_is_asked_through_that(how: str) -> None:
    appended: list[str] = []

    class Watched(MemoryStore):
        def append(self, run_id: str, event: Event) -> None:
            appended.append(event.type)
            super().append(run_id, event)

    store = Watched() if how == "subclass" else MemoryStore()
    if how == "instance":
        plain = store.append

        def watched(run_id: str, event: Event) -> None:
            appended.append(event.type)
            plain(run_id, event)

        store.append = watched  # type: ignore[method-assign]
    assert hello(store=store).run("hi").durable
    assert appended == ["run_start", "generation", "run_end"]


def test_a_log_that_vanishes_under_a_run_is_told_and_not_begun_anew(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")

    def vanish() -> str:
        store.path("r").unlink()
        return "gone"

    agent = Agentor("a", model=ScriptedModel([call("vanish"), "done"]), tools=[vanish], store=store)
    result = agent.run("go", run_id="r")
    assert (result.status, result.durable) == ("completed", False)
    assert "is gone" in result.store_errors[0]
    assert store.list_runs() == []


@pytest.mark.parametrize("failing", range(1, 7))
def test_strict_stops_before_anything_acts_on_what_is_not_saved(failing: int) -> None:
    store, ran = Flaky([failing]), []  # type: Flaky, list[str]
    agent = flaky_agent(store, ran, durability="strict")
    with pytest.raises(StoreError, match="'r'") as caught:
        agent.run("go", run_id="r")
    assert "No space left" in str(caught.value)
    assert len(ran) == max(0, (failing - 1) // 2)
    if store.list_runs():
        again = flaky_agent(store, ran, durability="strict").resume("r")
        assert (again.status, ran) == ("completed", ["a", "b"])


def test_strict_saves_the_results_of_tools_that_are_under_way() -> None:
    store = Flaky([3])
    one_is_saved = threading.Event()

    def quick() -> str:
        return "quick"

    def slow() -> str:
        one_is_saved.wait(1)
        return "slow"

    model = ScriptedModel([[call("quick"), call("slow")], "done"])
    agent = Agentor("a", model=model, tools=[quick, slow], store=store, durability="strict")
    with pytest.raises(StoreError):
        agent.run("go", run_id="r")
    assert [e.type for e in store.load("r")].count("tool_result") == 2
    assert len(model.requests) == 1


@pytest.mark.parametrize("durability", ["strict", "best_effort"])
def test_another_writer_stops_a_run_in_both_modes(durability: Any) -> None:
    class Stolen(MemoryStore):
        def append_many(self, run_id: str, events: Sequence[Event]) -> None:
            if events[0].seq == 3:
                raise Conflict(run_id, 3)
            super().append_many(run_id, events)

    ran: list[str] = []
    with pytest.raises(Conflict, match="seq 3"):
        flaky_agent(Stolen(), ran, durability=durability).run("go", run_id="r")
    assert ran == ["a"]


def test_an_observer_that_fails_breaks_nothing() -> None:
    def observer(event: Event) -> None:
        raise RuntimeError("no")

    with pytest.warns(RuntimeWarning, match="observer failed"):
        assert hello(tracer=observer).run("hi").status == "completed"
    seen: list[Event] = []
    hello(tracer=seen.append).run("hi", tracing=False)
    assert seen == []
    result = hello().run("hi", tracing=seen.append)
    assert seen == result.events


def test_no_callback_keeps_the_loop_for_long_in_a_run_of_a_thousand_turns() -> None:
    longest = 0.0

    def ping() -> None:
        """Nothing."""

    async def main() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        model = ScriptedModel([call("ping")] * 1000 + ["done"])
        agent = Agentor("a", model=model, tools=[ping], store=MemoryStore(), max_turns=2000)
        last = time.thread_time()

        def watch() -> None:
            nonlocal last, longest
            longest = max(longest, time.thread_time() - last)
            last = time.thread_time()
            handle[0] = loop.call_soon(watch)

        handle = [loop.call_soon(watch)]
        assert (await agent.arun("go")).status == "completed"
        handle[0].cancel()

    gc.collect()
    gc.freeze()  # what other tests left is not to be looked through here
    try:
        asyncio.run(main())
    finally:
        gc.unfreeze()
    assert longest < 0.05


async def test_a_timeout_is_recorded_with_what_is_in_doubt() -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel([call("endless"), "done"]), tools=[endless], store=store)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await agent.arun("go", run_id="r")
    last = store.load("r")[-1]
    assert last.to_dict()["in_doubt"] == ["call_1"]
    assert last.type == "interrupted"


def test_the_notice_of_a_tool_that_is_switched_off_waits_for_the_whole_block() -> None:
    def breaks() -> None:
        raise RuntimeError("no")

    def works() -> str:
        return "fine"

    script = [[call("breaks"), call("breaks"), call("works")], "done"]
    model = ScriptedModel(script)
    result = Agentor("a", model=model, tools=[breaks, works], max_tool_failures=2).run("go")
    assert [m["role"] for m in result.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert "'breaks' failed 2 times" in result.messages[5]["content"]
    assert [t["function"]["name"] for t in model.requests[1]["tools"]] == ["works"]


@pytest.mark.parametrize(("result_bytes", "most"), [(1000, 1.4), (8000, 1.1)])
def test_a_turn_costs_at_most_700_bytes_more_than_its_conversation(
    tmp_path: Path, result_bytes: int, most: float
) -> None:
    def note(text: str) -> str:
        return "r" * result_bytes

    turns = 100
    script = [answer("t" * 300, call("note", {"text": "a" * 185}))] * turns
    store = FileStore(tmp_path / "runs", sync="process")
    agent = Agentor("a", model=ScriptedModel([*script, "done"]), tools=[note], store=store, max_turns=999)
    result = agent.run("go", run_id="r")
    size = store.path("r").stat().st_size
    content = len(json.dumps(result.messages, separators=(",", ":")))
    assert size - content <= 700 * turns
    assert size <= most * content
