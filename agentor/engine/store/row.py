"""A run's row while it is locked: what a database knows of a run, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any  # a column's value

from agentor.engine.events import Event
from agentor.engine.store.holder import Holder
from agentor.engine.store.records import fresh, placed
from agentor.engine.store.summary import RunInfo, advanced, epoch_of

INFO_COLUMNS = ("run_id", "agent", "model", "status", "created_at", "updated_at", "records", "turns", "cost")
HOLDER_COLUMNS = ("epoch", "owner", "host", "pid", "machine", "since", "expires")


def plain(text: str | None) -> str | None:
    """A text that a column takes: PostgreSQL's have no NUL, SQLite's no half of a surrogate pair."""
    return text and text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def columns(values: RunInfo | Holder, names: Iterable[str]) -> list[Any]:
    """What stands in these columns."""
    found = [getattr(values, name) for name in names]
    return [plain(value) if isinstance(value, str) else value for value in found]


def kept_aside(table: str, run_id: str, when: str) -> str:
    """What shows the records that a repair set aside, as SQL that a person can run."""
    literal = run_id.replace("'", "''")
    return f"SELECT * FROM {table} WHERE run_id = '{literal}' AND repaired_at = {when}"


@dataclass(slots=True)
class Row:
    """A run's row while it is locked, and what is to be written of it.

    Attributes:
        now: The database's clock, at about when the row was locked; None where there is no such row.
        stored: Texts of records, those that were asked for and those to be written.
        new: The events to be written.
    """

    info: RunInfo
    holder: Holder
    now: float | None = None
    stored: dict[int, str] = field(default_factory=dict)
    new: list[Event] = field(default_factory=list)

    def take(self, events: Sequence[Event], epoch: int | None) -> list[Event]:
        """Add a batch, whole or not at all; gives its events with their numbers.

        Raises:
            Fenced, Conflict, RunExists: as `append_many`.
        """
        run_id, following = self.info.run_id, self.info.records or 0
        if epoch is not None:
            self.holder.check_held(run_id, epoch)
        events = placed(run_id, events, following)
        pairs = fresh(run_id, events, following, self.stored)
        new = [event for event, _ in pairs]
        self.stored.update((event.seq or 0, text) for event, text in pairs)
        self.new += new
        self.info = advanced(self.info, new)
        if epoch is None:
            self.holder = replace(self.holder, epoch=max(self.holder.epoch, epoch_of(new)))
        return events
