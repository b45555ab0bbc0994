"""Size of a log and cost of a turn, at 10 to 1,000 turns: both must be flat.

    python benchmarks/linear.py

Workload: a turn is one tool call (200 B of arguments, 1 KB result, 300 B text) of a `ScriptedModel`,
every event synced by a `FileStore`. Prints ratios of one run; medians of three where time counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentor import Agentor, FileStore
from agentor.engine import codec
from agentor.engine.events import Event, Generation
from agentor.testing import ScriptedModel, answer, call


def agent(folder: Path, turns: int, result: str, marks: list[float]) -> Agentor:
    def note(text: str) -> str:
        return result

    def script(messages: Sequence[dict[str, Any]], _: object) -> Any:
        if len(messages) >= 2 * turns:
            return "done"
        return answer("t" * 300, call("note", {"text": "a" * 185}))

    def watch(event: Event) -> None:
        if isinstance(event, Generation):
            marks.append(time.process_time())

    model = ScriptedModel(script)
    model.requests = _Nothing()
    store = FileStore(folder)
    return Agentor("bench", model=model, tools=[note], store=store, max_turns=10**9, tracer=watch)


class _Nothing(list[Any]):
    """The script's record of requests would be quadratic; nobody reads it here."""

    def append(self, item: Any) -> None:
        """Keep nothing."""


def run(turns: int, result_bytes: int = 1000) -> dict[str, float]:
    """One run: bytes on disk against the conversation's JSON, and CPU per turn at both ends."""
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "runs"
        bench = agent(folder, turns, "r" * result_bytes, marks)
        result = asyncio.run(bench.arun("go", run_id="bench"))
        size = (folder / "bench.jsonl").stat().st_size
        content = len(json.dumps(result.messages, separators=(",", ":")))
        data = (folder / "bench.jsonl").read_bytes()
        load = min(_timed(lambda: codec.decode("bench", data)) for _ in range(3))
        bare = min(_timed(lambda: _bare(data)) for _ in range(3))
    steps = [b - a for a, b in itertools.pairwise(marks)]
    edge = min(50, len(steps) // 2)
    return {
        "extra_bytes_a_turn": (size - content) / turns,
        "disk_to_json": size / content,
        "cpu_ms_a_turn": 1000 * sum(steps) / len(steps),
        "last_to_first": statistics.mean(steps[-edge:]) / statistics.mean(steps[:edge]),
        "load_to_bare": load / bare,
    }


def _timed(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _bare(data: bytes) -> None:
    import zlib

    crc = 0
    for line in data.splitlines():
        crc = zlib.crc32(line, crc)
        json.loads(line)


def main() -> None:
    """Print the table."""
    print(
        f"{'turns':>6} {'disk / JSON':>12} {'+ bytes/turn':>13} {'CPU ms/turn':>12} "
        f"{'last/first 50':>14} {'load/bare':>10}"
    )
    for turns, size in ((10, 1000), (100, 1000), (1000, 1000), (1000, 8000)):
        runs = [run(turns, size) for _ in range(3)]
        row = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        print(
            f"{turns:>6} {row['disk_to_json']:>12.3f} {row['extra_bytes_a_turn']:>13.0f} "
            f"{row['cpu_ms_a_turn']:>12.2f} {row['last_to_first']:>14.2f} {row['load_to_bare']:>10.2f}"
            + ("   (8 KB results)" if size == 8000 else "")
        )


if __name__ == "__main__":
    main()
