"""However many processes resume a run at once, one of them continues it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def race(rounds: int, resumers: int, place: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("race.py")), str(rounds), str(resumers), place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert len(outcomes) == rounds
    for number, figures in enumerate(outcomes):
        assert set(figures["outcomes"]) <= {"finished", "busy"}, (number, figures)
        assert sum(figures["outcomes"].values()) == resumers
        assert figures["outcomes"]["finished"] >= 1
        assert figures["ledger"] == {"0": 1, "1": 1, "2": 1, "3": 1}, (number, figures)
        assert figures["workers"] == 1, (number, figures)  # besides the one that began the run
        assert (figures["ends"], figures["last"]) == (2, "run_end")


def test_of_many_resumers_one_continues_and_no_tool_runs_twice(place: str) -> None:
    race(15, 8, place)


def test_many_processes_may_open_a_new_sqlite_file_at_once(tmp_path: Path) -> None:
    race(15, 8, f"sqlite:{tmp_path}/{{round}}.db")


@pytest.mark.soak
@pytest.mark.parametrize("resumers", [2, 4, 16])
def test_in_two_hundred_rounds_one_resumer_continues(place: str, resumers: int) -> None:
    race(200, resumers, place)


@pytest.mark.soak
def test_in_two_hundred_rounds_a_new_sqlite_file_opens(tmp_path: Path) -> None:
    race(200, 16, f"sqlite:{tmp_path}/{{round}}.db")
