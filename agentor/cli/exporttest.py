"""`agentor export-test`: a stored run becomes a test of the project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from agentor.cli.stores import DEFAULT, Place, open_store
from agentor.engine.threads import background


def export_test(
    run: Annotated[str, typer.Argument(help="The id of a run in the store, or a log's path (*.jsonl).")],
    agent: Annotated[str, typer.Option(help="The agent that the test replays it with, as module:name.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of tests.")] = Path("tests"),
    store: Place = DEFAULT,
    rules: Annotated[
        Path | None,
        typer.Option(
            help="What else to take out: a file with a regular expression on each line (# comments)."
        ),
    ] = None,
    cassette: Annotated[
        Path | None, typer.Option(help="The recorded traffic of this run, to go along.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the test; the run's id if not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write a run, without credentials, and a pytest file that replays it: `pytest` then runs it in CI."""
    from agentor.engine.redact import Redactor
    from agentor.replay.exporting import export_test as write
    from agentor.replay.source import SUFFIX, events_of

    opened = None if run.endswith(SUFFIX) else open_store(store)
    run_id, events = background.run(events_of(run, opened), method="export_test")
    try:
        redactor = Redactor(content=True, patterns=[] if rules is None else _patterns(rules))
        files = write(
            run_id,
            events,
            output,
            agent=agent,
            redactor=redactor,
            cassette=cassette,
            name=name,
            overwrite=force,
        )
    except FileExistsError as error:
        raise typer.BadParameter(f"{error}; --force writes over it, --name gives another name") from None
    except (OSError, ValueError, re.error) as error:
        raise typer.BadParameter(str(error)) from None
    for file in files:
        typer.echo(f"wrote {file}")
    typer.echo(f"Read the run before you commit it, then: pytest {files[0]}")


def _patterns(rules: Path) -> list[str]:
    lines = (line.strip() for line in rules.read_text("utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]
