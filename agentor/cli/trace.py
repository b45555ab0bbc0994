"""`agentor trace export`: a run's trace from its log, sent anywhere, also after a crash."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any  # Any: what the exporters give

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from agentor.cli.named import named
from agentor.cli.stores import DEFAULT, Place, open_store
from agentor.engine import strictjson
from agentor.engine.store.access import Access
from agentor.engine.store.base import Store
from agentor.engine.threads import background
from agentor.errors import AgentorError

app = typer.Typer(help="Traces of runs, from their logs.", no_args_is_help=True)
_TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Content(StrEnum):
    """What is sent of what was said."""

    none = "none"
    delta = "delta"
    full = "full"


@app.command()
def export(
    run_id: Annotated[str | None, typer.Argument(help="The run's id; none with --all-incomplete.")] = None,
    to: Annotated[
        str, typer.Option(help='"otlp" (by the OTEL_* variables), "celesto", "json", or another exporter.')
    ] = "otlp",
    store: Place = DEFAULT,
    content: Annotated[
        Content | None, typer.Option(help="Send what was said: each message once (delta), or whole requests.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Send also the spans that were delivered before.")
    ] = False,
    dead: Annotated[
        bool | None,
        typer.Option("--dead/--alive", help="Whether an unfinished run is dead; else its lease tells."),
    ] = None,
    shift_to_now: Annotated[
        bool, typer.Option("--shift-to-now", help="Move the times, for backends that refuse late spans.")
    ] = False,
    all_incomplete: Annotated[
        bool,
        typer.Option("--all-incomplete", help="Every run that died, or whose spans were not all delivered."),
    ] = False,
    older_than: Annotated[
        str, typer.Option(help="With --all-incomplete: without news for so long (30s, 10m, 6h, 2d).")
    ] = "10m",
    tracer: Annotated[
        str | None, typer.Option(help="A tracer of yours, module:name, with its content and redaction.")
    ] = None,
    cursors: Annotated[
        Path | None,
        typer.Option(help="Folder that remembers what was sent, for stores without one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as JSON lines.")] = False,
) -> None:
    """Send the trace of a run from its log, also if its process was killed. Doing it twice is harmless."""
    from agentor_exporters.after import export_run

    if (run_id is None) is not all_incomplete:
        raise typer.BadParameter("name a run, or give --all-incomplete")
    opened = open_store(store)
    runs = [run_id] if run_id is not None else _quiet_since(opened, _age(older_than))
    place = to if tracer is None else named(tracer)
    options: dict[str, Any] = {
        "content": None if content is None else content.value,
        "everything": everything,
        "dead": dead,
        "sampled_only": all_incomplete,
        "shift_to_now": shift_to_now,
        "cursors": cursors,
    }
    failed = sent = 0
    for each in runs:
        try:
            with _Bar(each, quiet=as_json or to == "json") as bar:
                outcome = export_run(opened, each, place, progress=bar.show, **options)
        except AgentorError as error:
            if run_id is not None:
                raise
            failed += 1
            typer.echo(f"agentor: {error}", err=True)
            continue
        sent += outcome.sent
        failed += bool(outcome.refused)
        if run_id is not None or outcome.sent:
            _say(outcome, as_json, quiet=to == "json")
    if run_id is None and not sent and not failed:
        typer.echo("no run is incomplete", err=True)
    if failed:
        raise typer.Exit(1)


def _say(outcome: Any, as_json: bool, *, quiet: bool) -> None:
    if as_json:
        typer.echo(strictjson.dumps(asdict(outcome)), err=quiet)
        return
    if quiet:
        return
    from agentor_exporters.after import LATE_S

    console = Console(highlight=False, stderr=False)
    before = f", {outcome.skipped} were there" if outcome.skipped else ""
    spans = "1 span" if outcome.sent == 1 else f"{outcome.sent} spans"
    console.print(f"[green]✓[/green] {outcome.run_id}: {spans} to {outcome.address}{before}")
    for trace_id in outcome.trace_ids:
        console.print(f"  trace {trace_id}")
    if outcome.refused:
        console.print(
            f"  [red]{len(outcome.refused)} refused[/red]: it takes others, but not {_few(outcome.refused)}"
        )
    if outcome.unfinished:
        console.print("  [yellow]a worker has the run[/yellow]: its last segment's span comes when it ends")
    if outcome.sent and outcome.late_s > LATE_S:
        hours = outcome.late_s / 3600
        console.print(
            f"  [yellow]it ended {hours:.0f} h ago[/yellow]: some backends refuse spans that old and say "
            "nothing; --shift-to-now moves the times"
        )


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _quiet_since(store: Store, age_s: float) -> list[str]:
    """The runs without news for so long; where nothing notes what was sent, only those without an end."""
    from agentor_exporters.cursor import beside

    infos = background.run(Access(store).describe(), method="describe")
    until = time.time() - age_s
    return [
        info.run_id
        for info in infos
        if (info.updated_at or 0.0) <= until
        and (info.status == "running" or beside(store, info.run_id) is not None)
        and info.status not in ("corrupt", "unreadable")
    ]


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time; write 30s, 10m, 6h or 2d")
    return float(found[1]) * _TIMES[found[2]]


class _Bar:
    """Progress of a long export, on a terminal only."""

    def __init__(self, run_id: str, *, quiet: bool) -> None:
        console = Console(stderr=True)
        hidden = quiet or not console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self._task = self._progress.add_task(run_id, total=None)

    def show(self, sent: int, total: int) -> None:
        self._progress.update(self._task, completed=sent, total=total)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
