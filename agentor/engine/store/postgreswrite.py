"""Rows of `PostgresStore`: locked, checked, and written for many runs with a fixed number of statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any  # a row's columns

from agentor.engine.events import Event
from agentor.engine.store.base import Write
from agentor.engine.store.holder import Holder
from agentor.engine.store.names import check_run_id
from agentor.engine.store.postgrespool import Transaction
from agentor.engine.store.records import fresh, placed
from agentor.engine.store.summary import RunInfo, advanced, epoch_of
from agentor.errors import AgentorError

CHANNEL = "agentor"  # a notification's payload is the id of a run that has new records

_INFO = ("run_id", "agent", "model", "status", "created_at", "updated_at", "records", "turns", "cost")
_HOLDER = ("epoch", "owner", "host", "pid", "machine", "since", "expires")
_TIMES = ("created_at", "updated_at", "since", "expires")
_TYPES = {
    **dict.fromkeys(("created_at", "updated_at", "cost"), "float8"),
    **dict.fromkeys(("records", "turns", "epoch"), "bigint"),
}


def _read(names: Iterable[str]) -> str:
    return ", ".join(f"extract(epoch FROM {n})::float8" if n in _TIMES else n for n in names)


INFO, HOLDER = _read(_INFO), _read(_HOLDER)
_SAVED = (*_INFO, "epoch")


def info_of(row: Sequence[Any]) -> RunInfo:
    """From the columns `INFO`."""
    return RunInfo(**dict(zip(_INFO, row, strict=True)))


def holder_of(row: Sequence[Any]) -> Holder:
    """From the columns `HOLDER`."""
    return Holder(**dict(zip(_HOLDER, row, strict=True)))


def plain(text: str | None) -> str | None:
    """A text that a column takes: PostgreSQL's have no NUL, and no half of a surrogate pair."""
    return text and text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


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
    now: float | None
    stored: dict[int, str] = field(default_factory=dict)
    new: list[Event] = field(default_factory=list)

    @property
    def exists(self) -> bool:
        return self.now is not None

    def check_held(self, epoch: int) -> None:
        """Refuse a worker whose lease is not the run's.

        Raises:
            Fenced: it was given back, or is another one's.
        """
        if self.holder.epoch != epoch or self.holder.expires is None:
            raise self.holder.fenced(self.info.run_id, epoch)

    def check_free(self, epoch: int | None) -> None:
        """Refuse whoever wants the run while somebody else holds it.

        Raises:
            RunBusy: the caller, with this epoch or none, is not who holds it.
        """
        if self.holder.epoch != epoch and self.holder.holds(self.now or 0.0):
            raise self.holder.busy(self.info.run_id)

    def take(self, events: Sequence[Event], epoch: int | None) -> list[Event]:
        """Add a batch, whole or not at all; gives its events with their numbers.

        Raises:
            Fenced, Conflict, RunExists: as `append_many`.
        """
        run_id, following = self.info.run_id, self.info.records or 0
        if epoch is not None:
            self.check_held(epoch)
        events = placed(run_id, events, following)
        pairs = fresh(run_id, events, following, self.stored)
        new = [event for event, _ in pairs]
        self.stored.update((event.seq or 0, text) for event, text in pairs)
        self.new += new
        self.info = advanced(self.info, new)
        if epoch is None:
            self.holder = replace(self.holder, epoch=max(self.holder.epoch, epoch_of(new)))
        return events


class Rows:
    """Statements on the tables; each is a fixed number of them, however many runs it is about."""

    def __init__(self, tables: str) -> None:
        runs, events = f"{tables}agentor_runs", f"{tables}agentor_events"
        self._make = f"""
            INSERT INTO {runs} (run_id) SELECT run_id FROM unnest(%s::text[]) AS new (run_id)
            ORDER BY run_id COLLATE "C" ON CONFLICT DO NOTHING"""
        # In the order of their ids, so that no two processes wait for each other
        self._lock = f"""
            SELECT {INFO}, {HOLDER}, extract(epoch FROM clock_timestamp())::float8 FROM {runs}
            WHERE run_id = ANY(%s::text[]) ORDER BY run_id FOR UPDATE"""
        marks = (f"{n} = to_timestamp(%s)" if n in _TIMES else f"{n} = %s" for n in _HOLDER)
        self._hold = f"UPDATE {runs} SET {', '.join(marks)} WHERE run_id = %s"
        self._stored = f"""
            SELECT run_id, seq, record::text FROM {events}
            JOIN unnest(%s::text[], %s::bigint[]) AS wanted (run_id, seq) USING (run_id, seq)"""
        arrays = ", ".join(f"%s::{_TYPES.get(name, 'text')}[]" for name in _SAVED)
        values = ", ".join(f"to_timestamp({name})" if name in _TIMES else name for name in _SAVED)
        changes = ", ".join(f"{name} = excluded.{name}" for name in _SAVED[1:])
        # The records go as binary (%b): escaping their quotes costs more than all the rest.
        self._save = f"""
            WITH kept AS (
                INSERT INTO {events} (run_id, seq, type, at, record)
                SELECT run_id, seq, type, to_timestamp(at), record::json
                FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::float8[], %b::text[])
                AS new (run_id, seq, type, at, record)
            ), saved AS (
                INSERT INTO {runs} ({", ".join(_SAVED)}) SELECT {values}
                FROM unnest({arrays}) AS new ({", ".join(_SAVED)})
                ON CONFLICT (run_id) DO UPDATE SET {changes} RETURNING run_id
            ) SELECT pg_notify('{CHANNEL}', run_id) FROM saved"""

    async def lock(
        self, transaction: Transaction, run_ids: Collection[str], made: Collection[str] = ()
    ) -> dict[str, Row]:
        """The rows of these runs, until the transaction ends; an empty one for an unknown run.

        Args:
            made: Runs that get a row where they have none: two that begin the same run must meet.
        """
        if made:
            await transaction.execute(self._make, [sorted(made)])
        found = await transaction.fetch(self._lock, [sorted(run_ids)])
        rows = {run_id: Row(RunInfo(run_id=run_id), Holder(), None) for run_id in run_ids}
        for row in found:
            info, holder = row[: len(_INFO)], row[len(_INFO) : -1]
            rows[row[0]] = Row(info_of(info), holder_of(holder), row[-1])
        return rows

    async def hold(self, transaction: Transaction, run_id: str, holder: Holder) -> None:
        """Write who holds a run."""
        await transaction.execute(self._hold, [*_columns(holder, _HOLDER), run_id])

    async def append(
        self, transaction: Transaction, writes: Sequence[Write]
    ) -> list[tuple[Write, Exception | None]]:
        """What came of each write, in their order; and the writes, with the numbers they got."""
        checked = [(write, _refusal(write)) for write in writes]
        sound = [write for write, refused in checked if refused is None]
        begun = {w.run_id for w in sound if not all(event.seq for event in w.events)}
        rows = await self.lock(transaction, {w.run_id for w in sound}, begun)
        await self._recall(transaction, rows, sound)
        outcomes: list[tuple[Write, Exception | None]] = []
        for write, refused in checked:
            try:
                if refused is None:
                    events = rows[write.run_id].take(write.events, write.epoch)
                    write = write._replace(events=events)
            except (AgentorError, ValueError, TypeError) as error:  # the latter two: an event that is no JSON
                refused = error
            outcomes.append((write, refused))
        await self.save(transaction, [row for row in rows.values() if row.new])
        return outcomes

    async def _recall(self, transaction: Transaction, rows: dict[str, Row], writes: Sequence[Write]) -> None:
        """Load the records that the writes repeat."""
        wanted = {
            (write.run_id, event.seq)
            for write in writes
            for event in write.events
            if event.seq is not None and event.seq < (rows[write.run_id].info.records or 0)
        }
        if wanted:
            columns = [list(column) for column in zip(*wanted, strict=True)]
            for run_id, seq, text in await transaction.fetch(self._stored, columns):
                rows[run_id].stored[seq] = text

    async def save(self, transaction: Transaction, rows: Sequence[Row]) -> None:
        """Write what rows have new, and tell whoever follows those runs."""
        if not rows:
            return
        infos = [(*_columns(row.info, _INFO), row.holder.epoch) for row in rows]
        events = [
            (row.info.run_id, event.seq, plain(event.type), event.at, row.stored[event.seq or 0])
            for row in rows
            for event in row.new
        ]
        columns = [list(column) for column in zip(*events, strict=True)] or [[], [], [], [], []]
        columns += [list(column) for column in zip(*infos, strict=True)]
        await transaction.execute(self._save, columns)


def _columns(values: RunInfo | Holder, names: Iterable[str]) -> list[Any]:
    columns = [getattr(values, name) for name in names]
    return [plain(value) if isinstance(value, str) else value for value in columns]


def _refusal(write: Write) -> Exception | None:
    try:
        check_run_id(write.run_id)
    except AgentorError as error:
        return error
    return None
