"""One SQLite file, opened so that many processes and forked children can share it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from agentor.engine.store.disk import Disk, is_network, open_directory
from agentor.errors import UnsafePath

_BUSY_S = 30.0  # how long a write waits for the one of another process
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

# SQLite must not be carried into a forked child: its memory says which locks this process has, and a
# thread inside it would leave its mutexes locked for ever. So no connection is opened, used or closed
# while a fork happens; they are closed before, and both sides open their own afterwards.
_files: WeakSet[SQLiteFile] = WeakSet()
_gate = threading.RLock()  # held while any connection is being opened or closed
_held: list[SQLiteFile] = []


def _before_fork() -> None:
    for file in sorted(_files, key=id):
        file._lock.acquire()
        _held.append(file)
    _gate.acquire()
    for file in _held:
        file._close()


def _after_fork() -> None:
    _gate.release()
    while _held:
        _held.pop()._lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class SQLiteFile:
    """Transactions on one file. Calls of several threads wait for each other.

    Raises:
        UnsafePath: something else than a plain file stands there, or it is on a network file system.
    """

    def __init__(self, path: Path, *, network: bool = False, disk: Disk | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        folder = open_directory(path.absolute().parent, disk or Disk())
        try:
            kind = (disk or Disk()).file_system(folder)
            if is_network(kind) and not network:
                raise UnsafePath(
                    "*",
                    f"{path} is on a network file system ({kind}), where SQLite's locks may not hold; use "
                    "a local file, PostgresStore or ObjectStore, or network=True",
                )
            for name in (path.name, self._gate_name):
                os.close(self._plain(name, folder))
            os.fsync(folder)
        finally:
            os.close(folder)
        _files.add(self)

    @property
    def _gate_name(self) -> str:
        return f"{self.path.name}.lock"

    def _plain(self, name: str, folder: int | None) -> int:
        place = self.path.with_name(name) if folder is None else name
        try:
            fd = os.open(place, _FLAGS, 0o600, dir_fd=folder)
        except OSError as error:
            reason = f"{self.path.with_name(name)} cannot be opened as a plain file: {error.strerror}"
            raise UnsafePath("*", reason) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise UnsafePath("*", f"{self.path.with_name(name)} is no plain file")
        return fd

    def __del__(self) -> None:
        self._close()

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        with _gate:
            db, self._connection = getattr(self, "_connection", None), None
            if db is not None:
                with self._alone():
                    db.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process opens or closes the file meanwhile.

        SQLite itself does not wait there: switching to WAL mode fails while another one does it, and
        the last one to close removes files that the next one is about to open.
        """
        fd = self._plain(self._gate_name, None)
        try:
            until = time.monotonic() + _BUSY_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        text = f"{self._gate_name} is locked: another process is opening the file"
                        raise sqlite3.OperationalError(text) from None
                    time.sleep(0.002)
            yield
        finally:
            os.close(fd)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        with _gate, self._alone():
            db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                if db.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                    db.execute("PRAGMA journal_mode = WAL")
                # FULL: a commit is on the medium when it returns; fullfsync: also on macOS
                for pragma in ("synchronous = FULL", "fullfsync = ON", "trusted_schema = OFF"):
                    db.execute(f"PRAGMA {pragma}")
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # recovers what a crash left
            except BaseException:
                db.close()
                raise
            self._connection = db
            return db

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection, for queries."""
        with self._lock:
            yield self._open()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction, whole or not at all; it waits for those of other processes.

        Raises:
            sqlite3.Error: SQLite cannot do it; nothing was written.
        """
        with self._lock:
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
