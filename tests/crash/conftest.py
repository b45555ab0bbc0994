"""The kinds of store that crash tests run on, each at a fresh place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers import s3


@pytest.fixture(params=["file", "sqlite", "postgres", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A text for `places.opened`."""
    if request.param == "postgres":
        return f"postgres:{request.getfixturevalue('postgres_server').new_database()}"
    if request.param == "objects":
        options = s3.options(request.getfixturevalue("s3_endpoint"))
        return f"objects:{s3.fresh_url()} {json.dumps(options)}"
    return {"file": f"file:{tmp_path}/runs", "sqlite": f"sqlite:{tmp_path}/runs.db"}[request.param]
