"""A store from a text, so that worker processes can be told which one to open.

`file:FOLDER`, `sqlite:FILE`, `postgres:DSN`, `objects:URL OPTIONS-AS-JSON`.
"""

from __future__ import annotations

import json
from typing import Any

from agentor import FileStore, SQLiteStore


def opened(place: str, *, lease_s: float = 30.0) -> Any:
    """The store there."""
    kind, _, where = place.partition(":")
    if kind == "file":
        return FileStore(where)  # its lock needs no time
    if kind == "sqlite":
        return SQLiteStore(where, lease_s=lease_s)
    if kind == "postgres":
        from agentor import PostgresStore

        return PostgresStore(where, lease_s=lease_s)
    from agentor import ObjectStore

    url, _, options = where.partition(" ")
    return ObjectStore(url, lease_s=lease_s, **json.loads(options or "{}"))
