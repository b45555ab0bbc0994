"""Kills a run at every file operation, resumes it in another process, and checks what must hold.

    python driver.py TURNS TOOLS [--every N] [--pairs N]

Prints one JSON object with the figures. Each crash is a real SIGKILL of a real (forked) process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from faults import CountingDisk, DeadlyDisk

from agentor import Agentor, FileStore, function_tool
from agentor.engine.events import Event, ToolResult
from agentor.engine.store.disk import Disk
from agentor.testing import ScriptedModel, call

RUN = "swept"


def agent_for(folder: Path, turns: int, tools: int, disk: Disk, saved: Callable[[Event], None]) -> Agentor:
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @function_tool(on_crash="retry")
    def step(turn: int, index: int) -> str:
        os.write(ledger, f"{turn}.{index}\n".encode())
        return f"result {turn}.{index}"

    def script(messages: Sequence[dict[str, Any]], _: object) -> Any:
        turn = sum(m["role"] == "assistant" for m in messages)
        if turn == turns:
            return "all done: " + " ".join(m["content"] for m in messages if m["role"] == "tool")
        return [call("step", {"turn": turn, "index": index}) for index in range(tools)]

    store = FileStore(folder / "runs", disk=disk)
    model = ScriptedModel(script)
    return Agentor("swept", model=model, tools=[step], store=store, tracer=saved, max_turns=999)


def in_child(work: Callable[[int], None]) -> tuple[int, list[dict[str, Any]]]:
    """Run `work` in a forked process; its exit status and the lines it wrote to the pipe."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            work(writing)
        except BaseException as error:
            os.write(writing, json.dumps({"error": repr(error)}).encode() + b"\n")
            os._exit(1)
        os._exit(0)
    os.close(writing)
    data = b""
    while part := os.read(reading, 65536):
        data += part
    os.close(reading)
    return os.waitpid(pid, 0)[1], [json.loads(line) for line in data.splitlines()]


def segment(folder: Path, turns: int, tools: int, disk: Disk, act: str) -> tuple[int, list[dict[str, Any]]]:
    """One process: run or resume; each saved event goes to the pipe once it is acknowledged."""

    def work(pipe: int) -> None:
        def saved(event: Event) -> None:
            key = f"{event.turn - 1}.{event.index}" if isinstance(event, ToolResult) else None
            about = {"seq": event.seq, "type": event.type, "result_of": key, "json": event.to_json()}
            os.write(pipe, json.dumps(about).encode() + b"\n")

        agent = agent_for(folder, turns, tools, disk, saved)
        call = agent.arun("go", run_id=RUN) if act == "run" else agent.aresume(RUN)
        result = asyncio.run(call)
        operations = disk.operations if isinstance(disk, CountingDisk) else 0
        final = {"final": result.final_output, "status": result.status, "operations": operations}
        os.write(pipe, json.dumps(final).encode() + b"\n")

    return in_child(work)


def ledger_of(folder: Path) -> Counter[str]:
    path = folder / "ledger"
    return Counter(path.read_text().split()) if path.exists() else Counter()


class Sweep:
    """The figures of all kill points."""

    def __init__(self, turns: int, tools: int) -> None:
        self.turns, self.tools = turns, tools
        self.figures: Counter[str] = Counter()
        self.problems: list[str] = []
        with Folder() as folder:
            disk = CountingDisk()
            _, lines = segment(folder, turns, tools, disk, "run")
            self.answer, self.operations = lines[-1]["final"], lines[-1]["operations"]

    def point(self, at: int, moment: str, second: tuple[int, str] | None = None) -> None:
        """Kill at one operation (and again in the resume), then resume to the end."""
        with Folder() as folder:
            status, lines = segment(folder, self.turns, self.tools, DeadlyDisk(at, moment), "run")
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                return
            name = f"{at} {moment} {second or ''}"
            self.figures["kills"] += 1
            acknowledged = [line for line in lines if "seq" in line]
            if second is not None and self._exists(folder):
                _, more = segment(folder, self.turns, self.tools, DeadlyDisk(*second), "resume")
                acknowledged += [line for line in more if "seq" in line]
            self._judge(name, folder, acknowledged)

    def _exists(self, folder: Path) -> bool:
        return RUN in FileStore(folder / "runs").list_runs()

    def _judge(self, name: str, folder: Path, acknowledged: list[dict[str, Any]]) -> None:
        before = ledger_of(folder)
        recorded = {line["result_of"] for line in acknowledged if line["result_of"]}
        if not self._exists(folder):
            self.figures["never began"] += 1
            if acknowledged:
                self._problem(name, "lost", "an acknowledged run is gone")
            return
        stored = [event.to_json() for event in FileStore(folder / "runs").load(RUN)]
        for line in acknowledged:
            if line["seq"] >= len(stored) or stored[line["seq"]] != line["json"]:
                self._problem(name, "lost", f"event {line['seq']} was acknowledged and is gone")
        _, lines = segment(folder, self.turns, self.tools, Disk(), "resume")
        end = lines[-1] if lines else {}
        if end.get("status") != "completed" or end.get("final") != self.answer:
            self._problem(name, "not resumed", json.dumps(end)[:300])
            return
        self.figures["resumed"] += 1
        after = ledger_of(folder)
        for key in recorded:
            if after[key] != before[key]:
                self._problem(name, "recorded call repeated", key)
        repeats = sum(count - 1 for count in after.values())
        self.figures["repeats of unrecorded calls"] += repeats
        if repeats > self.tools * (2 if "(" in name else 1):
            self._problem(name, "more repeats than calls in flight", str(repeats))

    def _problem(self, name: str, kind: str, detail: str) -> None:
        self.figures[kind] += 1
        self.problems.append(f"at operation {name}: {kind}: {detail}")


class Folder:
    """A folder of its own for one kill point."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="agentor-crash-"))
        return self._path

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("turns", type=int)
    parser.add_argument("tools", type=int)
    parser.add_argument("--pairs", type=int, default=0, help="double crashes instead, this many")
    parser.add_argument("--shard", type=int, nargs=2, default=(0, 1))
    options = parser.parse_args()
    sweep = Sweep(options.turns, options.tools)
    moments = ("before", "half", "after")
    points = [(at, moment) for at in range(1, sweep.operations + 1) for moment in moments]
    if options.pairs:
        chance = random.Random(1)
        for _ in range(options.pairs):
            sweep.point(*chance.choice(points), second=chance.choice(points))
    else:
        for at, moment in points[options.shard[0] :: options.shard[1]]:
            sweep.point(at, moment)
    print(json.dumps({"operations": sweep.operations, **sweep.figures, "problems": sweep.problems[:20]}))


if __name__ == "__main__":
    main()
