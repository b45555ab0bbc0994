"""A receiver for each test, and none of the variables of whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.otlp import Receiver

from agentor.tracer import named

WORKER = Path(__file__).with_name("worker.py")


def ran(code: str, **variables: str) -> str:
    """What a Python process printed that ran this code, in which every warning is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "CELESTO_")):
            monkeypatch.delenv(name)
    named.cache_clear()
    yield
    named.cache_clear()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as one:
        yield one
