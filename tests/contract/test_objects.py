"""`ObjectStore`: idempotence, damage, leases and upkeep; in memory where the server plays no part."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import s3

from agentor import MemoryStore, SQLiteStore
from agentor.engine.events import Event, Fork
from agentor.engine.store.objects import ObjectStore
from agentor.errors import Conflict, CorruptLog, Fenced, RunBusy, RunExists, RunNotFound, StoreError
from agentor.testing.samples import result, whole_run

OVER = -2.0  # a lease that is over as soon as it is given: no test waits for a clock


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory://")


@pytest.fixture
def again(store: ObjectStore) -> ObjectStore:
    """Another process's view of the same place."""
    return other(store)


def other(store: ObjectStore) -> ObjectStore:
    made = ObjectStore("memory://")
    made._bucket._store = store._bucket._store  # a place in memory has no address
    return made


async def objects(store: ObjectStore, folder: str = "r/log") -> dict[str, bytes]:
    found = {}
    for listed in await store._bucket.below("r", folder):
        got = await store._bucket.get("r", listed.path)
        assert got is not None
        found[listed.path] = got.data
    return found


async def filled(store: ObjectStore, *sizes: int) -> list[Event]:
    events: list[Event] = []
    for size in sizes:
        events += [result(len(events) + n, f"text {len(events) + n}") for n in range(size)]
        await store.append_many("r", events[-size:])
    return events


# --- the log --------------------------------------------------------------------------------------


async def test_each_batch_is_one_object_whose_name_says_what_stands_before_it(store: ObjectStore) -> None:
    await filled(store, 2, 1, 3)
    assert list(await objects(store)) == [
        "r/log/00000000-00000000.jsonl",
        "r/log/00000001-00000002.jsonl",
        "r/log/00000002-00000003.jsonl",
    ]


@pytest.mark.parametrize("sizes", [(6,), (1, 5), (2, 2, 2), (5, 1)])
async def test_a_repeat_in_other_batches_is_one_record_each(
    store: ObjectStore, again: ObjectStore, sizes: tuple[int, ...]
) -> None:
    events = await filled(store, 2, 1)
    events += [result(n) for n in (3, 4, 5)]
    place = 0
    for size in sizes:
        await again.append_many("r", events[place : place + size])
        place += size
    assert await store.load("r") == events
    with pytest.raises(Conflict, match="seq 2"):
        await again.append_many("r", [result(2, "other"), result(3)])
    with pytest.raises(RunExists):
        await again.append_many("r", [result(0, "other")])


async def test_what_is_known_of_a_log_is_a_guess_only(store: ObjectStore, again: ObjectStore) -> None:
    await filled(store, 3)
    await again.load("r")
    await store.delete("r")
    events = [result(n, "of the new one") for n in range(5)]
    await store.append_many("r", events)
    assert await again.load_from("r", 3) == events[3:]
    await store.append_many("r", [result(5)])
    await again.append_many("r", [result(6)])
    assert len(await again.load("r")) == 7


async def test_damage_anywhere_is_named_and_nothing_is_skipped(store: ObjectStore) -> None:
    events = await filled(store, 2, 1, 2)
    for path, data in (await objects(store)).items():
        for place in range(len(data)):
            changed = bytearray(data)
            changed[place] ^= 1
            await store._bucket.put("r", path, bytes(changed))
            with pytest.raises(CorruptLog):
                await other(store).load("r")
        for cut in range(len(data)):
            await store._bucket.put("r", path, data[:cut])
            with pytest.raises(CorruptLog):
                await other(store).load("r")
        await store._bucket.put("r", path, data)
    assert await other(store).load("r") == events


async def test_a_missing_or_swapped_object_is_damage(store: ObjectStore) -> None:
    await filled(store, 2, 2, 2, 2)
    whole = await objects(store)
    paths = list(whole)
    for missing, record in ((0, 0), (1, 2), (2, 4)):
        await store._bucket.remove("r", [paths[missing]])
        with pytest.raises(CorruptLog, match="missing") as caught:
            await other(store).load("r")
        assert caught.value.record == record
        await store._bucket.put("r", paths[missing], whole[paths[missing]])
    await store._bucket.put("r", paths[1], whole[paths[2]])
    with pytest.raises(CorruptLog, match="is object 2 in fact"):
        await other(store).load("r")
    assert [info.status for info in await other(store).describe()] == ["running"]
    await store._bucket.put("r", paths[3], b"nonsense")
    assert [info.status for info in await other(store).describe()] == ["corrupt"]
    with pytest.raises(CorruptLog):
        await other(store).append("r", result(8))


# --- leases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 1, 3])
async def test_the_log_itself_refuses_a_worker_that_was_taken_over(
    store: ObjectStore, again: ObjectStore, written: int
) -> None:
    old = await store.lease("r", "ann", OVER)
    for seq in range(written):
        await store.append_many("r", [result(seq)], old.epoch)
    new = await again.lease("r", "bob", 30.0)
    await store._bucket.remove("r", [".leases/r.json"])  # not even that can mislead the log
    with pytest.raises(Fenced):
        await store.append_many("r", [result(written)], old.epoch)
    await again.append_many("r", [result(written)], new.epoch)
    assert len(await store.load("r")) == written + 1
    assert await store.list_runs() == ["r"]


async def test_a_run_that_has_a_lease_and_no_record_is_not_listed(store: ObjectStore) -> None:
    await store.lease("r", "ann", OVER)
    assert await store.list_runs() == []
    lease = await store.lease("r", "bob", 30.0)  # a take-over: an empty object stands in the log now
    assert (await store.list_runs(), await store.describe(), await store.load("r")) == ([], [], [])
    await store.append_many("r", [result(0)], lease.epoch)
    assert await store.list_runs() == ["r"]


async def test_a_lease_that_was_given_back_writes_nothing_more(
    store: ObjectStore, again: ObjectStore
) -> None:
    lease = await store.lease("r", "ann", 30.0)
    await store.append_many("r", [result(0)], lease.epoch)
    await again.append_many("r", [result(1)], lease.epoch)  # who knows the epoch may use it
    await lease.release()
    for view in (store, again):
        with pytest.raises(Fenced, match="given back"):
            await view.append_many("r", [result(2)], lease.epoch)
    with pytest.raises(Fenced, match="given back"):
        await lease.renew()
    assert len(await objects(store)) == 2  # nobody has to be kept out: no empty object


async def test_a_lease_lives_from_renewal_to_renewal(store: ObjectStore, again: ObjectStore) -> None:
    lease = await store.lease("r", "ann", 30.0)
    for _ in range(3):
        await lease.renew()
    with pytest.raises(RunBusy) as caught:
        await again.lease("r", "bob", 30.0)
    assert caught.value.expires is not None
    taken = await _take(again, "r", lease)
    with pytest.raises(Fenced, match=r"epoch 1, now bob .* has epoch 2"):
        await lease.renew()
    await lease.release()
    await taken.renew()


async def _take(store: ObjectStore, run_id: str, lease: Any) -> Any:
    """Take over a lease whose holder sleeps: by the store's clock its time is over."""
    path = f".leases/{run_id}.json"
    found = await store._bucket.get(run_id, path)
    assert found is not None
    await store._bucket.put(run_id, path, json.dumps({**json.loads(found.data), "ttl_s": OVER}).encode())
    return await store.lease(run_id, "bob", 30.0)


async def test_epochs_go_on_also_where_the_leases_were_tidied_up(store: ObjectStore) -> None:
    lease = await store.lease("r", "ann", 30.0)
    await store.append_many("r", [result(0)], lease.epoch)
    await store._bucket.remove("r", [".leases/r.json"])
    new = await other(store).lease("r", "bob", 30.0)
    assert new.epoch == lease.epoch + 1
    with pytest.raises(Fenced):
        await store.append_many("r", [result(1)], lease.epoch)


async def test_what_is_no_lease_is_said_to_be_none(store: ObjectStore) -> None:
    await store._bucket.put("r", ".leases/r.json", b"[]")
    with pytest.raises(StoreError, match="is no lease"):
        await store.lease("r", "ann", 30.0)


def _race(url: str, options: dict[str, Any], rounds: int, barrier: Any, won: Any) -> None:
    store = ObjectStore(url, **options)

    async def one(number: int) -> None:
        barrier.wait()
        try:
            won.put((number, (await store.lease(f"r{number}", "racer", 30.0)).epoch))
        except RunBusy:
            won.put((number, None))

    for number in range(rounds):
        asyncio.run(one(number))
    barrier.wait()  # nobody's process ends while its lease counts


def test_of_many_processes_that_take_over_a_run_one_gets_it(s3_endpoint: str) -> None:
    url, options, rounds, racers = s3.fresh_url(), s3.options(s3_endpoint), 10, 4
    store = ObjectStore(url, **options)

    async def begin() -> None:
        for number in range(rounds):
            lease = await store.lease(f"r{number}", "old", OVER)
            await store.append_many(f"r{number}", [result(0)], lease.epoch)

    asyncio.run(begin())
    spawn = multiprocessing.get_context("spawn")
    barrier, won = spawn.Barrier(racers), spawn.Queue()
    arguments = (url, options, rounds, barrier, won)
    processes = [spawn.Process(target=_race, args=arguments, daemon=True) for _ in range(racers)]
    for process in processes:
        process.start()
    outcomes = [won.get(timeout=120) for _ in range(rounds * racers)]
    for process in processes:
        process.join()
    winners = sorted(number for number, epoch in outcomes if epoch is not None)
    assert winners == list(range(rounds))
    assert {epoch for _, epoch in outcomes if epoch is not None} == {2}
    with pytest.raises(Fenced):
        asyncio.run(store.append_many("r0", [result(1)], 1))


# --- upkeep ---------------------------------------------------------------------------------------


async def test_a_removed_run_leaves_nothing_but_the_count_of_its_leases(store: ObjectStore) -> None:
    lease = await store.lease("r", "ann", 30.0)
    await store.append_many("r", whole_run(), lease.epoch)
    await lease.release()
    await store.repair("r", 3)
    await store.delete("r")
    left = [listed.path for listed in await store._bucket.below("r", "")]
    assert left == [".leases/r.json"]
    assert (await store.lease("r", "bob", 30.0)).epoch > lease.epoch


async def test_a_worker_that_slept_through_its_runs_removal_writes_nothing(
    store: ObjectStore, again: ObjectStore
) -> None:
    old = await store.lease("r", "ann", OVER)
    await store.append_many("r", [result(0), result(1)], old.epoch)
    await again.delete("r")
    with pytest.raises(Fenced):
        await store.append_many("r", [result(2)], old.epoch)
    assert (await again.list_runs(), await again.load("r")) == ([], [])
    with pytest.raises(RunNotFound):
        await again.delete("r")
    await again.append_many("r", [result(0, "new"), result(1)])
    with pytest.raises(Fenced):
        await store.append_many("r", [result(2)], old.epoch)
    assert [e.seq for e in await again.load("r")] == [0, 1]
    assert await again.list_runs() == ["r"]
    await again.fork("r", "f")
    assert [e.seq for e in await store.load("f")] == [0, 1, 2]


@pytest.mark.parametrize("damaged", [0, 1, 2, 3])
async def test_repair_keeps_what_is_sound_and_sets_the_damaged_log_aside(
    store: ObjectStore, damaged: int
) -> None:
    events = await filled(store, 3, 2, 1)
    whole = await objects(store)
    if damaged < 3:
        path = list(whole)[damaged]
        whole[path] = whole[path].replace(b"text", b"next", 2).replace(b"next", b"text", 1)
        if damaged == 2:
            whole[path] = whole[path][:-20]
        await store._bucket.put("r", path, whole[path])
    kept = {0: 1, 1: 4, 2: 5, 3: 4}[damaged]
    aside = await other(store).repair("r", 3 if damaged == 3 else None)
    assert aside == "memory:///r/damaged-00000003"
    copies = await objects(store, "r/damaged-00000003")
    assert list(copies.values()) == list(whole.values())
    assert await other(store).load("r") == events[:kept]
    await store.append("r", result(kept, "next"))
    assert [e.seq for e in await other(store).load("r")] == list(range(kept + 1))
    assert [info.records for info in await other(store).describe()] == [kept + 1]
    with pytest.raises(ValueError, match="sound"):
        await store.repair("r")


async def test_runs_are_pruned_exported_and_copied(tmp_path: Path, store: ObjectStore) -> None:
    events = whole_run()
    for run_id in ("old", "open"):
        await store.append_many(run_id, events if run_id == "old" else events[:-1])
    await store.export("old", tmp_path / "old.jsonl")
    assert await store.import_run(tmp_path / "old.jsonl", "again") == "again"
    for target in (MemoryStore(), SQLiteStore(tmp_path / "runs.db"), ObjectStore("memory://")):
        await store.copy_run("old", target)
        loaded = target.load("old")
        assert (loaded if isinstance(loaded, list) else await loaded) == events
    assert (await store.verify("open")).problems == []
    gone = await store.prune(older_than=timedelta(days=1), dry_run=False)
    assert [info.run_id for info in gone] == ["again", "old"]
    assert [info.run_id for info in await store.describe()] == ["open"]


async def test_a_fork_is_one_object_and_its_records_are_the_parents(store: ObjectStore) -> None:
    await filled(store, 2, 2)
    await store.fork("r", "f", 2)
    (fork,) = (await objects(store, "f/log")).values()
    lines = b"".join(data.partition(b"\n")[2] for data in (await objects(store)).values()).splitlines()
    assert fork.splitlines()[1:4] == lines[:3]
    assert isinstance((await store.load("f"))[3], Fork)


# --- processes, threads, loops --------------------------------------------------------------------


def test_one_store_serves_many_threads_and_event_loops(s3_endpoint: str) -> None:
    store = ObjectStore(s3.fresh_url(), **s3.options(s3_endpoint))

    def work(number: int) -> None:
        for seq in range(5):
            asyncio.run(store.append(f"r{number}", result(seq)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [info.records for info in asyncio.run(store.describe())] == [5] * 8


def _in_python(code: str) -> str:
    head = "import asyncio, os\nfrom agentor.engine.store.objects import ObjectStore\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_child_is_told_that_obstore_did_not_come_along() -> None:
    said = _in_python(
        """
        store = ObjectStore("memory://")
        asyncio.run(store.list_runs())
        if os.fork() == 0:
            for made in (store, ObjectStore("memory://")):
                try:
                    asyncio.run(made.load("r"))
                except Exception as error:
                    print(type(error).__name__, error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    lines = said.splitlines()
    assert [line.split()[0] for line in lines] == ["StoreError", "StoreError"]
    assert "'spawn'" in lines[0]


def test_a_child_forked_before_the_first_request_can_use_the_store() -> None:
    said = _in_python(
        """
        store = ObjectStore("memory://")
        if os.fork() == 0:
            print(asyncio.run(store.list_runs()), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert said.strip() == "[]"


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://me:hunter22@bucket/a", {"access_key_id": "me", "secret_access_key": "hunter22"}),
        ("s3://bucket/a", {"config": {"aws_secret_access_key": "hunter22", "aws_access_key_id": "me"}}),
    ],
)
async def test_secrets_are_in_no_text(url: str, options: dict[str, Any]) -> None:
    limits = {"retry_timeout": timedelta(seconds=0.1)}
    for endpoint in ("http://hunter22.localhost:1", "no address"):
        store = ObjectStore(
            url, endpoint=endpoint, client_options={"allow_http": True}, retry_config=limits, **options
        )
        with pytest.raises(StoreError) as caught:
            await store.append("r", result(0))
        assert "hunter22" not in f"{store!r} {caught.value} {caught.value!r}"
        assert repr(store) == "ObjectStore('s3://bucket/a')"


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("file:///tmp/x", ValueError, "use FileStore"),
        ("ftp://x/y", StoreError, "cannot open ftp://x/y"),
        ("nonsense", StoreError, "cannot open"),
    ],
)
def test_what_cannot_be_a_store_is_refused_at_once(url: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ObjectStore(url)


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = "import sys; sys.modules['obstore'] = None; import agentor.engine.store.objects"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'agentor[objects]'" in done.stderr
