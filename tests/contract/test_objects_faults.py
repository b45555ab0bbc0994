"""`ObjectStore` when the server, the network or the worker fails: at every request of what it does."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import s3
from servers.s3proxy import CUT, LOST, SILENT, Fault, Proxy, Request, first_time, proxy

from agentor import Agentor, function_tool
from agentor.engine.events import Event, Fork, ToolResult
from agentor.engine.store.objects import ObjectStore
from agentor.errors import Fenced, RunBusy, RunNotFound, StoreError
from agentor.testing import ScriptedModel, call
from agentor.testing.samples import result, whole_run

OVER = -2.0  # a lease that is over as soon as it is given


@pytest.fixture(scope="module")
def between(s3_endpoint: str) -> Iterator[Proxy]:
    with proxy(s3_endpoint) as made:
        yield made


class Place:
    """One fresh place on the server, seen through the proxy and past it."""

    def __init__(self, endpoint: str, between: Proxy) -> None:
        self.url, self.endpoint, self.between = s3.fresh_url(), endpoint, between
        between.reset()

    def through(self, patience_s: float = 5.0, timeout_s: float = 2.0) -> ObjectStore:
        options = s3.options(self.between.url)
        options["client_options"]["timeout"] = timedelta(seconds=timeout_s)
        limit = {"retry_timeout": timedelta(seconds=patience_s)}
        return ObjectStore(self.url, retry_config=limit, **options)

    def past(self) -> ObjectStore:
        return ObjectStore(self.url, **s3.options(self.endpoint))


@pytest.fixture
def place(s3_endpoint: str, between: Proxy) -> Place:
    return Place(s3_endpoint, between)


class Work:
    """An agent whose one tool counts its calls."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()

    def agent(self, store: ObjectStore, durability: Any = "strict") -> Agentor:
        def work(n: int) -> str:
            self.calls[n] += 1
            return f"done {n}"

        model = ScriptedModel([call("work", {"n": 1}), call("work", {"n": 2}), "done"])
        return Agentor("a", model=model, tools=[work], store=store, durability=durability)


def kinds(events: list[Event]) -> list[str]:
    return [event.type for event in events]


async def end_lease(store: ObjectStore) -> None:
    """By the server's clock its time is over; its process, this one, lives on."""
    found = await store._bucket.get("r", ".leases/r.json")
    if found is not None:
        over = found.data.replace(b'"ttl_s":30.0', b'"ttl_s":-2.0')
        await store._bucket.put("r", ".leases/r.json", over)


# --- one fault ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [409, 412, 500, 503, CUT, LOST])
async def test_one_fault_at_any_request_of_a_run_changes_nothing(
    s3_endpoint: str, between: Proxy, fault: Fault
) -> None:
    await Work().agent(Place(s3_endpoint, between).through()).arun("go", run_id="r")
    for number, request in enumerate(list(between.seen)):
        if fault in (409, 412) and not request.is_write:
            continue
        place, work = Place(s3_endpoint, between), Work()
        between.reset(lambda request, at=number: fault if request.number == at else None)
        result = await work.agent(place.through()).arun("go", run_id="r")
        assert (result.status, result.durable, work.calls) == ("completed", True, {1: 1, 2: 1}), number
        events = await place.past().load("r")
        assert [event.seq for event in events] == list(range(len(events)))
        assert len(await place.past()._bucket.below("r", "r/log")) == 6, number


async def test_an_answer_lost_at_every_write_of_a_run_makes_no_duplicate(place: Place) -> None:
    for fault in (LOST, SILENT):
        one, work = Place(place.endpoint, place.between), Work()
        place.between.reset(first_time(fault, lambda request: request.is_write))
        result = await work.agent(one.through(timeout_s=0.3)).arun("go", run_id="r")
        writes = [request for request in place.between.seen if request.is_write]
        assert len(writes) == 2 * len({(request.path, request.body) for request in writes}) >= 16
        assert (result.status, work.calls) == ("completed", {1: 1, 2: 1})
        events = await one.past().load("r")
        assert [event.seq for event in events] == list(range(len(events)))
        assert (await one.past().verify("r")).problems == []


async def test_a_renewal_or_release_whose_answer_is_lost_is_found_out(place: Place) -> None:
    store = place.through()
    lease = await store.lease("r", "ann", 30.0)
    for _ in range(3):
        place.between.reset(first_time(LOST, lambda request: request.is_write))
        await lease.renew()
    place.between.reset(first_time(LOST, lambda request: request.is_write))
    await lease.release()
    (await place.past().lease("r", "bob", 30.0)).epoch  # noqa: B018  # it is free


async def test_an_old_worker_that_is_faster_than_the_one_that_takes_over_is_fenced_one_place_on(
    place: Place,
) -> None:
    old_store = place.past()
    old = await old_store.lease("r", "ann", OVER)
    await old_store.append_many("r", [result(0)], old.epoch)
    written: list[int] = []

    def plan(request: Request) -> Fault:  # the empty object of the new one is on its way
        if request.method == "PUT" and "/log/" in request.path and len(written) < 3:
            written.append(len(written) + 1)
            event = result(written[-1])
            asyncio.run(old_store.append_many("r", [event], old.epoch))
        return None

    place.between.reset(plan)
    new = await place.through().lease("r", "bob", 30.0)
    assert (written, new.epoch) == ([1, 2, 3], 2)
    with pytest.raises(Fenced):
        await old_store.append_many("r", [result(4)], old.epoch)
    assert len(await place.past().load("r")) == 4


async def test_a_take_over_that_cannot_fence_the_old_worker_gives_no_lease(place: Place) -> None:
    old_store = place.past()
    old = await old_store.lease("r", "ann", OVER)
    await old_store.append_many("r", [result(0)], old.epoch)
    place.between.reset(lambda request: 503 if request.method == "PUT" and "/log/" in request.path else None)
    with pytest.raises(StoreError, match="503"):
        await place.through(patience_s=0.2).lease("r", "bob", 30.0)
    await old_store.append_many("r", [result(1)], old.epoch)  # nothing keeps it out yet
    new = await place.past().lease("r", "cid", 30.0)  # at once; and it fences both
    with pytest.raises(Fenced):
        await old_store.append_many("r", [result(2)], old.epoch)
    assert new.epoch == 3


# --- an outage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [503, CUT])
@pytest.mark.parametrize("durability", ["strict", "best_effort"])
async def test_an_outage_from_any_request_on_loses_nothing_acknowledged(
    s3_endpoint: str, between: Proxy, durability: str, fault: Fault
) -> None:
    await Work().agent(Place(s3_endpoint, between).through()).arun("go", run_id="r")
    total = len(between.seen)
    for number in range(total):
        place, work = Place(s3_endpoint, between), Work()
        between.reset(lambda request, at=number: fault if request.number >= at else None)
        agent = work.agent(place.through(patience_s=0.1), durability)
        try:
            outcome = await agent.arun("go", run_id="r")
        except StoreError as error:
            outcome = None
            assert "'r'" in str(error)
            assert "resume the run" in str(error)
            assert durability == "strict" or work.calls == {}  # best effort raises before the run begins
        saved = await place.past().load("r")
        if outcome is not None:
            assert outcome.status == "completed"
            assert outcome.durable == (kinds(saved)[-1:] == ["run_end"])
            assert outcome.durable or outcome.store_errors
        recorded = [int(str(event.result).split()[1]) for event in saved if isinstance(event, ToolResult)]
        between.reset()
        before = Counter(work.calls)
        if not saved:
            with pytest.raises(RunNotFound):
                await work.agent(place.past()).aresume("r")
            continue
        await end_lease(place.past())
        resumed = await work.agent(place.past()).aresume("r")
        assert resumed.status == "completed", number
        assert [event.to_json() for event in await place.past().load("r")][: len(saved)] == [
            event.to_json() for event in saved
        ]
        for n in recorded:
            assert work.calls[n] == before[n], f"request {number}: call {n} is recorded and ran again"


async def test_a_short_outage_is_waited_out_and_a_longer_one_is_named(place: Place) -> None:
    store = place.through(patience_s=1.0)
    lease = await store.lease("r", "ann", 30.0)
    place.between.reset(lambda request: 503 if request.number < 3 else None)
    await store.append_many("r", [result(0)], lease.epoch)
    assert len(place.between.seen) == 4
    place.between.reset(lambda request: 503)
    with pytest.raises(StoreError) as caught:
        await store.append_many("r", [result(1)], lease.epoch)
    for part in (
        "run 'r'",
        place.url,
        "r/log/00000001-00000001.jsonl",
        "503",
        "tried for 1 s",
        "resume the run",
    ):
        assert part in str(caught.value)
    place.between.reset()
    await store.append_many("r", [result(1)], lease.epoch)
    assert len(await place.past().load("r")) == 2


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["strict", "best_effort"])
async def test_a_run_outlives_a_minute_of_503_in_its_middle(place: Place, durability: str) -> None:
    began: list[float] = []

    def plan(request: Request) -> Fault:
        if request.is_write and "00000002-" in request.path and not began:
            began.append(time.monotonic())
        return 503 if began and time.monotonic() < began[0] + 60.0 else None

    place.between.reset(plan)
    work = Work()
    agent = work.agent(place.through(patience_s=10.0), durability)
    if durability == "strict":
        with pytest.raises(StoreError, match="resume the run"):
            await agent.arun("go", run_id="r")
    else:
        assert (await agent.arun("go", run_id="r")).status == "completed"
    calls = Counter(work.calls)
    await asyncio.sleep(max(0.0, began[0] + 60.0 - time.monotonic()))  # an outage has a length, no condition
    result = await work.agent(place.through()).aresume("r")
    assert (result.status, result.durable) == ("completed", True)
    assert all(n <= 2 for n in work.calls.values())  # what was not saved when the store went may run again
    saved = [e for e in result.events if isinstance(e, ToolResult)]
    assert len(saved) == 2
    assert calls[1] >= 1


async def test_what_no_repeat_can_mend_is_said_at_once(place: Place) -> None:
    for status, word in ((403, "PermissionDenied|403 Forbidden"), (404, "FileNotFound|404")):
        place.between.reset(lambda request, status=status: status)
        with pytest.raises(StoreError, match=word):
            await place.through().append("r", result(0))
        assert len(place.between.seen) == 1


# --- a crash in the middle ------------------------------------------------------------------------


async def crashes(place: Place, prepare: Any, act: Any, check: Any) -> int:
    """Do the act again and again, cut off at each of its requests; how many it has."""
    number = 0
    while True:
        one = Place(place.endpoint, place.between)
        await prepare(one.past())
        place.between.reset(lambda request, at=number: CUT if request.number >= at else None)
        store = one.through(patience_s=0.01)
        try:
            await act(store)
        except StoreError:
            place.between.reset()
            await end_lease(one.past())
            await check(one.past(), number)
        else:
            return number
        number += 1


async def test_a_fork_that_is_cut_off_anywhere_is_whole_or_absent(place: Place) -> None:
    async def prepare(store: ObjectStore) -> None:
        for event in whole_run():
            await store.append("r", event)

    async def check(store: ObjectStore, number: int) -> None:
        assert (await store.list_runs(), await store.load("f")) == (["r"], [])
        await store.fork("r", "f")
        assert isinstance((await store.load("f"))[-1], Fork)

    assert await crashes(place, prepare, lambda store: store.fork("r", "f"), check) >= 9


async def test_a_removal_that_is_cut_off_anywhere_leaves_all_or_nothing(place: Place) -> None:
    async def prepare(store: ObjectStore) -> None:
        lease = await store.lease("r", "ann", 30.0)
        for event in whole_run():
            await store.append_many("r", [event], lease.epoch)
        await lease.release()

    async def check(store: ObjectStore, number: int) -> None:
        left = await store.load("r")
        assert left in ([], whole_run()), number
        assert await store.list_runs() == (["r"] if left else []), number
        assert [info.run_id for info in await store.describe()] == (["r"] if left else []), number
        if left:
            await store.delete("r")
        else:
            with pytest.raises(RunNotFound):
                await store.delete("r")
        await store.append_many("r", [result(0, "new")])
        assert [event.to_json() for event in await store.load("r")] == [result(0, "new").to_json()]
        assert await store.list_runs() == ["r"]

    assert await crashes(place, prepare, lambda store: store.delete("r"), check) >= 15


async def test_a_repair_that_is_cut_off_anywhere_leaves_the_old_log_or_the_new_one(place: Place) -> None:
    async def prepare(store: ObjectStore) -> None:
        for event in whole_run():
            await store.append("r", event)

    async def check(store: ObjectStore, number: int) -> None:
        left = await store.load("r")
        assert left in (whole_run(), whole_run()[:3]), number
        if left == whole_run():
            await store.repair("r", 2)
        await store.append("r", result(3, "next"))
        assert [event.seq for event in await store.load("r")] == [0, 1, 2, 3]
        assert [info.records for info in await store.describe()] == [4]

    assert await crashes(place, prepare, lambda store: store.repair("r", 2), check) >= 20


# --- dead and sleeping workers --------------------------------------------------------------------


def worker(place: Place, folder: Path, lease_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("objects_worker.py"))]
    command += [place.url, place.endpoint, str(folder), str(lease_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rescuer(place: Place, folder: Path) -> Agentor:
    @function_tool(on_crash="retry")
    def step(n: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{n}\n")
        return f"did {n}"

    model = ScriptedModel([*(call("step", {"n": n}) for n in range(3)), "done"])
    return Agentor("a", model=model, tools=[step], store=place.past())


def test_the_run_of_a_killed_process_goes_on_at_once_elsewhere(place: Place, tmp_path: Path) -> None:
    with worker(place, tmp_path, 3600.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        with pytest.raises(RunBusy):
            rescuer(place, tmp_path).resume("r")
        process.send_signal(signal.SIGKILL)
    outcome = rescuer(place, tmp_path).resume("r")
    assert (outcome.status, outcome.final_output) == ("completed", "done")
    ledger = Counter((tmp_path / "ledger").read_text().split())
    assert ledger == {"0": 1, "1": 2, "2": 1}  # 1 was in flight, and its on_crash is "retry"


def test_a_worker_that_is_stopped_past_its_lease_writes_and_starts_nothing_more(
    place: Place, tmp_path: Path
) -> None:
    with worker(place, tmp_path, 1.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGSTOP)
        outcome = rescuer(place, tmp_path).resume("r", wait_s=60)
        assert outcome.status == "completed"
        log = [event.to_json() for event in asyncio.run(place.past().load("r"))]
        (tmp_path / "go").touch()
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=60)
    assert "Fenced" in said
    assert "no longer" in said
    assert [event.to_json() for event in asyncio.run(place.past().load("r"))] == log
    assert Counter((tmp_path / "ledger").read_text().split()) == {"0": 1, "1": 2, "2": 1}
