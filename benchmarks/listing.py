"""A list of 10,000 runs with their status, against a bare loop that reads head and tail of each file.

    python benchmarks/listing.py [RUNS]

Both in one process and one run, alternating; prints the medians and their ratio.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agentor import FileStore
from agentor.engine.events import Event
from agentor.testing.samples import whole_run

WINDOW = 4096


def make(store: FileStore, runs: int) -> None:
    """Runs of two turns with a tool result of 1 KB; every tenth is unfinished."""
    events = [
        Event.from_dict({**e.to_dict(), "result": "r" * 1000}) if e.type == "tool_result" else e
        for e in whole_run()
    ]
    for number in range(runs):
        store.append_many(f"run-{number:05}", events[: -1 if number % 10 == 0 else None])


def bare(folder: Path) -> int:
    """Head and tail of each file, read and thrown away."""
    size = 0
    for name in os.listdir(folder):
        if not name.endswith(".jsonl"):
            continue
        with open(folder / name, "rb") as log:
            head = log.read(WINDOW)
            log.seek(-min(WINDOW, os.fstat(log.fileno()).st_size), os.SEEK_END)
            size += len(head) + len(log.read(WINDOW))
    return size


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "runs"
        store = FileStore(folder, sync="process")
        make(store, runs)
        assert len(store.describe()) == runs
        pairs = [(timed(lambda: bare(folder)), timed(store.describe)) for _ in range(7)]
    loop, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{'runs':>8} {'bare loop, ms':>14} {'describe(), ms':>15} {'ratio':>7}")
    print(f"{runs:>8} {1000 * loop:>14.0f} {1000 * ours:>15.0f} {ours / loop:>7.2f}")


if __name__ == "__main__":
    main()
