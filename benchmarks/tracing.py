"""What tracing costs a run: CPU on the run's own thread, per event, and its time beside an untraced run.

    python benchmarks/tracing.py

Both agents answer the same script of 300 turns with one tool each, in turn, over a memory store; spans
go to a target that throws them away, after they were made. Prints one line per figure.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

from agentor_exporters import OtelTracer
from agentor_exporters.attributes import Record

from agentor import Agentor, MemoryStore
from agentor.testing import ScriptedModel, call

TURNS, ROUNDS = 300, 15


class Nowhere:
    """Takes every span and keeps none."""

    def export(self, records: Sequence[Record]) -> bool:
        for record in records:
            record.all_attributes()
        return True

    def close(self) -> None:
        pass


def look(city: str) -> str:
    """Look at a city."""
    return f"It is sunny in {city}."


async def measured(tracer: Any) -> tuple[float, float, int]:
    """Seconds of CPU on this thread, seconds by the clock, and events of a run."""
    steps = [call("look", {"city": f"city {turn}"}) for turn in range(TURNS)]
    agent = Agentor(
        "a", model=ScriptedModel([*steps, "done"]), tools=[look], store=MemoryStore(), max_turns=TURNS + 1
    )
    cpu, wall = time.thread_time(), time.perf_counter()
    result = await agent.arun("go", tracing=tracer or False)
    took = time.thread_time() - cpu, time.perf_counter() - wall
    return *took, len(result.events)


def main() -> None:
    for content in ("none", "delta"):
        tracer = OtelTracer(Nowhere(), content=content)  # type: ignore[arg-type]  # one of the two
        plain, traced = [], []
        for _ in range(ROUNDS):  # in turn, so that both see the same machine
            plain.append(asyncio.run(measured(None)))
            traced.append(asyncio.run(measured(tracer)))
            tracer.flush(30)
        events = plain[0][2]
        cpu_us = [1e6 * (t[0] - p[0]) / events for p, t in zip(plain, traced, strict=True)]
        wall = [t[1] / p[1] for p, t in zip(plain, traced, strict=True)]
        print(
            f"content={content:5}  on the run's thread {statistics.median(cpu_us):5.1f} us per event "
            f"(limit 20), by the clock {statistics.median(wall):.2f} x an untraced run of {events} events"
        )
        tracer.close()


if __name__ == "__main__":
    main()
