"""However many processes resume a run at once, one of them continues it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_of_many_resumers_one_continues_and_no_tool_runs_twice(store: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("race.py")), "15", "8", store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for number, figures in enumerate(json.loads(done.stdout)):
        assert set(figures["outcomes"]) <= {"finished", "busy"}, (number, figures)
        assert sum(figures["outcomes"].values()) == 8
        assert figures["outcomes"]["finished"] >= 1
        assert figures["ledger"] == {"0": 1, "1": 1, "2": 1, "3": 1}, (number, figures)
        assert (figures["ends"], figures["last"]) == (2, "run_end")
