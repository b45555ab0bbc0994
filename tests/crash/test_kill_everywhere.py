"""A run is killed with SIGKILL at every file operation, and finished by another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("driver.py")


def sweep(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(DRIVER), *arguments]
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


@pytest.mark.sweep
@pytest.mark.parametrize("shard", range(4))
def test_the_long_sweep_of_20_turns_and_3_tools(shard: int) -> None:
    figures = sweep("20", "3", "--shard", str(shard), "4")
    assert figures["problems"] == []


@pytest.mark.sweep
def test_two_thousand_double_kills() -> None:
    figures = sweep("3", "3", "--pairs", "2000")
    assert figures["problems"] == []
