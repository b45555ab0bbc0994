"""A disk that fails, fills up or loses power: what was acknowledged stays, and the rest is told."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest
from faults import CountingDisk, FailingDisk, PowerDisk, Remembered

from agentor.engine.events import Event, ToolResult
from agentor.engine.store import FileStore
from agentor.errors import StoreError

BATCHES = [
    [ToolResult(seq=seq, at=1.0, name="t", result="x" * 50) for seq in batch]
    for batch in ((0,), (1, 2), (3,))
]


def write(store: FileStore, *, again: bool) -> tuple[list[Event], int]:
    """Append all batches in order, as a journal does; what was acknowledged, and how often it failed."""
    acknowledged: list[Event] = []
    failures = 0
    for batch in BATCHES:
        for _ in range(3 if again else 1):
            try:
                store.append_many("r", batch)
            except StoreError:
                failures += 1
                continue
            acknowledged += batch
            break
        else:
            break
    return acknowledged, failures


def operations(folder: Path) -> int:
    disk = CountingDisk()
    write(FileStore(folder / "count", disk=disk), again=False)
    return disk.operations


@pytest.mark.parametrize("times", [1, 2, 1000])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("again", [False, True])
def test_no_failure_of_the_disk_is_silent_or_leaves_a_hole(
    tmp_path: Path, code: int, times: int, again: bool
) -> None:
    for at in range(1, operations(tmp_path) + 3):
        folder = tmp_path / f"{at}"
        folder.mkdir(mode=0o700)
        disk = FailingDisk(10**9, code, times)
        store = FileStore(folder, disk=disk)
        disk._at = disk.operations + at
        acknowledged, failures = write(store, again=again)
        stored = FileStore(folder).load("r")
        assert stored[: len(acknowledged)] == acknowledged, at
        whole = [event for batch in BATCHES for event in batch]
        assert stored == whole[: len(stored)], at
        assert failures or acknowledged == whole, at
        if times == 1 and again:
            assert acknowledged == whole, at


def test_after_two_failed_syncs_nothing_more_is_written_to_that_run(tmp_path: Path) -> None:
    disk = FailingDisk(10**9, errno.EIO, 1000)
    store = FileStore(tmp_path / "runs", disk=disk)
    store.append_many("r", BATCHES[0])
    store.load("r")
    disk._at = disk.operations + 2  # the write goes through, its sync does not
    with pytest.raises(StoreError, match="resume the run in a new process"):
        store.append_many("r", BATCHES[1])
    disk._at = 10**9
    with pytest.raises(StoreError, match="two syncs"):
        store.append_many("r", BATCHES[1])
    assert store.load("r") == BATCHES[0]  # not what the cache shows, only what was acknowledged
    assert FileStore(tmp_path / "runs").load("r")[:1] == BATCHES[0]


def test_an_append_that_is_repeated_after_a_lost_answer_is_one_record(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "runs")
    for batch in BATCHES:
        store.append_many("r", batch)
        store.append_many("r", batch)
        FileStore(tmp_path / "runs").append_many("r", batch)
    assert store.load("r") == [event for batch in BATCHES for event in batch]


def test_no_power_loss_takes_an_acknowledged_event(tmp_path: Path) -> None:
    disk = PowerDisk()
    store = FileStore(tmp_path / "live", disk=disk)
    acknowledged = [(0, 0)]  # (states so far, events acknowledged by then)
    for batch in BATCHES:
        store.append_many("r", batch)
        acknowledged.append((len(disk.states), acknowledged[-1][1] + len(batch)))
    tried = 0
    for place, (entries, durable, files) in enumerate(disk.states):
        sure = max(count for states, count in acknowledged if states <= place + 1)
        for names, keep in itertools.product((entries, durable), (0, 1, 2, 3)):
            tried += 1
            folder = tmp_path / f"state-{place}-{names is durable}-{keep}"
            rebuild(folder, names, files, keep)
            stored = FileStore(folder).load("r")
            assert len(stored) >= sure, (place, keep)
            assert stored == [event for batch in BATCHES for event in batch][: len(stored)]
            rest = [e for batch in BATCHES for e in batch if (e.seq or 0) >= len(stored)]
            FileStore(folder).append_many("r", rest) if rest else None
            assert len(FileStore(folder).load("r")) == 4
    assert tried > 60


def rebuild(folder: Path, names: dict[str, int], files: dict[int, Remembered], keep: int) -> None:
    """The folder as a disk may hold it: of what was not synced, nothing, a third, all, or zeros."""
    folder.mkdir(mode=0o700)
    for name, inode in names.items():
        file = files.get(inode, Remembered())
        loose = file.written[len(file.synced) :]
        kept = (b"", loose[: len(loose) // 3], loose, b"\0" * len(loose))[keep]
        (folder / name).write_bytes(file.synced + kept)


def test_a_turn_of_one_tool_costs_two_syncs_and_k_parallel_ones_at_most_one_more_than_k(
    tmp_path: Path,
) -> None:
    from agentor import Agentor
    from agentor.testing import ScriptedModel, call

    def syncs(turns: int, tools: int) -> int:
        disk = CountingDisk()
        script = [[call("note", {"n": n}) for n in range(tools)] for _ in range(turns)]
        agent = Agentor(
            "a",
            model=ScriptedModel([*script, "done"]),
            tools=[note],
            store=FileStore(tmp_path / f"{turns}-{tools}", disk=disk),
            max_turns=99,
        )
        assert agent.run("go").status == "completed"
        return disk.syncs

    assert syncs(20, 1) - syncs(10, 1) == 2 * 10
    assert syncs(20, 4) - syncs(0, 4) <= 5 * 20


def note(n: int) -> str:
    """Note a number."""
    return str(n)


def test_a_repeat_of_what_was_written_but_perhaps_not_synced_is_synced(tmp_path: Path) -> None:
    FileStore(tmp_path / "runs", sync="process").append_many("r", BATCHES[0])
    disk = CountingDisk()
    FileStore(tmp_path / "runs", disk=disk).append_many("r", BATCHES[0])
    assert disk.syncs == 1


def test_a_repeat_whose_sync_fails_is_not_believed_at_the_next_try(tmp_path: Path) -> None:
    FileStore(tmp_path / "runs", sync="process").append_many("r", BATCHES[0])
    disk = FailingDisk(10**9)
    store = FileStore(tmp_path / "runs", disk=disk)
    store.load("r")
    disk._at = disk.operations + 1
    for _ in range(2):
        with pytest.raises(StoreError, match="in a new process"):
            store.append_many("r", BATCHES[0])
