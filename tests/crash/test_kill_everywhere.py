"""A run is killed with SIGKILL at every file operation, and finished by another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driver import in_child
from faults import CountingDisk, DeadlyDisk

from agentor import FileStore
from agentor.engine.events import ToolResult
from agentor.engine.store.disk import Disk

DRIVER, PEOPLE = (Path(__file__).with_name(name) for name in ("driver.py", "people.py"))


def sweep(*arguments: str, driver: Path = DRIVER) -> dict[str, Any]:
    command = [sys.executable, str(driver), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    print(figures)
    return figures


def test_no_kill_point_loses_an_event_or_repeats_a_recorded_call() -> None:
    figures = sweep("3", "3")
    assert figures["problems"] == []
    assert figures["kills"] > 2 * figures["operations"]
    assert figures["resumed"] + figures["never began"] == figures["kills"]


def test_a_second_kill_during_the_resume_changes_nothing_of_that() -> None:
    figures = sweep("2", "2", "--pairs", "60")
    assert figures["problems"] == []
    assert figures["resumed"] > 20


def test_with_people_a_sub_agent_a_compaction_and_a_budget_every_count_and_every_word_holds() -> None:
    figures = sweep("--shard", "1", "4", driver=PEOPLE)
    assert figures["problems"] == []
    assert figures["finished"] + figures["never began"] == figures["kills"] > 40


@pytest.mark.sweep
@pytest.mark.parametrize("shard", range(4))
def test_with_people_at_every_operation(shard: int) -> None:
    assert sweep("--shard", str(shard), "4", driver=PEOPLE)["problems"] == []


@pytest.mark.sweep
@pytest.mark.parametrize("shard", range(4))
def test_the_long_sweep_of_20_turns_and_3_tools(shard: int) -> None:
    figures = sweep("20", "3", "--shard", str(shard), "4")
    assert figures["problems"] == []


@pytest.mark.sweep
def test_two_thousand_double_kills() -> None:
    figures = sweep("3", "3", "--pairs", "2000")
    assert figures["problems"] == []


def test_a_fork_that_is_killed_at_any_operation_is_whole_or_absent_and_its_id_is_not_lost(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "runs"
    store = FileStore(folder)
    events = [ToolResult(seq=seq, at=1.0, name="t", result="x" * 100) for seq in range(5)]
    store.append_many("parent", events)
    before = store.path("parent").read_bytes()
    disk = CountingDisk()
    FileStore(folder, disk=disk).fork("parent", "counted")
    outcomes = set()
    for at in range(1, disk.operations + 1):
        for moment in ("before", "half", "after"):
            status, _ = in_child(lambda _, at=at, moment=moment: _fork(folder, DeadlyDisk(at, moment)))
            assert os.WIFSIGNALED(status)
            late = FileStore(folder)
            assert late.path("parent").read_bytes() == before
            whole = "branch" in late.list_runs()
            outcomes.add(whole)
            if not whole:
                late.fork("parent", "branch")
            *copied, marker = late.load("branch")
            assert (copied, marker.type) == (events, "fork")
            late.path("branch").unlink()
    assert outcomes == {True, False}


def _fork(folder: Path, disk: Disk) -> None:
    FileStore(folder, disk=disk).fork("parent", "branch")
