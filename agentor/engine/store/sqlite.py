"""`SQLiteStore`: all runs in one SQLite file, with leases that end by themselves."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # locks have no common type
from weakref import WeakSet

from agentor.engine import strictjson
from agentor.engine.events import Event, numbered
from agentor.engine.store.base import TimedLease, fork_marker
from agentor.engine.store.names import check_run_id
from agentor.errors import (
    Conflict,
    CorruptLog,
    Fenced,
    RunBusy,
    RunExists,
    RunNotFound,
    StoreError,
    UnsafePath,
    UnsupportedLog,
)

_VERSION = 1  # of the tables, in `PRAGMA user_version`
_TABLES = """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL DEFAULT 0,
        owner TEXT, host TEXT, pid INTEGER, since REAL, expires REAL
    ) WITHOUT ROWID;
    CREATE TABLE events (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) WITHOUT ROWID;
"""
_BUSY_S = 30.0  # how long a write waits for the one of another process


_stores: WeakSet[SQLiteStore] = WeakSet()
_locked: list[Any] = []  # the locks that a fork holds


def _before_fork() -> None:
    # SQLite must not be carried into a child: its memory says which locks this process has, and a
    # thread inside it would leave its mutexes locked for ever. Both sides open their own afterwards.
    for store in list(_stores):
        store._lock.acquire()
        _locked.append(store._lock)
        store._close()


def _after_fork() -> None:
    while _locked:
        _locked.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class SQLiteStore:
    """Runs in one SQLite file, readable by its owner only: for one host, however many processes.

    Each append is one transaction that is on the medium when it returns. A run is held under a lease
    that its worker renews; once it has run out, or its worker's process is dead, another one may take
    the run, and the store refuses the old one's writes. `events.record` is JSON: plain SQL can ask it.

    Args:
        path: The file; created where it does not exist. Not on a network file system.
        lease_s: How long a worker that neither renews its lease nor is known to be dead keeps a run.
        clock: Epoch seconds, for leases.

    Raises:
        UnsafePath: something else than a plain file stands there.
        UnsupportedLog: a newer agentor wrote its tables.
    """

    def __init__(
        self, path: str | Path, *, lease_s: float = 30.0, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = Path(path)
        self.lease_s, self._clock = lease_s, clock
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._create()
        with self._lock, _as_store_error("*", self.path):
            self._connect()
        _stores.add(self)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        db, self._connection = getattr(self, "_connection", None), None
        if db is not None:
            db.close()

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def _create(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            os.close(os.open(self.path, flags, 0o600))
        except OSError as error:
            raise UnsafePath(str(self.path), f"cannot be opened as a plain file: {error}") from None
        if not self.path.is_file():
            raise UnsafePath(str(self.path), "is no plain file")

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._opened()
            self._migrate()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        until = time.monotonic() + _BUSY_S
        while True:
            db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                for pragma in ("journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF"):
                    db.execute(f"PRAGMA {pragma}")
                return db
            except sqlite3.OperationalError as error:
                # SQLite does not wait here for a process that opens or closes the file at this moment.
                db.close()
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
            except BaseException:
                db.close()
                raise

    def _migrate(self) -> None:
        with self._transaction("*") as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise UnsupportedLog("*", f"{self.path} has tables of version {version}, known is {_VERSION}")
            if version == 0:
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _transaction(self, run_id: str) -> Iterator[sqlite3.Connection]:
        """One write, whole or not at all; StoreError where SQLite cannot do it."""
        with self._lock, _as_store_error(run_id, self.path):
            db = self._connect()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _rows(self, run_id: str, query: str, *values: object) -> list[tuple[str, ...]]:
        with self._lock, _as_store_error(run_id, self.path):
            return self._connect().execute(query, values).fetchall()

    # --- the log --------------------------------------------------------------------------------

    def append(self, run_id: str, event: Event) -> None:
        """Save one event.

        Raises:
            Conflict, RunExists, StoreError: as `append_many`.
        """
        self.append_many(run_id, [event])

    def append_many(self, run_id: str, events: Sequence[Event]) -> None:
        """Save a batch in one transaction; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            StoreError: SQLite cannot write; nothing of the batch was saved.
        """
        check_run_id(run_id)
        with self._transaction(run_id) as db:
            self._insert(db, run_id, events)

    def _insert(self, db: sqlite3.Connection, run_id: str, events: Sequence[Event]) -> None:
        query = "SELECT coalesce(max(seq) + 1, 0) FROM events WHERE run_id = ?"
        (following,) = db.execute(query, (run_id,)).fetchone()
        for event in events:
            seq = following if event.seq is None else event.seq
            record = _record(numbered(event, seq, event.at))
            if seq > following:
                raise Conflict(run_id, seq, f"seq {following} comes first")
            if seq < following:
                found = "SELECT record FROM events WHERE run_id = ? AND seq = ?"
                if db.execute(found, (run_id, seq)).fetchone() != (record,):
                    raise RunExists(run_id) if seq == 0 else Conflict(run_id, seq)
                continue
            db.execute("INSERT INTO events VALUES (?, ?, ?)", (run_id, seq, record))
            following += 1

    def load(self, run_id: str) -> list[Event]:
        """The events, oldest first; empty for an unknown run.

        Raises:
            CorruptLog: a record is no event.
        """
        return self.load_from(run_id, 0)

    def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on."""
        query = "SELECT seq, record FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq"
        events = []
        for place, record in self._rows(run_id, query, run_id, seq):
            try:
                event = Event.from_dict(strictjson.loads(record))
            except (ValueError, AttributeError, TypeError) as error:
                raise CorruptLog(run_id, int(place), None, str(error)) from None
            events.append(numbered(event, int(place), event.at, run_id))
        return events

    def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        return [str(run_id) for (run_id,) in self._rows("*", "SELECT DISTINCT run_id FROM events ORDER BY 1")]

    def fork(self, src: str, dst: str, at: int | None = None) -> None:
        """Copy a run up to record `at` (all of it where None), marker included, in one transaction.

        Raises:
            RunNotFound, RunExists, StoreError: as named.
        """
        check_run_id(dst)
        parent = self.load(src)
        if not parent:
            raise RunNotFound(src, repr(self))
        cut = len(parent) if at is None else at + 1
        marker = numbered(fork_marker(src, parent, at), cut, round(self._clock(), 3))
        with self._transaction(dst) as db:
            if db.execute("SELECT 1 FROM events WHERE run_id = ?", (dst,)).fetchone():
                raise RunExists(dst)
            copied = "INSERT INTO events SELECT ?, seq, record FROM events WHERE run_id = ? AND seq < ?"
            db.execute(copied, (dst, src, cut))
            db.execute("INSERT INTO events VALUES (?, ?, ?)", (dst, cut, _record(marker)))

    # --- leases ---------------------------------------------------------------------------------

    def lease(self, run_id: str, owner: str, ttl_s: float) -> TimedLease:
        """Become the run's only writer until the lease is given back, or not renewed for `ttl_s` seconds.

        Raises:
            RunBusy: another worker holds it.
        """
        check_run_id(run_id)
        now, host, pid = self._clock(), socket.gethostname(), os.getpid()
        with self._transaction(run_id) as db:
            query = "SELECT epoch, owner, host, pid, since, expires FROM runs WHERE run_id = ?"
            row = db.execute(query, (run_id,)).fetchone() or (0, None, None, None, None, None)
            epoch, holder, holder_host, holder_pid, since, expires = row
            if expires is not None and expires > now and not _is_dead(holder_host, holder_pid):
                raise RunBusy(run_id, holder, holder_host, holder_pid, since, expires)
            db.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run_id, epoch + 1, owner, host, pid, now, now + ttl_s),
            )
        return SQLiteLease(self, run_id, epoch + 1, ttl_s)


class SQLiteLease:
    """One holder's time on a run; it writes through this."""

    def __init__(self, store: SQLiteStore, run_id: str, epoch: int, ttl_s: float) -> None:
        self._store, self._run_id = store, run_id
        self.epoch, self.ttl_s = epoch, ttl_s

    def append_many(self, events: Sequence[Event]) -> None:
        """Save a batch; the epoch is checked in the same transaction.

        Raises:
            Fenced: the run has another holder.
            Conflict, RunExists, StoreError: as the store's.
        """
        with self._store._transaction(self._run_id) as db:
            self._check(db)
            self._store._insert(db, self._run_id, events)

    def renew(self) -> None:
        """Another `ttl_s` seconds from now on.

        Raises:
            Fenced: the run has another holder.
            StoreError: SQLite cannot write.
        """
        with self._store._transaction(self._run_id) as db:
            self._check(db)
            expires = self._store._clock() + self.ttl_s
            db.execute("UPDATE runs SET expires = ? WHERE run_id = ?", (expires, self._run_id))

    def release(self) -> None:
        """Give it back; nothing happens where it is another one's already."""
        with self._store._transaction(self._run_id) as db:
            where = "WHERE run_id = ? AND epoch = ?"
            db.execute(f"UPDATE runs SET expires = NULL {where}", (self._run_id, self.epoch))

    def _check(self, db: sqlite3.Connection) -> None:
        query = "SELECT epoch, owner, host, pid, expires FROM runs WHERE run_id = ?"
        epoch, owner, host, pid, expires = db.execute(query, (self._run_id,)).fetchone() or (0, *[None] * 4)
        if epoch != self.epoch or expires is None:
            who = f"{owner} (pid {pid} on {host})" if owner else "nobody"
            raise Fenced(self._run_id, f"this worker had epoch {self.epoch}, now {who} has epoch {epoch}")


@contextmanager
def _as_store_error(run_id: str, path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(
            run_id, f"{path}: {error}; nothing of this was saved; mend that, then resume the run"
        ) from error


def _record(event: Event) -> str:
    return strictjson.dump_bytes(event.to_dict()).decode()


def _is_dead(host: str | None, pid: int | None) -> bool:
    """True if the holder's process is known to be gone; only its own host can tell."""
    if pid is None or host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
