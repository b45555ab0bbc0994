"""Many processes resume one run at the same moment; prints what each of them got, as JSON.

python race.py ROUNDS RESUMERS STORE
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from agentor import Agentor, FileStore, SQLiteStore, function_tool
from agentor.errors import RunBusy
from agentor.testing import ScriptedModel, call


def store(folder: Path) -> FileStore | SQLiteStore:
    return SQLiteStore(folder / "runs.db") if sys.argv[3] == "sqlite" else FileStore(folder / "runs")


def agent(folder: Path) -> Agentor:
    @function_tool(on_crash="retry")
    def work(n: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{n}\n")
        return f"done {n}"

    script = [call("work", {"n": n}) for n in range(4)]
    model = ScriptedModel([*script, "finished"])
    return Agentor("a", model=model, tools=[work], store=store(folder))


def round_of(resumers: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(agent(folder).arun("go", run_id="r", max_turns=2))
        gate_read, gate_write = os.pipe()
        reading, writing = os.pipe()
        for _ in range(resumers):
            if os.fork() == 0:
                os.close(gate_write)
                os.read(gate_read, 1)  # all wait until the gate closes
                os.write(writing, f"{outcome(folder)}\n".encode())
                os._exit(0)
        os.close(writing)
        os.close(gate_read)
        os.close(gate_write)
        outcomes = Counter(iter_lines(reading))
        for _ in range(resumers):
            os.wait()
        ledger = Counter((folder / "ledger").read_text().split())
        kinds = [event.type for event in store(folder).load("r")]
        return {"outcomes": outcomes, "ledger": ledger, "ends": kinds.count("run_end"), "last": kinds[-1]}


def outcome(folder: Path) -> str:
    try:
        return str(asyncio.run(agent(folder).aresume("r", max_turns=20)).final_output)
    except RunBusy:
        return "busy"


def iter_lines(fd: int) -> list[str]:
    data = b""
    while part := os.read(fd, 4096):
        data += part
    os.close(fd)
    return data.decode().split()


if __name__ == "__main__":
    rounds, count = int(sys.argv[1]), int(sys.argv[2])
    print(json.dumps([round_of(count) for _ in range(rounds)]))
