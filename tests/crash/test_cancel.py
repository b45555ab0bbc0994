"""A run is stopped from another process, on every store."""

from __future__ import annotations

import json
import time
from pathlib import Path

from crash.test_waiting import events, start
from places import opened

from agentor import Agentor
from agentor.testing import ScriptedModel


def test_another_process_stops_a_run_in_the_middle_of_a_tool(tmp_path: Path, place: str) -> None:
    with start("hang", place, tmp_path) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "hangs\n"
        page = Agentor("page", model=ScriptedModel([]), store=opened(place))
        asked_at = time.time()
        assert page.cancel("r", "by hand") == "cancelled"
        heard_at, said = float(worker.stdout.readline()), worker.stdout.readline()
        assert (worker.wait(30), json.loads(said)) == (0, {"status": "cancelled", "pending": []})
    assert heard_at - asked_at < 2.0  # within a second, on a machine that has the time
    last = events(place)[-1]
    assert (last.type, last.reason, last.status) == ("interrupted", "by hand", "cancelled")
