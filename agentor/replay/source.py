"""Where a recording comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentor.engine import codec
from agentor.engine.events import Event
from agentor.engine.result import RunResult
from agentor.engine.store.access import Access
from agentor.engine.store.base import Store
from agentor.engine.transcript import hydrate
from agentor.errors import RunNotFound, StoreError

Recording = str | Path | RunResult | Sequence[Event]
SUFFIX = ".jsonl"


async def events_of(run: Recording, store: Store | None) -> tuple[str, list[Event]]:
    """A run's id and its events, hydrated.

    Args:
        run: The id of a run in `store`, a log's file (`*.jsonl`), a result, or events.

    Raises:
        RunNotFound: no such run, or no such file.
        CorruptLog, UnsupportedLog: as named.
    """
    if isinstance(run, RunResult):
        run_id, events = run.run_id or "run", list(run.events)
    elif isinstance(run, str | Path) and (isinstance(run, Path) or run.endswith(SUFFIX)):
        return events_in(Path(run))
    elif isinstance(run, str):
        if store is None:
            raise RunNotFound(run, "no store: give the agent one, or the path of the log (*.jsonl)")
        events, _ = await Access(store).load(run)
        if not events:
            raise RunNotFound(run, repr(store))
        return run, events
    else:
        events = list(run)
        run_id = next((e.run_id for e in events if e.run_id), None) or "run"
    return run_id, hydrate(run_id, codec.sequence(run_id, events))[0]


def events_in(path: Path) -> tuple[str, list[Event]]:
    """The run in a log's file; its id is the file's name.

    Raises: as `events_of`.
    """
    run_id = path.name.removesuffix(SUFFIX)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RunNotFound(run_id, str(path)) from None
    except OSError as error:
        raise StoreError(run_id, f"its log cannot be read: {error}") from error
    events, _ = hydrate(run_id, codec.decode(run_id, data).events)
    if not events:
        raise RunNotFound(run_id, str(path))
    return run_id, events
