"""A run's events as JSON lines, compact as stored or whole as agentor 0.1 wrote them."""

from __future__ import annotations

from collections.abc import Iterator

from agentor.engine import codec, strictjson
from agentor.engine.events import Event, Generation, ToolCall
from agentor.engine.store import FileStore
from agentor.engine.transcript import hydrate
from agentor.errors import RunNotFound


def export_lines(store: FileStore, run_id: str, *, full: bool) -> Iterator[str]:
    """One JSON text per event.

    Raises:
        RunNotFound, CorruptLog, UnsupportedLog: as named.
    """
    events, _ = hydrate(run_id, codec.sequence(run_id, store.load(run_id)))
    if not events:
        raise RunNotFound(run_id, str(store))
    for event in events:
        yield _full(event) if full else event.to_json()


def _full(event: Event) -> str:
    data = event.to_dict()
    data.update({"started_at": event.started_at, "ended_at": event.ended_at})
    if isinstance(event, Generation):
        data["messages"] = event.messages
    if isinstance(event, ToolCall) and event.args is not None:
        data["args"] = event.args
    return strictjson.dumps(data)
