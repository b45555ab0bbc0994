"""Kills a run with people in it at every file operation: approvals, a denial, an edit, a sub-agent,
a compaction and a budget; then other processes finish it, and what must hold is checked.

    python people.py [--shard I N]

Prints one JSON object with the figures. Each crash is a real SIGKILL of a real (forked) process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from driver import in_child
from faults import CountingDisk, DeadlyDisk

from agentor import Agentor, Approve, Budget, Deny, FileStore, ToolContext, function_tool
from agentor.engine.compaction import Compacted
from agentor.engine.events import Child, Context, Event, Generation, ToolCall, ToolResult
from agentor.engine.messages import Usage
from agentor.engine.store.disk import Disk
from agentor.engine.transcript import fold
from agentor.testing import ScriptedModel, answer, call

RUN = "swept"
USAGE = Usage(input_tokens=100, output_tokens=10, total_tokens=110)
SMALL, LARGE = Budget(turns=4), Budget(turns=40)
WORDS: dict[float, Any] = {1: Approve(by="ann"), 2: Deny("no"), 30: Approve(args={"euros": 3}), 7: Approve()}
ALLOWED = {"pay 1", "pay 3", "pay 7", "note 1", "note 2"}
ANSWER = "all done"


def agents(folder: Path, disk: Disk, saved: Callable[[Event], None]) -> Agentor:
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @function_tool(needs_approval=True, on_crash="retry")
    def pay(ctx: ToolContext, euros: int) -> str:
        os.write(ledger, f"pay {euros}\t{ctx.idempotency_key}\n".encode())
        return f"paid {euros}"

    @function_tool(on_crash="retry")
    def note(ctx: ToolContext, n: int) -> str:
        os.write(ledger, f"note {n}\t{ctx.idempotency_key}\n".encode())
        return f"noted {n}"

    def clerk(messages: Sequence[dict[str, Any]], _: object) -> Any:
        paid = any(m["role"] == "tool" for m in messages)
        return (
            answer("it is paid", usage=USAGE)
            if paid
            else answer(None, call("pay", {"euros": 7}), usage=USAGE)
        )

    def boss(messages: Sequence[dict[str, Any]], _: object) -> Any:
        said = " ".join(str(m["content"]) for m in messages if m["role"] == "tool")
        if "noted 2" in said:
            return answer(ANSWER, usage=USAGE)
        if "noted 1" in said:
            return answer(None, call("note", {"n": 2}), usage=USAGE)
        pays = [call("pay", {"euros": euros}) for euros in (1, 2, 30)]
        return answer(None, call("note", {"n": 1}), *pays, call("clerk", {"input": "Pay 7."}), usage=USAGE)

    def shorter(messages: list[dict[str, Any]], _: object) -> Compacted | None:
        if len(messages) < 9:
            return None
        return Compacted(
            messages=[{"role": "user", "content": "summary"}, *messages[-2:]], usage=USAGE, cost=0.0
        )

    below = Agentor("clerk", model=ScriptedModel(clerk), tools=[pay])
    return Agentor(
        "boss",
        model=ScriptedModel(boss),
        tools=[note, pay, below.as_tool()],
        store=FileStore(folder / "runs", disk=disk),
        budget=SMALL,
        compaction=shorter,
        tracer=saved,
    )


def work(folder: Path, disk: Disk, act: str) -> tuple[int, list[dict[str, Any]]]:
    """One process: it begins the run, or decides what is not decided and goes on.

    Each event that was acknowledged goes to the pipe, and at the end what the run came to.
    """

    def body(pipe: int) -> None:
        def saved(event: Event) -> None:
            about = {"run": event.run_id, "seq": event.seq, "json": event.to_json()}
            os.write(pipe, json.dumps(about).encode() + b"\n")

        agent = agents(folder, disk, saved)
        if act == "run":
            result = asyncio.run(agent.arun("go", run_id=RUN))
        else:
            waiting = [p for p in asyncio.run(agent.aunresolved(RUN)) if not p.decided]
            words = {p.call_id: WORDS[(p.args or {})["euros"]] for p in waiting}
            more = LARGE if act == "raise" else None
            result = asyncio.run(agent.aresume(RUN, decisions=words, budget=more))
        operations = disk.operations if isinstance(disk, CountingDisk) else 0
        said = {"status": result.status, "text": result.text, "operations": operations, "error": result.error}
        os.write(pipe, json.dumps({**said, "pending": len(result.pending)}).encode() + b"\n")

    return in_child(body)


def logs(folder: Path) -> dict[str, list[Any]]:
    store = FileStore(folder / "runs")
    return {run_id: store.load(run_id) for run_id in store.list_runs()}


def ledger(folder: Path) -> Counter[str]:
    path = folder / "ledger"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


class Sweep:
    """The figures of all kill points of one of the processes that a run takes."""

    def __init__(self, upto: Sequence[str], act: str) -> None:
        self.upto, self.act = upto, act
        self.figures: Counter[str] = Counter()
        self.problems: list[str] = []
        folder = self._begun()
        _, lines = work(folder, CountingDisk(), act)
        self.operations = lines[-1]["operations"]
        shutil.rmtree(folder)

    def _begun(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="agentor-people-"))
        for act in self.upto:
            work(folder, Disk(), act)
        return folder

    def point(self, at: int, moment: str) -> None:
        folder = self._begun()
        try:
            status, lines = work(folder, DeadlyDisk(at, moment), self.act)
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                return
            self.figures["kills"] += 1
            self._judge(f"{self.act} {at} {moment}", folder, lines)
        finally:
            shutil.rmtree(folder)

    def _judge(self, name: str, folder: Path, acknowledged: list[dict[str, Any]]) -> None:
        stored = {(run, e.seq): e.to_json() for run, log in logs(folder).items() for e in log}
        if lost := [line for line in acknowledged if stored.get((line["run"], line["seq"])) != line["json"]]:
            self._problem(name, "lost", f"{len(lost)} acknowledged events")
        self.figures["acknowledged"] += len(acknowledged)
        if RUN not in logs(folder):
            self.figures["never began"] += 1
            return
        self._count(name, folder)
        recorded = {
            (run_id, e.turn, e.index)
            for run_id, log in logs(folder).items()
            for e in log
            if isinstance(e, ToolResult)
        }
        before = ledger(folder)
        for _ in range(8):
            said = self._went_on(name, folder, "decide")
            if said.get("status") == "budget":
                said = self._went_on(name, folder, "raise")
            if said.get("status") == "completed":
                break
        if (said.get("status"), said.get("text")) != ("completed", ANSWER):
            self._problem(name, "not finished", json.dumps(said))
            return
        self.figures["finished"] += 1
        after = ledger(folder)
        for line, count in after.items():
            what = line.split("\t")[0]
            if what not in ALLOWED:
                self._problem(name, "ran without an approval", what)
            if count > 2:
                self._problem(name, "ran more than once beside the crash", line)
        repeated = {line for line in before if after[line] != before[line]}
        self.figures["repeats of unrecorded calls"] += len(repeated)
        ran_again = {
            (run_id, e.turn, e.index)
            for run_id, log in logs(folder).items()
            for place, e in enumerate(log)
            if isinstance(e, ToolCall)
            and any(isinstance(d, ToolResult) and (d.turn, d.index) == (e.turn, e.index) for d in log[:place])
        }
        if again := recorded & ran_again:
            self._problem(name, "recorded call repeated", str(again))
        kinds = {e.type for log in logs(folder).values() for e in log}
        if missing := {"approval", "approval_request", "context", "child"} - kinds:
            self._problem(name, "not in the log", str(missing))

    def _went_on(self, name: str, folder: Path, act: str) -> dict[str, Any]:
        """What another process, which nobody kills, says of the run."""
        _, lines = work(folder, Disk(), act)
        self._count(name, folder)
        return lines[-1] if lines else {}

    def _count(self, name: str, folder: Path) -> None:
        """The counters are what the log says, counted in another way, at any moment."""
        stored = logs(folder)
        stands = {e.child: e for e in stored[RUN] if isinstance(e, Child)}
        own = [e for e in stored[RUN] if isinstance(e, Generation)]
        made = [e for e in stored[RUN] if isinstance(e, Context)]
        tokens = 100 * (len(own) + len(made)) + sum(c.usage.input_tokens for c in stands.values() if c.usage)
        spent = fold(stored[RUN]).spent
        turns = len(own) + sum(c.turns for c in stands.values())
        if (spent.turns, spent.input_tokens) != (turns, tokens):
            self._problem(name, "counted wrongly", f"{spent} and not {turns} turns, {tokens} tokens")
        for child, said in stands.items():
            real = sum(isinstance(e, Generation) for e in stored[child])
            if said.turns > real:
                self._problem(name, "counted twice below", f"{said.turns} of {real}")

    def _problem(self, name: str, kind: str, detail: str) -> None:
        self.figures[kind] += 1
        self.problems.append(f"at operation {name}: {kind}: {detail}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard", type=int, nargs=2, default=(0, 1))
    options = parser.parse_args()
    figures: Counter[str] = Counter()
    problems: list[str] = []
    for upto, act in (((), "run"), (("run",), "decide"), (("run", "decide"), "raise")):
        sweep = Sweep(upto, act)
        moments = ("before", "half", "after")
        points = [(at, moment) for at in range(1, sweep.operations + 1) for moment in moments]
        for at, moment in points[options.shard[0] :: options.shard[1]]:
            sweep.point(at, moment)
        figures += sweep.figures
        figures[f"operations of {act}"] = sweep.operations
        problems += sweep.problems
    print(json.dumps({**figures, "problems": problems[:20]}))


if __name__ == "__main__":
    main()
