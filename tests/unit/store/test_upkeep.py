"""Follow, verify, repair, prune, export and copy: once over every store."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor import Agentor, FileStore, MemoryStore, SQLiteStore
from agentor.engine.events import Event, RunEnd, ToolResult
from agentor.engine.store.disk import Disk, is_network, kind_of
from agentor.engine.store.summary import RunInfo, advanced, epoch_of
from agentor.engine.transcript import hydrate
from agentor.errors import (
    CorruptLog,
    RunExists,
    RunNotFound,
    StoreError,
    UnsafePath,
    UnsupportedLog,
    WrongThread,
)
from agentor.testing import ScriptedModel, call
from agentor.testing.samples import every_kind, result, whole_run


@pytest.fixture(params=["file", "sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = {
        "file": lambda: FileStore(tmp_path / "runs"),
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db"),
        "memory": MemoryStore,
    }
    return made[request.param]()


def look(n: int) -> str:
    return "r" * n


def an_agent(store: Any, **more: Any) -> Agentor:
    model = ScriptedModel([call("look", {"n": 10}), call("look", {"n": 5000}), "done"] * 9)
    return Agentor("a", "Be brief.", model=model, tools=[look], store=store, **more)


def at(seconds: float, events: list[Event]) -> list[Event]:
    return [Event.from_dict({**e.to_dict(), "at": seconds}) for e in events]


# --- follow and attach ---------------------------------------------------------------------------


async def test_whoever_attaches_sees_what_the_stream_gives(store: Any) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        await go_on.wait()
        return "ok"

    model = ScriptedModel([call("wait"), "done"])
    agent = Agentor("a", model=model, tools=[wait], store=store)
    run = asyncio.create_task(agent.arun("go", run_id="r"))
    await started.wait()
    seen: list[Event] = []
    async for event in agent.attach("r"):
        seen.append(event)
        if event.type == "tool_call":
            assert event.args == {}  # as `astream` gives it: hydrated
            go_on.set()
    assert seen == (await run).events
    assert next(e for e in seen if e.type == "generation").messages == [{"role": "user", "content": "go"}]
    assert [e async for e in agent.attach("r", from_seq=3)] == seen[3:]
    with pytest.raises(RunNotFound):
        await anext(agent.attach("nope"))


async def test_a_follower_of_an_ended_run_sees_its_continuation_too(store: Any) -> None:
    agent = an_agent(store)
    await agent.arun("go", run_id="r", max_turns=1)
    await agent.acontinue_run("r", "and on")
    kinds = [e.type async for e in store.follow("r")]
    assert (kinds.count("run_end"), kinds[-1]) == (2, "run_end")
    assert [e async for e in store.follow("r", len(kinds))] == []


async def test_a_follower_reads_only_what_is_new(tmp_path: Path) -> None:
    """A long run that is followed costs its length once, not at each event."""
    read: list[int] = []

    class Counting(FileStore):
        def _read(self, run_id: str) -> Any:
            found = super()._read(run_id)
            read.append(len(found[1]))
            return found

    writer, reader = FileStore(tmp_path / "runs"), Counting(tmp_path / "runs")
    writer.append("r", result(0))
    seen = 0
    async for event in reader.follow("r"):
        seen += 1
        end = RunEnd(seq=seen, at=1.0, status="completed", turns=1)
        if event.type != "run_end":
            writer.append("r", end if seen == 200 else result(seen))
    assert (seen, len(read)) == (201, 1)
    mine = FileStore(tmp_path / "runs")
    mine.append("r", result(201))
    assert mine.load_from("r", 201) == [result(201)]


async def test_a_follower_of_a_run_that_is_deleted_or_cut_is_told(store: Any) -> None:
    for act, error in ((lambda: store.delete("r"), RunNotFound), (lambda: store.repair("r", 1), StoreError)):
        store.append_many("r", whole_run()[:-1])
        events = store.follow("r")
        for _ in whole_run()[:-1]:
            await anext(events)
        await asyncio.to_thread(act)
        with pytest.raises(error):
            await anext(events)


# --- verify and repair ---------------------------------------------------------------------------


def test_a_sound_run_is_verified_with_every_request_rebuilt(store: Any) -> None:
    an_agent(store).run("go", run_id="r")
    found = store.verify("r")
    assert (found.ok, found.requests, found.records) == (True, 3, len(store.load("r")))
    assert str(found) == f"run 'r' is sound: {found.records} records, 3 requests rebuilt"
    with pytest.raises(RunNotFound):
        store.verify("nope")


def test_a_record_that_was_changed_behind_sqlites_back_is_found_and_cut_off(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    agent = an_agent(store)
    agent.run("go", run_id="r")
    with closing(sqlite3.connect(store.path)) as db, db:
        change = "UPDATE events SET record = replace(record, 'rrrrrrrrrr', 'forged') WHERE seq = 3"
        assert db.execute(change).rowcount == 1
    found = store.verify("r")
    assert [p.seq for p in found.problems] == [4, 7]
    assert "one of them was changed" in str(found)
    kept = store.repair("r", upto=2)
    assert "SELECT * FROM damaged" in kept
    assert store.verify("r").ok
    with closing(sqlite3.connect(store.path)) as db, db:
        assert db.execute(kept.partition(": ")[2].replace("*", "count(*)")).fetchone() == (found.records,)
    assert agent.resume("r").status == "completed"


def test_damage_in_a_file_is_reported_cut_off_and_kept_aside(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    agent = an_agent(store)
    agent.run("go", run_id="r")
    path = store.path("r")
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:4], lines[4].replace(b"look", b"hook", 1), *lines[5:]])
    path.write_bytes(damaged)
    found = store.verify("r")
    assert ([p.seq for p in found.problems], found.records) == ([4], 4)
    assert "repair(run_id, upto=3)" in str(found)
    with pytest.raises(CorruptLog):
        agent.resume("r")
    with pytest.raises(ValueError, match="records 0 to 3 are sound"):
        store.repair("r", upto=6)
    aside = Path(store.repair("r"))
    assert aside.read_bytes() == damaged
    assert path.read_bytes() == b"".join(lines[:4])
    assert (store.verify("r").ok, store.list_runs()) == (True, ["r"])
    assert agent.resume("r").status == "completed"
    store.delete("r")
    assert os.listdir(tmp_path / "runs") == []


def test_a_run_of_a_newer_version_is_not_called_damaged(store: Any) -> None:
    store.append("r", Event.from_dict({"type": "new", "seq": 0, "critical": True}))
    with pytest.raises(UnsupportedLog):
        store.verify("r")


# --- retention -----------------------------------------------------------------------------------


def many(store: Any) -> None:
    now = time.time()
    for age_days, status in enumerate(["completed", "failed", "completed", "max_turns"], 1):
        *events, end = whole_run()
        ended = Event.from_dict({**end.to_dict(), "status": status})
        store.append_many(f"old-{age_days}", at(now - 86_400 * age_days, [*events, ended]))
    for name, end in (
        ("open", None),
        ("waits", {"status": "paused"}),
        ("cut", {"type": "interrupted", "status": "interrupted"}),
    ):
        *events, last = whole_run()
        more = [] if end is None else [Event.from_dict({**last.to_dict(), **end})]
        store.append_many(name, at(now - 86_400 * 99, events + more))


def pruned(store: Any, **rules: Any) -> list[str]:
    return [info.run_id for info in store.prune(**rules)]


def test_only_runs_that_are_over_are_pruned_unless_told(store: Any) -> None:
    many(store)
    everything = store.list_runs()
    assert pruned(store) == ["old-4", "old-3", "old-2", "old-1"]
    assert pruned(store, older_than=timedelta(days=2.5)) == ["old-4", "old-3"]
    assert pruned(store, keep_last=3) == ["old-4"]
    assert pruned(store, status="completed") == ["old-3", "old-1"]
    assert pruned(store, status={"completed"}, keep_last=1, older_than=timedelta(hours=1)) == ["old-3"]
    assert sorted(pruned(store, status={"running", "paused", "interrupted"})) == ["cut", "open", "waits"]
    assert store.list_runs() == everything  # so far they were only named
    assert pruned(store, older_than=timedelta(days=2.5), dry_run=False) == ["old-4", "old-3"]
    assert sorted(set(everything) - set(store.list_runs())) == ["old-3", "old-4"]
    assert store.load("old-4") == []
    with pytest.raises(ValueError, match="keep_last"):
        store.prune(keep_last=-1)


def test_a_run_that_somebody_holds_is_never_pruned(store: Any) -> None:
    many(store)
    lease = store.lease("old-3", "somebody", 30.0)
    assert pruned(store, dry_run=False) == ["old-4", "old-2", "old-1"]
    lease.release()
    assert pruned(store, dry_run=False) == ["old-3"]
    assert pruned(store, status="running", dry_run=False) == ["open"]


def test_a_damaged_run_is_not_pruned_before_somebody_has_seen_it(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    many(store)
    path = store.path("old-3")
    path.write_bytes(path.read_bytes().replace(b'"ok"', b'"no"'))
    assert pruned(store) == ["old-4", "old-3", "old-2", "old-1"]  # its ends look sound
    assert pruned(store, dry_run=False) == ["old-4", "old-2", "old-1"]
    assert path.exists()


def test_a_run_that_went_on_since_it_was_looked_at_is_left(tmp_path: Path) -> None:
    class Slow(FileStore):
        def lease(self, run_id: str, owner: str, ttl_s: float) -> Any:
            self.append("old-1", Event.from_dict({"type": "run_start", "seq": 6}))
            return super().lease(run_id, owner, ttl_s)

    store = Slow(tmp_path / "runs")
    many(store)
    assert pruned(store, status="completed", older_than=timedelta(hours=1), dry_run=False) == ["old-3"]
    assert store.describe(["old-1"])[0].status == "running"


async def test_upkeep_on_agentors_own_loop_says_what_to_do_instead(store: Any) -> None:
    async def tidy() -> str:
        with pytest.raises(WrongThread, match=r"await asyncio.to_thread\(store.prune, ...\)"):
            store.prune()
        return str(await asyncio.to_thread(store.prune))

    model = ScriptedModel([call("tidy"), "done"])
    agent = Agentor("a", model=model, tools=[tidy], store=store)
    result = await asyncio.to_thread(agent.run, "go")
    assert next(e for e in result.events if isinstance(e, ToolResult)).result == "[]"


# --- export, import, copy ------------------------------------------------------------------------


def test_a_run_goes_from_any_store_through_a_file_into_any_other(store: Any, tmp_path: Path) -> None:
    store.append_many("r", every_kind())
    file = tmp_path / "run.jsonl"
    assert store.export("r", file) == len(every_kind())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for target in (FileStore(tmp_path / "other"), SQLiteStore(tmp_path / "other.db"), MemoryStore()):
        assert target.import_run(file) == "run"
        assert target.import_run(file, "mine") == "mine"
        assert target.import_run(file) == "run"  # once more is no error
        assert [e.to_json() for e in target.load("mine")] == [e.to_json() for e in every_kind()]
        target.append("mine", result(len(every_kind())))
        with pytest.raises(RunExists):
            target.import_run(file, "mine")
        assert store.copy_run("r", target, "copied") == "copied"
        assert target.load("copied") == store.load("r")
        with pytest.raises(RunExists):
            store.copy_run("r", target, "mine")
        target.append_many("half", every_kind()[:3])  # a copy that was cut off goes on where it ended
        assert store.copy_run("r", target, "half") == "half"
        assert target.load("half") == store.load("r")
    assert [p.name for p in tmp_path.iterdir() if "new" in p.name] == []
    with pytest.raises(RunNotFound):
        store.export("nope", file)
    with pytest.raises(RunNotFound):
        store.copy_run("nope", target)


def test_a_file_that_is_damaged_or_cut_off_is_not_imported(store: Any, tmp_path: Path) -> None:
    store.append_many("r", whole_run())
    store.export("r", tmp_path / "x.jsonl")
    whole = (tmp_path / "x.jsonl").read_bytes()
    for bad, error in ((whole[:-5], "middle of a record"), (whole.replace(b"done", b"gone", 1), "checksum")):
        (tmp_path / "x.jsonl").write_bytes(bad)
        with pytest.raises(CorruptLog, match=error):
            store.import_run(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_bytes(b"")
    with pytest.raises(StoreError, match="no record"):
        store.import_run(tmp_path / "x.jsonl")
    with pytest.raises(StoreError, match="No such file"):
        store.import_run(tmp_path / "missing.jsonl")
    with pytest.raises(StoreError, match="cannot export"):
        store.export("r", tmp_path / "no" / "folder.jsonl")
    assert store.list_runs() == ["r"]


def test_epochs_go_on_counting_in_a_copied_run(store: Any, tmp_path: Path) -> None:
    agent = an_agent(store)
    for turns in (1, 2):
        (agent.run("go", run_id="r", max_turns=1) if turns == 1 else agent.resume("r", max_turns=turns))
    target = SQLiteStore(tmp_path / "copy.db")
    store.copy_run("r", target)
    an_agent(target).resume("r", max_turns=9)
    epochs = [e.epoch for e in target.load("r") if e.type == "run_start"]
    assert epochs == sorted(set(epochs))
    store.fork("r", "f")
    an_agent(store).resume("f", max_turns=9)
    assert [e.epoch for e in store.load("f") if e.type == "run_start"][-1] == 1  # counted per run


# --- a run at a glance ---------------------------------------------------------------------------

_texts = st.text(max_size=8) | st.sampled_from(["long", "very long"])
_events = st.one_of(
    st.builds(dict, type=st.just("run_start"), agent=st.sampled_from("ab"), model=st.just("m")),
    st.builds(dict, type=st.just("generation"), turn=st.integers(1, 9), text=_texts),
    st.builds(dict, type=st.just("tool_result"), turn=st.integers(1, 9), name=st.just("t"), result=_texts),
    st.builds(
        dict,
        type=st.just("run_end"),
        status=st.sampled_from(["completed", "poisoned", "paused"]),
        turns=st.integers(1, 9),
        cost=st.none() | st.just(0.5),
        text=_texts,
    ),
    st.builds(dict, type=st.sampled_from(["interrupted", "rewind", "of_tomorrow"])),
    st.builds(dict, type=st.just("fork"), forked_from=st.just("r")),
)


@given(st.lists(_events, max_size=12))
def test_the_ends_of_a_log_say_what_the_whole_log_says(
    tmp_path_factory: Any, records: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("glance")
    first = {"type": "run_start", "agent": "a", "model": "m"}
    sizes = {"long": 3000, "very long": 40_000}
    for text in ("text", "result"):
        records = [{**r, text: "x" * sizes[r[text]]} if r.get(text) in sizes else r for r in records]
    events = [Event.from_dict({**r, "seq": n, "at": n + 0.5}) for n, r in enumerate([first, *records])]
    for made in (FileStore(folder, sync="process"), SQLiteStore(folder / "runs.db"), MemoryStore()):
        for event in events:
            made.append("r", event)
        (info,) = made.describe()
        whole = advanced(RunInfo(run_id="r"), events)
        _, transcript = hydrate("r", events)
        assert (whole.status, epoch_of(events)) == (transcript.status, transcript.epoch)
        # The model and agent of a later segment stand in the middle of a file, where nobody looks.
        assert (info.status, info.turns, info.cost, info.records) == (
            whole.status,
            whole.turns,
            whole.cost,
            whole.records,
        )
        assert (info.created_at, info.updated_at) == (whole.created_at, whole.updated_at)


def test_a_list_shows_runs_that_are_torn_damaged_old_or_not_ours(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    for name in ("torn", "damaged", "whole"):
        store.append_many(name, whole_run())
    with store.path("torn").open("ab") as log:
        log.write(b'{"type":"run_st')
    data = store.path("damaged").read_bytes()
    store.path("damaged").write_bytes(data[:-40] + b"\0" + data[-39:])
    old = [{"type": "run_start", "agent": "a", "messages": []}, {"type": "run_end", "status": "completed"}]
    store.path("old").write_text("".join(json.dumps(line) + "\n" for line in old))
    store.path("empty").touch()
    store.path("folder").mkdir()
    found = {info.run_id: info.status for info in store.describe()}
    assert found == {
        "torn": "completed",
        "damaged": "corrupt",
        "whole": "completed",
        "old": "completed",
        "folder": "unreadable",
    }


# --- words -----------------------------------------------------------------------------------------


def test_errors_about_a_whole_store_name_no_run(tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    for make in (lambda: FileStore(tmp_path / "afile"), lambda: SQLiteStore(tmp_path / "afile" / "runs.db")):
        with pytest.raises(UnsafePath, match=r"^[^:]*afile.*cannot be used as a folder"):
            make()
    with pytest.raises(ValueError, match="MemoryStore"):
        SQLiteStore(":memory:")
    store = FileStore(tmp_path / "runs")
    with pytest.raises(UnsafePath, match="is no plain file"):
        SQLiteStore(store.directory)
    assert not (tmp_path / "runs.lock").exists()
    with pytest.raises(RunNotFound, match=r"in SQLiteStore\("):
        an_agent(SQLiteStore(tmp_path / "runs.db")).resume("nope")


# --- places where locks may not hold -------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("9p", True),
        ("ext4", False),
        ("fuse", False),
        (None, False),
    ],
)
def test_network_file_systems_are_known(kind: str | None, network: bool) -> None:
    assert is_network(kind) is network


def test_the_kind_of_a_file_system_is_read_from_the_table_of_mounts() -> None:
    table = (
        "36 35 0:31 / / rw,noatime shared:1 - overlay overlay rw\n"
        "41 36 0:52 / /mnt/a\\040b rw shared:7 master:1 - nfs4 host:/export rw,vers=4.2\n"
        "torn line\n"
    )
    assert kind_of(os.makedev(0, 52), table) == "nfs4"
    assert kind_of(os.makedev(0, 31), table) == "overlay"
    assert kind_of(os.makedev(9, 9), table) is None


def test_a_folder_on_a_network_file_system_is_refused_unless_told(tmp_path: Path) -> None:
    class Nfs(Disk):
        def file_system(self, fd: int) -> str:
            return "nfs4"

    with pytest.raises(UnsafePath, match=r"nfs4.*network=True"):
        FileStore(tmp_path / "runs", disk=Nfs())
    FileStore(tmp_path / "runs", disk=Nfs(), network=True).append("r", result(0))
