"""Many processes resume one run at the same moment; prints what each of them got, as JSON.

    python race.py ROUNDS RESUMERS PLACE

`{round}` in PLACE is replaced, so that each round may have a place of its own, which all of them open
at once. Each resumer is one process for all rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from places import opened

from agentor import Agentor, function_tool
from agentor.errors import RunBusy
from agentor.testing import ScriptedModel, call
from agentor.testing.settled import Settled


def agent(place: str, folder: Path, run_id: str) -> Agentor:
    @function_tool(on_crash="retry")
    def work(n: int) -> str:
        with (folder / run_id).open("a") as ledger:
            ledger.write(f"{n}:{os.getpid()}\n")
        return f"done {n}"

    script = [call("work", {"n": n}) for n in range(4)]
    store = opened(place.replace("{round}", run_id))
    return Agentor("a", model=ScriptedModel([*script, "finished"]), tools=[work], store=store)


def resumer(place: str, folder: Path) -> None:
    """Resume each run that stdin names, and say what came of it."""
    for line in sys.stdin:
        run_id = line.strip()
        time.sleep(random.uniform(0, 0.005))  # the offset at which a resumer comes is part of the race
        try:
            result = agent(place, folder, run_id).resume(run_id, max_turns=20)
            print(result.final_output, flush=True)
        except RunBusy:
            print("busy", flush=True)
        except Exception as error:
            print(repr(error), flush=True)


def round_of(place: str, folder: Path, run_id: str, resumers: list[subprocess.Popen[str]]) -> dict[str, Any]:
    first = agent(place, folder, run_id)
    asyncio.run(first.arun("go", run_id=run_id, max_turns=2))
    for process in resumers:
        assert process.stdin is not None
        process.stdin.write(f"{run_id}\n")
        process.stdin.flush()
    outcomes = Counter(
        process.stdout.readline().strip() for process in resumers if process.stdout is not None
    )
    ran = [line.split(":") for line in (folder / run_id).read_text().split()]
    kinds = [event.type for event in Settled(first.store).load(run_id)]
    return {
        "outcomes": outcomes,
        "ledger": Counter(n for n, _ in ran),
        "workers": len({pid for _, pid in ran} - {str(os.getpid())}),
        "ends": kinds.count("run_end"),
        "last": kinds[-1],
    }


def main(rounds: int, count: int, place: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, __file__, "resumer", place, name]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        resumers = [subprocess.Popen(command, **pipes) for _ in range(count)]
        try:
            print(json.dumps([round_of(place, Path(name), f"r{n}", resumers) for n in range(rounds)]))
        finally:
            for process in resumers:
                process.communicate()


if __name__ == "__main__":
    if sys.argv[1] == "resumer":
        resumer(sys.argv[2], Path(sys.argv[3]))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
