"""What a replay costs for each recorded turn, and how that grows with the length of the run.

    python benchmarks/replay.py

Runs of 100 and 1,000 turns with one tool each are recorded, and replayed by the agent that wrote them, with
the time for reading the log from a file apart. Prints one line per figure; the limit is 10 ms a turn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from agentor import Agentor, FileStore
from agentor.replay import replay
from agentor.replay.source import events_in
from agentor.testing import ScriptedModel, call

ROUNDS = 7


def look(city: str) -> str:
    """Look at a city."""
    return f"It is sunny in {city}. " * 40


def main() -> None:
    per_turn = {}
    with tempfile.TemporaryDirectory() as folder:
        for turns in (100, 1000):
            script = [call("look", {"city": f"city {n}"}) for n in range(turns)] + ["done"]
            store = FileStore(folder, sync="process")
            agent = Agentor("a", "Be brief.", ScriptedModel(script), [look], store=store, max_turns=turns + 1)
            agent.run("go", run_id=f"r{turns}")
            path = Path(folder, f"r{turns}.jsonl")
            reading, whole = [], []
            for _ in range(ROUNDS):
                started = time.perf_counter()
                events_in(path)
                read = time.perf_counter()
                assert replay(agent, path).ok
                reading.append(read - started)
                whole.append(time.perf_counter() - read)
            per_turn[turns] = statistics.median(whole) / turns
            print(
                f"{turns} turns: {per_turn[turns] * 1000:.3f} ms a turn, "
                f"and {statistics.median(reading) / turns * 1000:.3f} ms for reading the log (limit: 10 ms)"
            )
    print(f"growth: a turn of 1,000 costs {per_turn[1000] / per_turn[100]:.2f} x a turn of 100 (limit: 1.3)")


if __name__ == "__main__":
    main()
