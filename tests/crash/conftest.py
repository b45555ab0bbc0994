"""The kinds of store that crash tests run on, each at a fresh place."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["file", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A text for `places.opened`."""
    return {"file": f"file:{tmp_path}/runs", "sqlite": f"sqlite:{tmp_path}/runs.db"}[request.param]
