"""Rows of `PostgresStore`: locked, checked, and written for many runs with a fixed number of statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any  # a row's columns

from agentor.engine.store.base import Write
from agentor.engine.store.holder import Holder
from agentor.engine.store.names import check_run_id
from agentor.engine.store.postgrespool import Transaction
from agentor.engine.store.row import HOLDER_COLUMNS, INFO_COLUMNS, Row, columns, plain
from agentor.engine.store.summary import RunInfo
from agentor.errors import AgentorError

CHANNEL = "agentor"  # a notification's payload is the id of a run that has new records

_TIMES = ("created_at", "updated_at", "since", "expires")
_TYPES = {
    **dict.fromkeys(("created_at", "updated_at", "cost"), "float8"),
    **dict.fromkeys(("records", "turns", "epoch"), "bigint"),
}


def _read(names: Iterable[str]) -> str:
    return ", ".join(f"extract(epoch FROM {n})::float8" if n in _TIMES else n for n in names)


INFO, HOLDER = _read(INFO_COLUMNS), _read(HOLDER_COLUMNS)
_SAVED = (*INFO_COLUMNS, "epoch")


def info_of(row: Sequence[Any]) -> RunInfo:
    """From the columns `INFO`."""
    return RunInfo(**dict(zip(INFO_COLUMNS, row, strict=True)))


def holder_of(row: Sequence[Any]) -> Holder:
    """From the columns `HOLDER`."""
    return Holder(**dict(zip(HOLDER_COLUMNS, row, strict=True)))


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
        marks = (f"{n} = to_timestamp(%s)" if n in _TIMES else f"{n} = %s" for n in HOLDER_COLUMNS)
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
            info, holder = row[: len(INFO_COLUMNS)], row[len(INFO_COLUMNS) : -1]
            rows[row[0]] = Row(info_of(info), holder_of(holder), row[-1])
        return rows

    async def hold(self, transaction: Transaction, run_id: str, holder: Holder) -> None:
        """Write who holds a run."""
        await transaction.execute(self._hold, [*columns(holder, HOLDER_COLUMNS), run_id])

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
            arrays = [list(column) for column in zip(*wanted, strict=True)]
            for run_id, seq, text in await transaction.fetch(self._stored, arrays):
                rows[run_id].stored[seq] = text

    async def save(self, transaction: Transaction, rows: Sequence[Row]) -> None:
        """Write what rows have new, and tell whoever follows those runs."""
        if not rows:
            return
        infos = [(*columns(row.info, INFO_COLUMNS), row.holder.epoch) for row in rows]
        events = [
            (row.info.run_id, event.seq, plain(event.type), event.at, row.stored[event.seq or 0])
            for row in rows
            for event in row.new
        ]
        arrays = [list(column) for column in zip(*events, strict=True)] or [[], [], [], [], []]
        arrays += [list(column) for column in zip(*infos, strict=True)]
        await transaction.execute(self._save, arrays)


def _refusal(write: Write) -> Exception | None:
    try:
        check_run_id(write.run_id)
    except AgentorError as error:
        return error
    return None
