"""`SQLiteStore`: all runs in one SQLite file, with leases that end by themselves."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agentor.engine.events import Event
from agentor.engine.store.base import LEASE_S, ForkMore, Lease, Write, fork_marker
from agentor.engine.store.holder import Holder
from agentor.engine.store.names import check_run_id
from agentor.engine.store.records import events_of, record, sound_records
from agentor.engine.store.row import HOLDER_COLUMNS, INFO_COLUMNS, Row, columns, kept_aside, plain
from agentor.engine.store.sqlitefile import SQLiteFile
from agentor.engine.store.summary import RunInfo, advanced
from agentor.engine.store.upkeep import Upkeep
from agentor.errors import AgentorError, RunExists, RunNotFound, StoreError, UnsupportedLog

# Each step makes the next version, in `PRAGMA user_version`, out of the one before.
_STEPS = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        agent TEXT, model TEXT, status TEXT NOT NULL DEFAULT 'running',
        created_at REAL, updated_at REAL,
        records INTEGER NOT NULL DEFAULT 0, turns INTEGER NOT NULL DEFAULT 0, cost REAL,
        epoch INTEGER NOT NULL DEFAULT 0,
        owner TEXT, host TEXT, pid INTEGER, machine TEXT, since REAL, expires REAL
    ) WITHOUT ROWID;
    CREATE TABLE events (
        run_id TEXT NOT NULL, seq INTEGER NOT NULL, record TEXT NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) WITHOUT ROWID;
    CREATE TABLE damaged (run_id TEXT NOT NULL, repaired_at REAL NOT NULL, seq INTEGER, record TEXT);
    """,
    """
    CREATE TABLE cancels (
        run_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, reason TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
)
_INFO = ", ".join(INFO_COLUMNS)
_COLUMNS = ", ".join((*INFO_COLUMNS, *HOLDER_COLUMNS))
_SELECT = f"SELECT {_COLUMNS} FROM runs WHERE run_id = ?"
_REPLACE = f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split()))})"


class SQLiteStore(Upkeep):
    """Runs in one SQLite file, readable by its owner only: for one host, however many processes.

    Each append is one transaction that is on the medium when it returns; appends of concurrent runs
    share one. A run is held under a lease that its worker renews; once it has run out, or its worker's
    process is dead, another one may take the run, and the store refuses the old one's writes.
    `events.record` is JSON: plain SQL can ask it.

    Args:
        path: The file; it and its folder are created where they do not exist.
        lease_s: How long a worker that neither renews its lease nor is known to be dead keeps a run.
        network: True takes a file on a network file system all the same.
        clock: Epoch seconds, for leases.

    Raises:
        UnsafePath: something else than a plain file stands there, or a network file system is below it.
        UnsupportedLog: a newer agentor wrote its tables.
        StoreError: SQLite cannot use the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        lease_s: float = LEASE_S,
        network: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if str(path) == ":memory:":
            raise ValueError(
                "SQLiteStore keeps runs in a file; use MemoryStore() for runs that nothing outlives"
            )
        self.path = Path(path)
        self.lease_s, self._clock = lease_s, clock
        self._file = SQLiteFile(self.path, network=network)
        with _as_store_error(None, self.path), self._file.write() as db:
            self._migrate(db)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    def _migrate(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        known = len(_STEPS)
        if version > known:
            raise UnsupportedLog(None, f"{self.path} has tables of version {version}, known is {known}")
        for statement in (s for step in _STEPS[version:] for s in step.split(";")):
            db.execute(statement)
        if version < known:
            db.execute(f"PRAGMA user_version = {known}")

    @contextmanager
    def _transaction(self, run_id: str) -> Iterator[sqlite3.Connection]:
        """One write, whole or not at all; StoreError where SQLite cannot do it."""
        with _as_store_error(run_id, self.path), self._file.write() as db:
            yield db

    # --- the log --------------------------------------------------------------------------------

    def append_many(self, run_id: str, events: Sequence[Event], epoch: int | None = None) -> None:
        """Save a batch in one transaction; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            Fenced: the lease with this epoch is over.
            StoreError: SQLite cannot write; nothing of the batch was saved.
        """
        (outcome,) = self.append_group([Write(run_id, events, epoch)])
        if outcome is not None:
            raise outcome

    def append_group(self, writes: Sequence[Write]) -> list[Exception | None]:
        """Save the batches of many runs in one transaction; what each one came to, in their order."""
        outcomes: list[Exception | None] = []
        rows: dict[str, Row] = {}
        try:
            with self._file.write() as db:
                for write in writes:
                    try:
                        self._take(db, rows, write)
                        outcomes.append(None)
                    except (AgentorError, ValueError, TypeError) as error:  # the latter: it is no JSON
                        outcomes.append(error)
                _save(db, rows.values())
        except (sqlite3.Error, OSError) as error:
            return [_store_error(write.run_id, self.path, error) for write in writes]
        return outcomes

    def _take(self, db: sqlite3.Connection, rows: dict[str, Row], write: Write) -> None:
        """Add a write to what is to be saved, or refuse it."""
        run_id, events, epoch = write
        check_run_id(run_id)
        row = rows.get(run_id) or _row(db, run_id)
        repeated = [e.seq for e in events if e.seq is not None and e.seq < (row.info.records or 0)]
        if repeated and not row.new:
            query = "SELECT seq, record FROM events WHERE run_id = ? AND seq BETWEEN ? AND ?"
            row.stored.update(db.execute(query, (run_id, min(repeated), max(repeated))).fetchall())
        row.take(events, epoch)
        rows[run_id] = row

    def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on.

        Raises:
            CorruptLog: a record is no event, or one is missing.
        """
        return events_of(run_id, self._rows(run_id, seq), seq)

    def _rows(self, run_id: str, seq: int) -> list[tuple[int, str]]:
        query = "SELECT seq, record FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq"
        with _as_store_error(run_id, self.path), self._file.read() as db:
            return db.execute(query, (run_id, seq)).fetchall()

    def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        with _as_store_error(None, self.path), self._file.read() as db:
            found = db.execute("SELECT run_id FROM runs WHERE records > 0 ORDER BY run_id").fetchall()
        return [run_id for (run_id,) in found]

    def describe(self, run_ids: Sequence[str] | None = None) -> list[RunInfo]:
        """Each run at a glance."""
        query = f"SELECT {_INFO} FROM runs WHERE records > 0"
        with _as_store_error(None, self.path), self._file.read() as db:
            if run_ids is None:
                rows = db.execute(f"{query} ORDER BY run_id").fetchall()
            else:
                found = (db.execute(f"{query} AND run_id = ?", (r,)).fetchone() for r in run_ids)
                rows = [row for row in found if row is not None]
        return [RunInfo(**dict(zip(INFO_COLUMNS, row, strict=True))) for row in rows]

    def fork(self, src: str, dst: str, at: int | None = None, more: ForkMore | None = None) -> None:
        """Copy a run up to record `at` (all of it where None), marker included, in one transaction.

        Raises:
            RunNotFound, RunExists, StoreError: as named.
        """
        check_run_id(dst)
        parent = self.load_from(src, 0)
        if not parent:
            raise RunNotFound(src, repr(self))
        marker = fork_marker(src, parent, at, more)
        cut = marker.seq or 0
        with self._transaction(dst) as db:
            row = _row(db, dst)
            if row.info.records:
                raise RunExists(dst)
            copied = "INSERT INTO events SELECT ?, seq, record FROM events WHERE run_id = ? AND seq < ?"
            db.execute(copied, (dst, src, cut))
            info = advanced(row.info, [*parent[:cut], marker])
            _save(db, [replace(row, info=info, stored={cut: record(marker)}, new=[marker])])

    # --- removing and mending -------------------------------------------------------------------

    def delete(self, run_id: str, epoch: int | None = None) -> None:
        """Remove a run with all that was set aside of it, in one transaction.

        Raises:
            RunNotFound: no such run.
            RunBusy: somebody holds it, who is not the caller with this `epoch`.
        """
        with self._transaction(run_id) as db:
            row = _row(db, run_id)
            if not row.info.records:
                raise RunNotFound(run_id, repr(self))
            row.holder.check_free(run_id, self._clock(), epoch)
            for table in ("events", "damaged", "cancels"):
                db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
            # The row stays, empty: epochs go on counting, so a worker that sleeps is fenced all the same.
            _put(db, [replace(row, info=RunInfo(run_id=run_id))])

    def repair(self, run_id: str, upto: int | None = None) -> str:
        """Cut a log behind record `upto`; its records as they were are kept in the table `damaged`.

        Args:
            upto: None: the last record before the damage.

        Returns:
            Where they are kept.

        Raises:
            RunNotFound, RunBusy: as `delete`.
            ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
        """
        with self._transaction(run_id) as db:
            row = _row(db, run_id)
            row.holder.check_free(run_id, self._clock())
            query = "SELECT seq, record FROM events WHERE run_id = ? ORDER BY seq"
            rows = db.execute(query, (run_id,)).fetchall()
            if not rows:
                raise RunNotFound(run_id, repr(self))
            kept = sound_records(run_id, rows, upto)
            now = round(self._clock(), 3)
            aside = "INSERT INTO damaged SELECT run_id, ?, seq, record FROM events WHERE run_id = ?"
            db.execute(aside, (now, run_id))
            db.execute("DELETE FROM events WHERE run_id = ? AND seq >= ?", (run_id, len(kept)))
            _put(db, [replace(row, info=advanced(RunInfo(run_id=run_id), kept))])
        return f"{self.path}: {kept_aside('damaged', run_id, f'{now}')}"

    # --- leases ---------------------------------------------------------------------------------

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease:
        """Become the run's only writer until the lease is given back, or not renewed for `ttl_s` seconds.

        Raises:
            RunBusy: another worker holds it.
        """
        check_run_id(run_id)
        now = self._clock()
        with self._transaction(run_id) as db:
            row = _row(db, run_id)
            row.holder.check_free(run_id, now)
            holder = Holder.here(row.holder.epoch + 1, owner, now, ttl_s)
            _put(db, [replace(row, holder=holder)])
        return SQLiteLease(self, run_id, holder.epoch, ttl_s)

    def request_cancel(self, run_id: str, reason: str) -> None:
        """Ask whoever has the run now to stop.

        Raises:
            RunNotFound: no such run.
            StoreError: SQLite cannot write.
        """
        with self._transaction(run_id) as db:
            row = _row(db, run_id)
            if not row.info.records:
                raise RunNotFound(run_id, repr(self))
            asked = (run_id, row.holder.epoch, plain(reason) or "")
            db.execute("INSERT OR REPLACE INTO cancels VALUES (?, ?, ?)", asked)

    def cancel_requested(self, run_id: str, epoch: int) -> str | None:
        """Why the holder with this epoch is asked to stop; None where it is not."""
        query = "SELECT reason FROM cancels WHERE run_id = ? AND epoch = ?"
        with _as_store_error(run_id, self.path), self._file.read() as db:
            found = db.execute(query, (run_id, epoch)).fetchone()
        return None if found is None else str(found[0])


class SQLiteLease:
    """One holder's time on a run."""

    def __init__(self, store: SQLiteStore, run_id: str, epoch: int, ttl_s: float) -> None:
        self._store, self._run_id = store, run_id
        self.epoch, self.ttl_s = epoch, ttl_s

    def renew(self) -> None:
        """Another `ttl_s` seconds from now on.

        Raises:
            Fenced: the run has another holder.
            StoreError: SQLite cannot write.
        """
        with self._store._transaction(self._run_id) as db:
            row = _row(db, self._run_id)
            row.holder.check_held(self._run_id, self.epoch)
            longer = replace(row.holder, expires=self._store._clock() + self.ttl_s)
            _put(db, [replace(row, holder=longer)])

    def release(self) -> None:
        """Give it back; nothing happens where it is another one's already."""
        with self._store._transaction(self._run_id) as db:
            row = _row(db, self._run_id)
            if row.holder.epoch == self.epoch:
                _put(db, [replace(row, holder=replace(row.holder, expires=None))])


def _row(db: sqlite3.Connection, run_id: str) -> Row:
    """What is known of a run."""
    found = db.execute(_SELECT, (run_id,)).fetchone()
    if found is None:
        return Row(RunInfo(run_id=run_id), Holder())
    info = dict(zip(INFO_COLUMNS, found, strict=False))
    holder = dict(zip(HOLDER_COLUMNS, found[len(info) :], strict=True))
    return Row(RunInfo(**info), Holder(**holder))


def _save(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    changed = [row for row in rows if row.new]
    records = [(row.info.run_id, e.seq, row.stored[e.seq or 0]) for row in changed for e in row.new]
    db.executemany("INSERT INTO events VALUES (?, ?, ?)", records)
    _put(db, changed)


def _put(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Write the rows as they are."""
    db.executemany(
        _REPLACE, [(*columns(row.info, INFO_COLUMNS), *columns(row.holder, HOLDER_COLUMNS)) for row in rows]
    )


def _store_error(run_id: str | None, path: Path, error: Exception) -> StoreError:
    failure = StoreError(
        run_id, f"{path}: {error}; nothing of this was saved; mend that, then resume the run"
    )
    failure.__cause__ = error
    return failure


@contextmanager
def _as_store_error(run_id: str | None, path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:  # the latter: its folder is gone
        raise _store_error(run_id, path, error) from error
