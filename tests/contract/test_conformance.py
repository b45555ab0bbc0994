"""Our stores, and the smallest one that is allowed, against the suite that ships with the package."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentor import FileStore, MemoryStore, SQLiteStore
from agentor.engine.events import Event
from agentor.testing.conformance import StoreConformance


class TestFileStore(StoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Any]:
        return functools.partial(FileStore, tmp_path / "runs")

    @staticmethod
    def tear(store: FileStore, run_id: str) -> None:
        with store.path(run_id).open("ab") as log:
            log.write(b'{"type":"tool_res')


class TestSQLiteStore(StoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Any]:
        return functools.partial(SQLiteStore, tmp_path / "runs.db")


class TestMemoryStore(StoreConformance):
    shared = False

    @pytest.fixture
    def open_store(self) -> Callable[[], Any]:
        one = MemoryStore()
        return lambda: one


class Smallest:
    """Three methods, each event a line of a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def append(self, run_id: str, event: Event) -> None:
        with (self.folder / run_id).open("ab") as log:
            log.write(event.to_json().encode("utf-8", "surrogatepass") + b"\n")

    def load(self, run_id: str) -> list[Event]:
        path = self.folder / run_id
        lines = path.read_bytes().decode("utf-8", "surrogatepass").split("\n") if path.exists() else []
        return [Event.from_dict(json.loads(line)) for line in lines[:-1]]

    def list_runs(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


class TestSmallestStore(StoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Any]:
        return functools.partial(Smallest, tmp_path / "runs")
