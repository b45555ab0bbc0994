"""`agentor replay`: today's agent against recorded runs, for the shell and for CI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from xml.etree import ElementTree

import typer

from agentor.cli.named import named
from agentor.cli.stores import DEFAULT, Place, open_store
from agentor.cli.text import visible
from agentor.engine import strictjson
from agentor.engine.threads import background

if TYPE_CHECKING:  # the agent's side of the package is loaded by the command alone
    from agentor.replay import ReplayReport


class Tools(StrEnum):
    """Where results of tools come from."""

    recorded = "recorded"
    live = "live"
    deny = "deny"


class Model(StrEnum):
    """Where answers come from."""

    recorded = "recorded"
    live = "live"


def replay(
    runs: Annotated[list[str], typer.Argument(help="Ids of runs in the store, or logs' paths (*.jsonl).")],
    agent: Annotated[str, typer.Option(help="The agent of today, as module:name.")],
    store: Place = DEFAULT,
    tools: Annotated[
        Tools, typer.Option(help="Results from the recording, or run each tool.")
    ] = Tools.recorded,
    model: Annotated[
        Model, typer.Option(help="Answers from the recording, or ask the model.")
    ] = Model.recorded,
    strict: Annotated[
        bool, typer.Option("--strict/--lenient", help="Any difference fails, or only leaving the recording.")
    ] = True,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit file, a test case for each turn.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A report as a JSON line for each run.")] = False,
) -> None:
    """Compare what an agent would send today with what recorded runs have sent; exit 1 where it differs.

    Answers and results come from the recording: no network, no key, and nothing runs.
    """
    from agentor.agent import Agentor
    from agentor.replay import areplay
    from agentor.replay.source import SUFFIX, events_of

    today = named(agent)
    if not isinstance(today, Agentor):
        raise typer.BadParameter(f"{agent!r} is no Agentor but {type(today).__name__}", param_hint="--agent")
    opened = open_store(store) if any(not run.endswith(SUFFIX) for run in runs) else None

    async def one(run: str) -> ReplayReport:
        _, events = await events_of(run, opened)
        return await areplay(today, events, tools=tools.value, model=model.value, strict=strict)

    reports = []
    for run in runs:
        report = background.run(one(run), method="replay")
        reports.append(report)
        if as_json:
            typer.echo(strictjson.dumps(report.to_dict()))
        else:
            _show(report)
    if junit is not None:
        try:
            junit.write_bytes(junit_xml(reports))
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--junit") from None
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _show(report: ReplayReport) -> None:
    head, *rest = map(visible, report.lines())
    typer.secho(f"{'✓' if report.ok else '✗'} {head}", fg="green" if report.ok else "red", bold=not report.ok)
    for line in rest if not report.ok or report.differences or report.notes else []:
        mark = line.strip()[:2] if line.startswith("      ") else ""
        typer.secho(line, fg={"- ": "red", "+ ": "green"}.get(mark))


def junit_xml(reports: Sequence[ReplayReport]) -> bytes:
    """The reports as JUnit's XML: a suite for each run, a case for each turn, a failure where it differs."""
    root = ElementTree.Element("testsuites", name="agentor replay")
    for report in reports:
        failing = ("left",) if not report.strict else ("changed", "recorded", "left")
        bad = [turn for turn in report.turns if turn.status in failing]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(report.run_id),
            tests=str(len(report.turns)),
            failures=str(len(bad)),
            errors="0",
        )
        for turn in report.turns:
            name = f"turn {turn.turn} (seq {turn.seq})"
            case = ElementTree.SubElement(suite, "testcase", classname=_clean(report.run_id), name=name)
            if turn in bad:
                said = (
                    "; ".join(d.what for d in turn.differences) or "an earlier difference is in its request"
                )
                failure = ElementTree.SubElement(case, "failure", type=turn.status, message=_clean(said))
                failure.text = _clean("\n".join(line for d in turn.differences for line in (d.what, *d.diff)))
    out: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return out


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
