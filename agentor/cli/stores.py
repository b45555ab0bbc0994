"""The store that a place on the command line names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentor.engine.store import FileStore, SQLiteStore
from agentor.engine.store.base import Store
from agentor.engine.store.objects import ObjectStore
from agentor.engine.store.postgres import PostgresStore
from agentor.errors import StoreError

Place = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="AGENTOR_STORE",
        help="Where the runs are: a folder, an SQLite file, or a postgresql:// or s3:// address.",
    ),
]
DEFAULT = "runs"
_SQLITE = (".db", ".sqlite", ".sqlite3")


def open_store(place: str) -> Store:
    """The store at a place that exists; nothing is made.

    Raises:
        StoreError: there is none.
        MissingExtra: its driver is not installed.
    """
    scheme = place.partition("://")[0] if "://" in place else ""
    if scheme in ("postgres", "postgresql"):
        return PostgresStore(place)
    if scheme:
        return ObjectStore(place)
    path = Path(place)
    if path.is_dir():
        return FileStore(path)
    if path.is_file() and path.suffix in _SQLITE:
        return SQLiteStore(path)
    raise StoreError(None, f"there is no store at {place!r}; name a folder or an SQLite file with --store")
