"""`agentor demo`: kill a run with SIGKILL, resume it elsewhere, fork it, and check every promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from agentor.cli.demo_server import DemoServer
from agentor.engine import strictjson
from agentor.engine.events import (
    Event,
    Fork,
    Generation,
    Retry,
    RunEnd,
    RunStart,
    ToolCall,
    ToolResult,
)
from agentor.engine.store import FileStore

RUN, FORK = "order-a-1042", "order-a-1042-short"
NEW_INSTRUCTION = "Say it in one short sentence."


@dataclass(slots=True)
class Demo:
    """Where everything is, and what the processes did."""

    folder: Path
    model: str
    base_url: str | None
    console: Console
    began: float = field(default_factory=time.monotonic)
    checks: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.txt"

    def start(self, act: str, *more: str) -> subprocess.Popen[str]:
        """One of the demo's processes."""
        command = [sys.executable, "-m", "agentor.cli.demo_agent", act, "--run-id", RUN]
        command += ["--store", str(self.runs), "--ledger", str(self.ledger), "--model", self.model]
        command += ["--base-url", self.base_url] if self.base_url else []
        return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True)

    def watch(self, process: subprocess.Popen[str]) -> Iterator[Event]:
        """Each event as the process saves it, printed as a line of the timeline."""
        assert process.stdout is not None
        for line in process.stdout:
            event = Event.from_dict(strictjson.loads(line))
            at = f"{time.monotonic() - self.began:5.1f} s"
            line = f"  [dim]{at}  pid {process.pid}[/dim]  {_summary(event)}"
            self.console.print(line, no_wrap=True, overflow="ellipsis")
            yield event

    def complete(self, promise: str, act: str, *more: str) -> list[Event]:
        """One of the processes, watched to its end, which must be that of a completed run."""
        process = self.start(act, *more)
        events = list(self.watch(process))
        process.wait()
        end = events[-1] if events else None
        self.check(promise, isinstance(end, RunEnd) and end.status == "completed")
        return events

    def check(self, promise: str, held: bool) -> None:
        self.checks.append((promise, held))


def run_demo(model: str | None) -> bool:
    """Run the demo and print it; True if every promise held.

    Args:
        model: A LiteLLM model string to run it live; None for the scripted model on loopback.
    """
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="agentor-demo-"))
    server = None if model else DemoServer()
    with server or nullcontext():
        base_url = None if server is None else server.base_url
        demo = Demo(folder, model or "openai/demo-model", base_url, console)
        _kill(demo)
        asked = server.requests if server else 0
        if server is not None:
            server.release.set()
        _resume(demo)
        if server is not None:
            paid = server.requests - asked
            demo.check("the resume paid for the one model call without an answer", paid == 1)
        _fork(demo)
    _report(demo)
    return all(held for _, held in demo.checks)


def _kill(demo: Demo) -> None:
    demo.console.print("\n[bold]1. A run, killed[/bold] with SIGKILL once the charge's result is on disk")
    process = demo.start("run")
    charged = False
    for event in demo.watch(process):
        if isinstance(event, ToolResult) and event.name == "charge" and event.error is None:
            charged = True
            os.kill(process.pid, signal.SIGKILL)
    process.wait()
    demo.console.print(f"  [red]killed[/red]: exit status {process.returncode}")
    demo.check("the first process died by SIGKILL after the charge", charged and process.returncode == -9)


def _resume(demo: Demo) -> None:
    demo.console.print("\n[bold]2. Resumed[/bold] in a new process")
    events = demo.complete("the resumed run completed", "resume")
    again = [e for e in events if isinstance(e, ToolCall) and e.name == "charge"]
    demo.check("the recorded charge did not run again", not again)


def _fork(demo: Demo) -> None:
    demo.console.print(f"\n[bold]3. Forked[/bold] with a new instruction: {NEW_INSTRUCTION}")
    log = FileStore(demo.runs).path(RUN)
    before = log.read_bytes()
    demo.complete("the fork completed", "fork", "--fork-id", FORK, "--input", NEW_INSTRUCTION)
    demo.check("the parent's log did not change by a byte", log.read_bytes() == before)


def _report(demo: Demo) -> None:
    lines = demo.ledger.read_text().splitlines() if demo.ledger.exists() else []
    demo.check("the ledger has exactly one line", len(lines) == 1)
    console = demo.console
    console.print("\n[bold]Ledger[/bold]")
    for line in lines:
        console.print(f"  {escape(line)}")
    console.print("\n[bold]Runs[/bold]")
    store = FileStore(demo.runs)
    tree = Tree(_title(store, RUN))
    if FORK in store.list_runs():
        tree.add(_title(store, FORK))
    console.print(tree)
    table = Table(title="Promises", title_justify="left", show_header=False, box=None)
    for promise, held in demo.checks:
        table.add_row("[green]held[/green]" if held else "[red]BROKEN[/red]", promise)
    console.print()
    console.print(table)
    console.print(f"\nThe logs are in {demo.runs}", soft_wrap=True)
    console.print(f"Look at one: agentor export {RUN} --store {demo.runs}", soft_wrap=True)


def _title(store: FileStore, run_id: str) -> str:
    events = store.load(run_id)
    end = next((e for e in reversed(events) if isinstance(e, RunEnd)), None)
    fork = next((e for e in events if isinstance(e, Fork)), None)
    origin = f", forked from {fork.forked_from} at {fork.parent_seq}" if fork else ""
    status = end.status if end else "unfinished"
    title = f"{run_id}  [dim]{status}, {len(events)} events{origin}[/dim]"
    return f"{title}\n{escape(end.text)}" if end and end.text else title


def _summary(event: Event) -> str:
    if isinstance(event, RunStart):
        return f"run_start    segment under epoch {event.epoch}"
    if isinstance(event, Generation):
        calls = ", ".join(c["function"]["name"] for c in event.calls or [])
        said = f"asks for {calls}" if calls else event.text or event.error or ""
        return f"generation   turn {event.turn}: {escape(said)}"
    if isinstance(event, ToolCall):
        return f"tool_call    {escape(event.name)} starts"
    if isinstance(event, ToolResult):
        return f"tool_result  {escape(event.name)}: {escape(event.content)}"
    if isinstance(event, Retry):
        return f"retry        {escape(event.error or '')}"
    if isinstance(event, RunEnd):
        return f"run_end      {event.status}"
    return event.type
