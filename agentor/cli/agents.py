"""The agent and the store that a command works with, and how a run that it drove ends."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any  # Any: JSON

import typer

from agentor.cli.named import named
from agentor.cli.stores import DEFAULT, open_store
from agentor.cli.text import visible
from agentor.engine import strictjson
from agentor.engine.store import FileStore
from agentor.engine.store.access import Access
from agentor.engine.store.base import Store
from agentor.engine.threads import background

if TYPE_CHECKING:
    from agentor.agent import Agentor
    from agentor.engine.decisions import Pending
    from agentor.engine.result import RunResult

FAILED, USAGE, NOT_FOUND, BUSY, PAUSED = 1, 2, 3, 4, 5  # exit codes; 0: done
AgentName = Annotated[str, typer.Option("--agent", envvar="AGENTOR_AGENT", help="Your agent: module:name.")]
OwnPlace = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where the runs are, if not in the agent's own store, AGENTOR_STORE, or the folder runs.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]


def agent_of(name: str, place: str | None, *, new: bool = False) -> Agentor:
    """The user's agent, with the store that counts.

    Args:
        new: A folder that is not there is made.

    Raises:
        typer.BadParameter: no such agent.
        StoreError: no such store.
    """
    from agentor.agent import Agentor

    agent = named(name)
    if not isinstance(agent, Agentor):
        raise typer.BadParameter(f"{name!r} is no Agentor but {type(agent).__name__}", param_hint="--agent")
    if place is None and agent.store is not None:
        return agent
    where = place or os.environ.get("AGENTOR_STORE") or DEFAULT
    if new and "://" not in where and not Path(where).exists() and not Path(where).suffix:
        return agent.with_store(FileStore(where))
    return agent.with_store(open_store(where))


def onlooker(store: Store) -> Agentor:
    """An agent that looks at runs and decides about them, and runs none."""
    from agentor.agent import Agentor

    return Agentor("agentor", store=store)


def as_it_stands(agent: Agentor, run_id: str) -> RunResult:
    """What a run in the agent's store has come to; nothing goes on.

    Raises:
        RunNotFound, CorruptLog, UnsupportedLog: as named.
    """
    from agentor.engine.result import result_of

    async def work() -> RunResult:
        assert agent.store is not None
        events, transcript = await Access(agent.store).load(run_id)
        waiting = await agent.aunresolved(run_id)
        return replace(result_of(run_id, events, transcript), pending=waiting)

    return background.run(work(), method="as_it_stands")


def ended(result: RunResult, as_json: bool, *, shown: bool = False) -> None:
    """Say how a run has ended, and exit with its code.

    Args:
        shown: The answer is on the screen already.
    """
    if as_json:
        typer.echo(strictjson.dumps(result_dict(result)))
    else:
        if result.text and not shown:
            typer.echo("\n".join(map(visible, result.text.splitlines())))
        for p in result.pending:
            typer.echo(pending_line(p), err=True)
        if result.status != "completed":
            said = f"run {result.run_id}: {result.status}" + (f": {result.error}" if result.error else "")
            typer.secho(visible(said), err=True, fg="yellow" if result.pending else "red")
    if result.status != "completed":
        raise typer.Exit(PAUSED if result.status in ("paused", "in_doubt") else FAILED)


def result_dict(result: RunResult) -> dict[str, Any]:
    """What a run has come to, as JSON."""
    return {
        "run_id": result.run_id,
        "status": result.status,
        "text": result.text,
        "error": result.error,
        "usage": result.usage.to_dict(),
        "cost": result.cost,
        "pending": [pending_dict(p) for p in result.pending],
    }


def pending_dict(p: Pending) -> dict[str, Any]:
    """A call that waits, as JSON."""
    return {name: getattr(p, name) for name in p.__dataclass_fields__}


def pending_line(p: Pending) -> str:
    """A call that waits, for people."""
    args = strictjson.dumps(p.args) if p.args is not None else "arguments that are no JSON object"
    state = " (decided; resume acts on it)" if p.decided else ""
    why = f": {p.reason}" if p.reason else ""
    return visible(f"{p.call_id}  {p.kind}  {p.tool}({args}){why}{state}")
