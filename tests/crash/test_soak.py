"""Minutes of random kills: `make soak`. AGENTOR_SOAK_S is the time in seconds for all stores together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STORES = 4
SECONDS = float(os.environ.get("AGENTOR_SOAK_S", "600")) / STORES


def soak(place: str, seconds: float) -> dict[str, object]:
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), place, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 600)
    assert done.returncode == 0, done.stderr[-3000:]
    figures: dict[str, object] = json.loads(done.stdout)
    print(place.partition(":")[0], {k: v for k, v in figures.items() if k not in ("breaches", "errors")})
    assert figures["breaches"] == []
    assert figures["errors"] == []
    return figures


def test_workers_that_are_killed_now_and_then_finish_every_run(place: str) -> None:
    assert soak(place, 6.0)["kills"]


@pytest.mark.soak
def test_workers_that_are_killed_for_minutes_finish_every_run(place: str) -> None:
    soak(place, SECONDS)
