"""The `agentor` command: parse, call the public API, print."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import agentor
from agentor.cli import steer
from agentor.cli.agents import BUSY, FAILED, NOT_FOUND
from agentor.cli.demo import run_demo
from agentor.cli.export import export_lines
from agentor.cli.exporttest import export_test
from agentor.cli.replay import replay
from agentor.cli.text import visible
from agentor.cli.trace import app as trace_app
from agentor.engine.store import FileStore
from agentor.errors import AgentorError, RunBusy, RunNotFound

_DEBUG = "AGENTOR_DEBUG"  # set: errors come with their tracebacks

app = typer.Typer(
    help="Agent runs that survive anything.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.add_typer(trace_app, name="trace")
for command in (steer.run, steer.resume, steer.fork, steer.cancel, steer.pending, steer.approve, steer.deny):
    app.command()(command)
app.command("continue")(steer.continue_)
app.command()(steer.decide)
app.command()(replay)
app.command()(export_test)
Folder = Annotated[
    Path, typer.Option("--store", envvar="AGENTOR_STORE", help="Folder with the logs of runs.")
]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Agent runs that survive anything."""
    if debug:
        os.environ[_DEBUG] = "1"


@app.command()
def demo(
    model: Annotated[
        str | None, typer.Option(help="A LiteLLM model string, with its key in the environment.")
    ] = None,
) -> None:
    """Kill a run, resume it in a new process, fork it: no key and no network needed."""
    raise typer.Exit(0 if run_demo(model) else FAILED)


@app.command()
def export(
    run_id: Annotated[str, typer.Argument(help="The run's id.")],
    store: Folder = Path("runs"),
    full: Annotated[
        bool, typer.Option("--full", help="Whole requests on each generation, as agentor 0.1 wrote them.")
    ] = False,
) -> None:
    """Print a run's events as JSON lines, oldest first."""
    if not store.is_dir():
        raise RunNotFound(run_id, str(store))
    for line in export_lines(FileStore(store), run_id, full=full):
        typer.echo(line)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(agentor.__version__)


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)  # as a shell counts it; what runs is cancelled on the way out


def main() -> None:
    """Run the command; an error is a message and an exit code, and a traceback only with `--debug`."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _terminated)
    try:
        app()
    except Exception as error:  # the edge: a person reads it
        if os.environ.get(_DEBUG):
            raise
        kind = "" if isinstance(error, AgentorError | ValueError) else f"{type(error).__name__}: "
        for line in (f"agentor: {kind}{error}", *getattr(error, "__notes__", ())):
            typer.echo("\n".join(map(visible, line.splitlines())), err=True)
        code = NOT_FOUND if isinstance(error, RunNotFound) else BUSY if isinstance(error, RunBusy) else FAILED
        sys.exit(code)
