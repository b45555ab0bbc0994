"""Workers on one store, one of them killed every 0.2 to 2 seconds: `python soak.py PLACE SECONDS`.

Each worker is given one run after the other, now and then the same one as another worker; new runs are
begun until the time is over, and then all are brought to their end. Prints the figures as JSON.
"""

from __future__ import annotations

import json
import os
import random
import selectors
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
from agentor.engine.events import ToolCall, ToolResult
from agentor.errors import Fenced, RunBusy, RunExists, RunNotFound
from agentor.testing import ScriptedModel, call
from agentor.testing.settled import Settled

WORKERS, TURNS, TOOLS = 4, 4, 2
LEASE_S = 3.0


def agent(place: str, folder: Path) -> Agentor:
    @function_tool(on_crash="retry")
    def step(run: str, key: str) -> str:
        with (folder / run).open("a") as ledger:
            ledger.write(f"{key}\n")
        time.sleep(random.uniform(0, 0.02))  # work that a kill can fall into
        return f"did {key}"

    def script(messages: Any, _: object) -> Any:
        turn = sum(1 for m in messages if m["role"] == "assistant")
        run = messages[0]["content"]
        if turn == TURNS:
            return "done"
        return [call("step", {"run": run, "key": f"{turn}.{n}"}) for n in range(TOOLS)]

    model = ScriptedModel(script)
    return Agentor(
        "soak", model=model, tools=[step], store=opened(place, lease_s=LEASE_S), durability="strict"
    )


def worker(place: str, folder: Path) -> None:
    mine = agent(place, folder)
    for line in sys.stdin:
        run_id = line.strip()
        try:
            try:
                status = mine.resume(run_id).status
            except RunNotFound:
                status = mine.run(run_id, run_id=run_id).status
        except (RunBusy, RunExists, Fenced) as error:
            status = f"busy:{type(error).__name__}"
        except Exception as error:
            status = f"error:{error!r}".replace("\n", " ")
        print(f"{run_id} {status}", flush=True)


class Soak:
    """The supervisor: what runs there are, who works on which, and what came of it."""

    def __init__(self, place: str, folder: Path) -> None:
        self.command = [sys.executable, __file__, "worker", place, str(folder)]
        self.workers: dict[Any, tuple[subprocess.Popen[str], str]] = {}  # by its stdout
        self.selector = selectors.DefaultSelector()
        self.open_runs: list[str] = []
        self.count = 0
        self.figures: Counter[str] = Counter()
        self.errors: list[str] = []

    def employ(self, may_begin: bool) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(self.command, **pipes)
        self.selector.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]  # it is a pipe
        self.workers[process.stdout] = (process, "")
        self.assign(process.stdout, may_begin)

    def assign(self, out: Any, may_begin: bool) -> None:
        process, _ = self.workers[out]
        if may_begin and (len(self.open_runs) < 2 * WORKERS or random.random() < 0.2):
            self.count += 1
            self.open_runs.append(f"run-{self.count}")
        if not self.open_runs:
            return
        run_id = random.choice(self.open_runs)
        self.workers[out] = (process, run_id)
        assert process.stdin is not None
        process.stdin.write(f"{run_id}\n")
        process.stdin.flush()

    def hear(self, timeout_s: float, may_begin: bool) -> None:
        for key, _ in self.selector.select(timeout_s):
            line: str = key.fileobj.readline()  # type: ignore[union-attr]  # it is a text pipe
            if not line:
                continue
            run_id, _, status = line.strip().partition(" ")
            self.figures[status.split(":")[0]] += 1
            if status.startswith("error"):
                self.errors.append(f"{run_id}: {status}")
            elif not status.startswith("busy") and run_id in self.open_runs:
                self.open_runs.remove(run_id)
            self.assign(key.fileobj, may_begin)

    def kill_one(self) -> None:
        out = random.choice(list(self.workers))
        process, _ = self.workers.pop(out)
        self.selector.unregister(out)
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self.figures["kills"] += 1

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while len(self.workers) < WORKERS:
            self.employ(True)
        next_kill = time.monotonic() + 2.0
        while (now := time.monotonic()) < end:
            if now >= next_kill:
                self.kill_one()
                self.employ(True)
                next_kill = now + random.uniform(0.2, 2.0)
            self.hear(min(next_kill, end) - now, True)
        late = time.monotonic() + 300.0
        while self.open_runs:
            assert time.monotonic() < late, f"unfinished: {self.open_runs}"
            self.hear(1.0, False)
        while self.workers:
            self.kill_one()


def check(place: str, folder: Path, count: int) -> list[str]:
    """What must hold of every run, as a list of breaches."""
    store, found = Settled(opened(place)), []
    for number in range(1, count + 1):
        run_id = f"run-{number}"
        events = store.load(run_id)
        verified = store.verify(run_id)
        if not verified.ok or events[-1].type != "run_end" or events[-1].status != "completed":
            found.append(f"{run_id}: {verified}, ends with {events[-1]}")
        answered: set[str] = set()
        starts: Counter[str] = Counter()
        for event in events:
            if isinstance(event, ToolCall):
                if event.call_id in answered:
                    found.append(f"{run_id}: {event.call_id} began again after its result was saved")
                starts[f"{event.turn - 1}.{event.index}"] += 1
            elif isinstance(event, ToolResult):
                answered.add(event.call_id)
        if len(answered) != TURNS * TOOLS:
            found.append(f"{run_id}: {len(answered)} results")
        ran = Counter((folder / run_id).read_text().split())
        found += [
            f"{run_id}: {key} ran {n} times, began {starts[key]}" for key, n in ran.items() if n > starts[key]
        ]
    return found


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2], Path(sys.argv[3]))
        os._exit(0)
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(sys.argv[1], Path(name))
        soak.run(float(sys.argv[2]))
        breaches = check(sys.argv[1], Path(name), soak.count)
    print(json.dumps({"runs": soak.count, **soak.figures, "breaches": breaches, "errors": soak.errors}))
