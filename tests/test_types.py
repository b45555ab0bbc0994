"""What users write type-checks: mypy in strict mode, on code as in the README."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
from agentor import Agentor, FileStore, MemoryStore, ObjectStore, PostgresStore, SQLiteStore
from agentor.engine.events import Event


class Async:
    async def append(self, run_id: str, event: Event) -> None: ...
    async def load(self, run_id: str) -> list[Event]:
        return []
    async def list_runs(self) -> list[str]:
        return []


class Sync:
    def append(self, run_id: str, event: Event) -> None: ...
    def load(self, run_id: str) -> list[Event]:
        return []
    def list_runs(self) -> list[str]:
        return []


file, postgres = FileStore("runs"), PostgresStore("postgresql://")
for store in (file, SQLiteStore("runs.db"), MemoryStore()):
    events: list[Event] = store.load("r")
Agentor("a", store=file), Agentor("a", store=postgres), Agentor("a", store=ObjectStore("s3://bucket"))
Agentor("a", store=Async()), Agentor("a", store=Sync())
file.copy_run("r", postgres)


async def main() -> None:
    print(await postgres.verify("r"), await postgres.prune())
"""


def test_every_store_type_checks_as_an_agents_store(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
