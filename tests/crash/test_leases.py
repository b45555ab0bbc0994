"""Leases that end by themselves: a worker that slept through its time writes nothing and starts nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentor import Agentor, SQLiteStore, ToolContext
from agentor.engine.events import Event, RunStart, ToolResult
from agentor.errors import Fenced, RunBusy, StoreError, UnsafePath, UnsupportedLog
from agentor.testing import ScriptedModel, call


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> SQLiteStore:
    return SQLiteStore(tmp_path / "runs.db", clock=clock)


def event(seq: int) -> Event:
    return ToolResult(seq=seq, at=1.5, name="t", call_id="c", turn=1, result="x")


def test_a_held_run_says_who_holds_it_and_until_when(store: SQLiteStore, clock: Clock) -> None:
    store.lease("r", "ann", 30.0)
    with pytest.raises(RunBusy) as caught:
        store.lease("r", "bob", 30.0)
    busy = caught.value
    assert (busy.owner, busy.pid, busy.since, busy.expires) == ("ann", os.getpid(), 1000.0, 1030.0)
    assert "its lease ends at 00:17:10 UTC" in str(busy)
    assert "wait_s=" in str(busy)


def test_a_lease_that_ran_out_passes_on_and_its_old_holder_is_refused(
    store: SQLiteStore, clock: Clock
) -> None:
    old = store.lease("r", "ann", 30.0)
    store.append_many("r", [event(0)], old.epoch)
    clock.now += 29
    old.renew()
    clock.now += 29
    with pytest.raises(RunBusy):
        store.lease("r", "bob", 30.0)
    clock.now += 2
    new = store.lease("r", "bob", 30.0)
    assert new.epoch == old.epoch + 1
    for act in (lambda: store.append_many("r", [event(1)], old.epoch), old.renew):
        with pytest.raises(Fenced, match=r"epoch 1, now bob .* has epoch 2"):
            act()
    old.release()  # it is not the old one's any more
    store.append_many("r", [event(1)], new.epoch)
    assert [e.seq for e in store.load("r")] == [0, 1]
    new.release()
    with pytest.raises(Fenced, match="given back"):
        store.append_many("r", [event(2)], new.epoch)


def test_a_dead_holders_run_is_free_at_once(tmp_path: Path, store: SQLiteStore) -> None:
    code = "import sys; from agentor import SQLiteStore; SQLiteStore(sys.argv[1]).lease('r', 'dead', 3600.0)"
    subprocess.run([sys.executable, "-c", code, str(store.path)], check=True)
    assert store.lease("r", "ann", 30.0).epoch == 2


def test_a_lease_is_renewed_while_a_tool_takes_longer_than_it(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", lease_s=0.2)
    renewed = asyncio.Event()
    lease = store.lease

    def counted(run_id: str, owner: str, ttl_s: float) -> Any:
        timed = lease(run_id, owner, ttl_s)
        renew = timed.renew

        def once_more() -> None:
            renew()
            counts.append(1)
            if len(counts) == 4:
                loop.call_soon_threadsafe(renewed.set)

        timed.renew = once_more  # type: ignore[method-assign]  # to see it
        return timed

    store.lease = counted  # type: ignore[method-assign]
    counts: list[int] = []

    async def slow() -> str:
        await renewed.wait()
        return "ok"

    async def run() -> Any:
        nonlocal loop
        loop = asyncio.get_running_loop()
        return await Agentor(
            "a", model=ScriptedModel([call("slow"), "done"]), tools=[slow], store=store
        ).arun("go")

    loop: asyncio.AbstractEventLoop
    assert asyncio.run(run()).status == "completed"


async def test_a_worker_that_loses_its_lease_in_the_middle_of_a_tool_is_told_at_once(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", lease_s=0.1)
    never = asyncio.Event()

    async def stuck() -> str:
        with closing(sqlite3.connect(store.path)) as db, db:  # as another worker's take-over would
            db.execute("UPDATE runs SET epoch = epoch + 1")
        await never.wait()
        return "late"

    model = ScriptedModel([call("stuck"), "done"])
    with pytest.raises(Fenced):
        await Agentor("a", model=model, tools=[stuck], store=store).arun("go", run_id="r")
    assert [e.type for e in store.load("r")] == ["run_start", "generation", "tool_call"]
    assert len(model.requests) == 1


def test_the_fencing_token_grows_with_each_worker(tmp_path: Path) -> None:
    tokens: list[int] = []

    def note(ctx: ToolContext) -> str:
        tokens.append(ctx.fencing_token)
        return "ok"

    store = SQLiteStore(tmp_path / "runs.db")
    model = ScriptedModel([call("note"), call("note"), "done"])
    made = Agentor("a", model=model, tools=[note], store=store)
    made.run("go", run_id="r", max_turns=1)
    made.resume("r", max_turns=9)
    starts = [e.epoch for e in store.load("r") if isinstance(e, RunStart)]
    assert tokens == starts
    assert tokens == sorted(set(tokens))


# --- the file -------------------------------------------------------------------------------------


def test_the_file_is_its_owners_only_and_plain(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    store.append("r", event(0))
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    (tmp_path / "link.db").symlink_to(tmp_path / "runs.db")
    for name in ("link.db", "."):
        with pytest.raises(UnsafePath):
            SQLiteStore(tmp_path / name)


def test_what_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_text("this is a text, and no database of anybody's" * 100)
    with pytest.raises(StoreError, match="not a database"):
        SQLiteStore(tmp_path / "runs.db")


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    SQLiteStore(tmp_path / "runs.db")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db, db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UnsupportedLog, match="version 99"):
        SQLiteStore(tmp_path / "runs.db")


@pytest.mark.parametrize("durability", ["strict", "best_effort"])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, durability: Any) -> None:
    def write(size: int) -> str:
        store._file._open().execute("PRAGMA max_page_count = 1")  # SQLite's own way to be full
        return "x" * size

    store = SQLiteStore(tmp_path / "runs.db")
    model = ScriptedModel([call("write", {"size": 200_000}), "done"])
    made = Agentor("a", model=model, tools=[write], store=store, durability=durability)
    if durability == "strict":
        with pytest.raises(StoreError, match="full"):
            made.run("go", run_id="r")
    else:
        result = made.run("go", run_id="r")
        assert (result.status, result.durable) == ("completed", False)
        assert "full" in result.store_errors[0]
    store._file._open().execute("PRAGMA max_page_count = 1000000")
    assert [e.type for e in store.load("r")] == ["run_start", "generation", "tool_call"]

    def small(size: int) -> str:
        return "x"

    small.__name__ = "write"
    resumed = Agentor("a", model=model, tools=[small], store=SQLiteStore(tmp_path / "runs.db")).resume("r")
    assert resumed.status == "completed"


def test_a_forked_child_opens_its_own_connection(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    store.append("r", event(0))
    pid = os.fork()
    if pid == 0:
        try:
            store.append("r", event(1))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    store.append("r", event(2))
    assert len(store.load("r")) == 3
