"""Commands that start, go on with, stop and decide about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any  # Any: arguments are JSON

import typer

from agentor.cli.agents import (
    AgentName,
    Json,
    OwnPlace,
    agent_of,
    as_it_stands,
    ended,
    onlooker,
    pending_dict,
    pending_line,
)
from agentor.cli.stores import DEFAULT, Place, open_store
from agentor.cli.text import visible
from agentor.engine import strictjson
from agentor.engine.events import Event, RunStart, TextDelta, ToolCall, ToolResult
from agentor.engine.threads import background

if TYPE_CHECKING:
    from agentor.engine.policy import Decision

RunId = Annotated[str, typer.Argument(help="The run's id.")]
Who = Annotated[str | None, typer.Option(help="Who says so; it is kept in the log.")]
_SHOWN = 200  # characters of arguments and results on the way


def run(
    text: Annotated[str, typer.Argument(help="What the agent is to do.")],
    agent: AgentName,
    store: OwnPlace = None,
    run_id: Annotated[str | None, typer.Option(help="A name of your own for the run.")] = None,
    as_json: Json = False,
) -> None:
    """Run an agent: its answer on standard output as it comes, the run's id and its tools beside it.

    Ctrl-C stops the run; `agentor resume` goes on with it.
    """
    one = agent_of(agent, store, new=True)
    screen = _Screen(as_json)

    async def work() -> str:
        async for event in one.astream(text, run_id=run_id):
            screen.show(event)
        return screen.run_id

    started = background.run(work(), method="run")
    shown = screen.end()
    ended(as_it_stands(one, started), as_json, shown=shown)


def resume(
    run_id: RunId,
    agent: AgentName,
    store: OwnPlace = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a worker that has the run.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Finish a run that was interrupted, or act on what was decided; a finished one gives its answer."""
    ended(agent_of(agent, store).resume(run_id, wait_s=wait), as_json)


def continue_(
    run_id: RunId,
    text: Annotated[str, typer.Argument(help="The next message.")],
    agent: AgentName,
    store: OwnPlace = None,
    as_json: Json = False,
) -> None:
    """A follow-up message in the same run, once it has ended."""
    ended(agent_of(agent, store).continue_run(run_id, text), as_json)


def fork(
    run_id: RunId,
    agent: AgentName,
    text: Annotated[str | None, typer.Argument(help="A new message for the branch.")] = None,
    store: OwnPlace = None,
    at: Annotated[int | None, typer.Option(help="Copy up to this record (seq).")] = None,
    at_turn: Annotated[int | None, typer.Option(help="Copy up to the results of this turn.")] = None,
    fork_id: Annotated[str | None, typer.Option("--id", help="A name of your own for the branch.")] = None,
    as_json: Json = False,
) -> None:
    """Branch a run at its end or at an earlier step; the original is never touched."""
    result = agent_of(agent, store).fork(run_id, text, at=at, at_turn=at_turn, fork_id=fork_id)
    if not as_json:
        typer.secho(f"run {result.run_id}", err=True, dim=True)
    ended(result, as_json)


def cancel(
    run_id: RunId,
    store: Place = DEFAULT,
    reason: Annotated[str, typer.Option(help="For the log.")] = "cancelled",
    wait: Annotated[float, typer.Option(help="Seconds to wait until it has stopped.")] = 10.0,
    as_json: Json = False,
) -> None:
    """Stop a run, whichever process works on it; it can be resumed. Exit 1 where it still runs."""
    status = onlooker(open_store(store)).cancel(run_id, reason, wait_s=wait)
    typer.echo(strictjson.dumps({"run_id": run_id, "status": status}) if as_json else f"{run_id}: {status}")
    if status == "running":
        raise typer.Exit(1)


def pending(run_id: RunId, store: Place = DEFAULT, as_json: Json = False) -> None:
    """The calls of a run that wait for somebody, with their ids for approve and deny."""
    waiting = onlooker(open_store(store)).unresolved(run_id)
    for p in waiting:
        typer.echo(strictjson.dumps(pending_dict(p)) if as_json else pending_line(p))
    if not waiting and not as_json:
        typer.echo(f"nothing of run {run_id} waits", err=True)


def approve(
    run_id: RunId,
    call_id: Annotated[str, typer.Argument(help="The call's id, as `pending` shows it.")],
    store: Place = DEFAULT,
    args: Annotated[str | None, typer.Option(help="Other arguments for it, as a JSON object.")] = None,
    by: Who = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept in the log.")] = None,
    expires: Annotated[float | None, typer.Option(help="Seconds after which it ends.")] = None,
) -> None:
    """Let a call start that waits for it; nothing runs until `agentor resume`."""
    from agentor import Approve

    _decide(store, run_id, call_id, Approve(args=_object(args), by=by, reason=reason, expires_s=expires))


def deny(
    run_id: RunId,
    call_id: Annotated[str, typer.Argument(help="The call's id, as `pending` shows it.")],
    reason: Annotated[str, typer.Argument(help="Why; the model is told.")],
    store: Place = DEFAULT,
    by: Who = None,
) -> None:
    """Say that a call must not run; the model is told why at `agentor resume`."""
    from agentor import Deny

    _decide(store, run_id, call_id, Deny(reason, by=by))


def decide(
    run_id: RunId,
    call_id: Annotated[str, typer.Argument(help="The call's id, as `pending` shows it.")],
    store: Place = DEFAULT,
    happened: Annotated[str | None, typer.Option(help="It took effect, and this is what it gave.")] = None,
    not_happened: Annotated[bool, typer.Option("--not-happened", help="It had none: run it again.")] = False,
    by: Who = None,
) -> None:
    """Say what became of a call in doubt, one that was cut off and may or may not have happened."""
    from agentor import Happened, NotHappened

    if (happened is None) is not not_happened:
        raise typer.BadParameter("give --happened TEXT or --not-happened")
    _decide(store, run_id, call_id, NotHappened(by=by) if happened is None else Happened(happened, by=by))


def _decide(store: str, run_id: str, call_id: str, word: Decision) -> None:
    waiting = onlooker(open_store(store)).decide(run_id, {call_id: word})
    for p in waiting:
        typer.echo(pending_line(p))
    if not waiting or all(p.decided for p in waiting):
        typer.echo(f"all is decided; go on with: agentor resume {run_id}", err=True)


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        given = strictjson.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--args") from None
    if not isinstance(given, dict):
        raise typer.BadParameter("give a JSON object", param_hint="--args")
    return given


class _Screen:
    """A run as it goes: text on standard output, all else on standard error."""

    def __init__(self, as_json: bool) -> None:
        self._json, self.run_id, self._said = as_json, "", ""

    def show(self, event: Event) -> None:
        if self._json:
            if not isinstance(event, TextDelta):
                typer.echo(event.to_json())
        elif isinstance(event, TextDelta):
            piece = "\n".join(map(visible, event.text.split("\n")))
            typer.echo(piece, nl=False)
            self._said = piece or self._said
        elif isinstance(event, ToolCall | ToolResult):
            self._line_end()
            typer.secho(f"{_arrow(event)}", err=True, dim=True)
        if isinstance(event, RunStart) and not self.run_id:
            self.run_id = str(event.run_id)
            if not self._json:
                typer.secho(f"run {self.run_id}", err=True, dim=True)

    def end(self) -> bool:
        """The line is over; whether a text was shown."""
        shown = bool(self._said)
        self._line_end()
        return shown

    def _line_end(self) -> None:
        if self._said and not self._said.endswith("\n"):
            typer.echo()
        self._said = ""


def _arrow(event: ToolCall | ToolResult) -> str:
    if isinstance(event, ToolCall):
        args = strictjson.dumps(event.args) if event.args is not None else "…"
        return visible(f"  → {event.name}({args})"[:_SHOWN])
    return visible(f"  ← {event.name}: {event.content}"[:_SHOWN])
