"""A worker that is stopped (SIGSTOP) longer than its lease, and wakes: it writes and starts nothing more."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import opened
from sleeper import LEASE_S, Points, agent

from agentor import Agentor, RunResult
from agentor.errors import RunBusy
from agentor.testing.settled import Settled

POINTS = 14  # of the sleeper's run
SLEEPER = str(Path(__file__).with_name("sleeper.py"))


@contextlib.contextmanager
def start(folder: Path, place: str, point: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, SLEEPER, str(folder), place, str(point)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sleeper:
        try:
            yield sleeper
        finally:
            sleeper.kill()  # a stopped process would be waited for without an end


def log_of(place: str) -> list[str]:
    return [event.to_json() for event in Settled(opened(place)).load("r")]


def test_the_run_has_the_points_that_the_others_stop_at(tmp_path: Path) -> None:
    with start(tmp_path, f"file:{tmp_path}/runs", 0) as sleeper:
        out, err = sleeper.communicate()
    assert (out.strip(), err) == (str(POINTS), "")


@pytest.mark.parametrize("point", [1, 2, 4, 5, 9, 13])
def test_a_stopped_worker_does_nothing_more_once_another_one_took_over(
    tmp_path: Path, place: str, point: int
) -> None:
    taken_over(tmp_path, place, point)


@pytest.mark.soak
@pytest.mark.parametrize("point", range(1, POINTS + 1))
def test_a_worker_stopped_anywhere_does_nothing_more(tmp_path: Path, place: str, point: int) -> None:
    taken_over(tmp_path, place, point)


def begun(mine: Agentor) -> RunResult:
    """The run, begun by another worker once the first one's lease, under which nothing was saved, is over."""
    until = time.monotonic() + 60 * LEASE_S
    while True:
        try:
            return mine.run("go", run_id="r")
        except RunBusy:
            assert time.monotonic() < until


def taken_over(folder: Path, place: str, point: int) -> None:
    with start(folder, place, point) as sleeper:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), sleeper.communicate()
        mine = agent(folder, place, Points(0))
        started = bool(log_of(place))
        if place.startswith("file:"):  # its lock is the kernel's: nobody takes it from a living process
            if started and point < POINTS:  # at the last one the run is over
                with pytest.raises(RunBusy, match="held by a"):
                    mine.resume("r")
            sleeper.send_signal(signal.SIGCONT)
            assert sleeper.communicate(timeout=60)[1] == ""
            assert mine.resume("r").status == "completed"
            assert Counter((folder / "ledger").read_text().split()) == {"first": 1, "second": 1}
            return
        result = mine.resume("r", wait_s=60 * LEASE_S) if started else begun(mine)
        assert (result.status, result.final_output) == ("completed", "done")
        log, ledger = log_of(place), (folder / "ledger").read_text()
        sleeper.send_signal(signal.SIGCONT)
        _, err = sleeper.communicate(timeout=60)
        assert "Fenced" in err or (not started and "RunExists" in err) or point == POINTS, err
        assert log_of(place) == log
        assert (folder / "ledger").read_text() == ledger
        assert max(Counter(ledger.split()).values()) <= 2  # twice: it was in flight, and is on_crash="retry"
