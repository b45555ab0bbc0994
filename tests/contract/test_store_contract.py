"""What every store of ours promises, on each of them; and what `FileStore` promises of its files."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentor import FileStore, MemoryStore, SQLiteStore
from agentor.engine.events import Event, Fork, RunStart, ToolResult
from agentor.errors import (
    Conflict,
    CorruptLog,
    Fenced,
    InvalidRunId,
    RunBusy,
    RunExists,
    RunNotFound,
    StoreWarning,
    UnsafePath,
)

MakeStore = Callable[[], Any]


@pytest.fixture(params=["file", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return SQLiteStore(tmp_path / "runs.db")
    return FileStore(tmp_path / "runs") if request.param == "file" else MemoryStore()


def event(seq: int | None, text: str = "x") -> Event:
    return ToolResult(seq=seq, at=1.5, name="t", call_id="c", turn=1, result=text)


def test_events_come_back_equal_in_order_and_with_their_run_id(store: Any) -> None:
    events = [
        event(0),
        event(1, "grüße \ud83d \0 \u2028"),
        Event.from_dict({"type": "new", "seq": 2, "x": [1]}),
    ]
    store.append("r", events[0])
    store.append_many("r", events[1:])
    assert store.load("r") == events
    assert {e.run_id for e in store.load("r")} == {"r"}
    assert store.load_from("r", 2) == events[2:]
    assert store.load_from("r", 3) == []
    assert store.list_runs() == ["r"]


def test_events_without_a_number_get_the_next_one(store: Any) -> None:
    store.append("r", event(None))
    store.append("r", event(None))
    assert [e.seq for e in store.load("r")] == [0, 1]


def test_an_unknown_run_is_empty(store: Any) -> None:
    assert store.load("nope") == []
    assert store.load_from("nope", 0) == []
    with pytest.raises(RunNotFound):
        store.fork("nope", "x")


def test_an_equal_append_is_one_record_and_another_is_a_conflict(store: Any) -> None:
    store.append_many("r", [event(0), event(1)])
    store.append_many("r", [event(0), event(1)])
    store.append_many("r", [event(1), event(2)])
    assert len(store.load("r")) == 3
    with pytest.raises(Conflict, match="seq 1"):
        store.append("r", event(1, "other"))
    with pytest.raises(Conflict, match="seq 3 comes first"):
        store.append("r", event(9))
    with pytest.raises(RunExists):
        store.append("r", event(0, "other"))
    assert len(store.load("r")) == 3


def test_what_is_loaded_is_a_copy(store: Any) -> None:
    store.append("r", RunStart(seq=0, messages=[{"role": "user", "content": "x"}]))
    store.load("r")[0].messages[0]["content"] = "changed"
    assert store.load("r")[0].messages[0]["content"] == "x"


@pytest.mark.parametrize("at", [None, 0, 1, 2])
def test_a_fork_is_whole_with_its_marker(store: Any, at: int | None) -> None:
    events = [event(0), event(1), event(2)]
    store.append_many("r", events)
    store.fork("r", "f", *(() if at is None else (at,)))
    copied = 3 if at is None else at + 1
    *copy, marker = store.load("f")
    assert copy == events[:copied]
    assert isinstance(marker, Fork)
    assert (marker.seq, marker.forked_from, marker.parent_seq) == (copied, "r", copied - 1)
    store.append("f", event(copied + 1, "own"))
    assert store.load("r") == events
    with pytest.raises(RunExists):
        store.fork("r", "f")


def test_one_lease_at_a_time(store: Any) -> None:
    lease = store.lease("r", "first", 30)
    with pytest.raises(RunBusy, match="first") as caught:
        store.lease("r", "second", 30)
    assert (caught.value.pid, caught.value.since is not None) == (os.getpid(), True)
    lease.release()
    lease.release()
    store.lease("r", "second", 30).release()
    assert store.list_runs() == []


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "../x",
        "/x",
        "a\\b",
        "C:x",
        ".x",
        "a\nb",
        "a\0b",
        "con",
        "nul.txt",
        "a ",
        "a.",
        "\u202eab",
        "x" * 101,
        "Ü" * 31,
        "\ud800",
    ],
)
def test_ids_that_cannot_name_a_log_are_refused(store: Any, run_id: str) -> None:
    with pytest.raises(InvalidRunId, match="use a-z"):
        store.append(run_id, event(0))


def test_ids_that_only_need_encoding_come_back_as_they_were(store: Any) -> None:
    ids = ["Order 42", "order 42", "Größe", "a.b", "x--abc", "A*B?", "e\u0301", "\u00e9"]
    for run_id in ids:
        store.append(run_id, event(0, run_id))
    assert store.list_runs() == sorted(ids)
    for run_id in ids:
        assert store.load(run_id)[0].result == run_id


# --- files --------------------------------------------------------------------------------------


def test_logs_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = FileStore(tmp_path / "a" / "runs")
        store.append("r", event(0))
        store.lease("r", "x", 1).release()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a" / "runs").stat().st_mode) == 0o700
    for name in ("r.jsonl", "r.lock"):
        assert stat.S_IMODE((tmp_path / "a" / "runs" / name).stat().st_mode) == 0o600


def test_a_folder_that_others_can_write_to_is_warned_about(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.warns(StoreWarning, match="written by others"):
        FileStore(tmp_path)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder", "hard link"])
@pytest.mark.parametrize("name", ["r.jsonl", "r.lock"])
def test_what_is_no_plain_file_is_refused_and_nothing_blocks(tmp_path: Path, kind: str, name: str) -> None:
    store = FileStore(tmp_path / "runs")
    victim, place = tmp_path / "victim", tmp_path / "runs" / name
    victim.write_text("precious")
    {
        "symlink": lambda: place.symlink_to(victim),
        "fifo": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "hard link": lambda: os.link(victim, place),
    }[kind]()
    with pytest.raises(UnsafePath):
        store.lease("r", "x", 1) if name == "r.lock" else store.append("r", event(0))
    if name == "r.jsonl":
        with pytest.raises(UnsafePath):
            store.load("r")
    assert victim.read_text() == "precious"


def test_a_torn_tail_is_set_aside_and_cut_off_at_the_next_append(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    store.append_many("r", [event(0), event(1)])
    path = store.path("r")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"tool_res')
    late = FileStore(tmp_path / "runs")
    assert len(late.load("r")) == 2
    late.append("r", event(2))
    assert path.read_bytes().startswith(whole)
    assert len(FileStore(tmp_path / "runs").load("r")) == 3
    (aside,) = [p for p in path.parent.iterdir() if "torn" in p.name]
    assert aside.read_bytes() == b'{"type":"tool_res'
    assert late.list_runs() == ["r"]


def test_damage_is_named_and_changes_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    store.append_many("r", [event(0), event(1), event(2)])
    path = store.path("r")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="record 1, byte") as caught:
        FileStore(tmp_path / "runs").load("r")
    assert caught.value.record == 1
    assert path.read_bytes() == bytes(data)


def test_a_log_that_another_process_wrote_to_is_read_again(tmp_path: Path) -> None:
    one, two = FileStore(tmp_path / "runs"), FileStore(tmp_path / "runs")
    one.append("r", event(0))
    two.append("r", event(1))
    with pytest.raises(Conflict):
        one.append("r", event(1, "other"))
    assert one.load_from("r", 1) == [event(1)]
    one.append("r", event(2))
    assert len(two.load("r")) == 3


def test_a_log_that_names_a_higher_epoch_takes_nothing_from_an_older_lease(tmp_path: Path) -> None:
    mine, other = FileStore(tmp_path / "runs"), FileStore(tmp_path / "runs")
    old = mine.lease("r", "ann", 30)
    mine.append_many("r", [RunStart(seq=0, epoch=old.epoch)], old.epoch)
    (tmp_path / "runs" / "r.lock").unlink()  # somebody tidied up: the kernel's lock guards nothing now
    new = other.lease("r", "bob", 30)
    assert new.epoch == old.epoch + 1
    other.append_many("r", [RunStart(seq=1, epoch=new.epoch)], new.epoch)
    with pytest.raises(Fenced, match="names epoch 2"):
        mine.append_many("r", [event(2)], old.epoch)
    assert len(other.load("r")) == 2


def test_epochs_go_on_counting_also_where_nothing_was_written(store: Any) -> None:
    first = store.lease("r", "ann", 30)
    first.release()
    second = store.lease("r", "bob", 30)
    assert second.epoch > first.epoch
    with pytest.raises(Fenced):
        store.append_many("r", [event(0)], first.epoch)
    store.append_many("r", [event(0)], second.epoch)
    second.release()


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_the_lock_of_a_killed_process_is_free_also_where_its_forked_child_lives(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    holder = python(
        """
        import os, sys
        from agentor import FileStore
        lease = FileStore(sys.argv[1]).lease("r", "holder", 30)
        if os.fork() == 0:
            print(os.getpid(), flush=True)
        sys.stdin.read()
        """,
        str(tmp_path / "runs"),
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    with pytest.raises(RunBusy, match="holder") as caught:
        store.lease("r", "me", 30)
    assert caught.value.pid == holder.pid
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    os.kill(child, 0)  # the child lives on
    store.lease("r", "me", 30).release()
    os.kill(child, signal.SIGKILL)
    holder.communicate()


def test_of_many_processes_that_make_the_same_run_one_wins(tmp_path: Path) -> None:
    FileStore(tmp_path / "runs").append("parent", event(0))
    code = """
        import sys
        from agentor import FileStore
        from agentor.engine.events import ToolResult
        from agentor.errors import RunExists
        store = FileStore(sys.argv[1])
        sys.stdin.readline()
        won = []
        for act in (lambda: store.append("new", ToolResult(seq=0, name=sys.argv[2])),
                    lambda: store.fork("parent", "branch")):
            try:
                act()
                won.append(1)
            except RunExists:
                won.append(0)
        print(won)
    """
    racers = [python(code, str(tmp_path / "runs"), str(n)) for n in range(6)]
    outcomes = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        outcomes.append(json.loads(racer.communicate()[0]))
    assert [sum(column) for column in zip(*outcomes, strict=True)] == [1, 1]


def test_threads_that_append_to_many_runs_of_one_store_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs", sync="process")

    def work(n: int) -> None:
        for seq in range(20):
            store.append(f"r{n}", event(seq))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(150)]  # more than are kept open
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(store.load(f"r{n}")) == 20 for n in range(150))


# --- names --------------------------------------------------------------------------------------


@given(st.text(max_size=40))
@settings(deadline=None)
def test_no_text_as_an_id_leaves_the_folder_or_shares_a_file(text: str) -> None:
    from agentor.engine.store.names import check_run_id, decoded_id, encoded

    try:
        check_run_id(text)
    except InvalidRunId:
        return
    name = encoded(text)
    assert decoded_id(name) == text
    assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789-_" for c in name)
