"""One SQLite file, opened so that many processes and forked children can share it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from agentor.engine.store.disk import Disk, is_network, open_directory
from agentor.errors import UnsafePath

_BUSY_S = 30.0  # how long a write waits for the one of another process
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class _Gate:
    """One at a time, in this process and in all others, opens or closes a file.

    SQLite itself does not wait there: switching to WAL mode fails while another one does it, and the
    last one to close removes files that the next one is about to open.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._inside = False
        self._late: list[tuple[Path, sqlite3.Connection]] = []

    @contextmanager
    def alone(self, path: Path) -> Iterator[None]:
        """Held for one file.

        Raises:
            sqlite3.OperationalError: another process has held it for too long.
        """
        with self.lock:
            fd = os.open(lock_name(path), _FLAGS, 0o600)
            try:
                _wait_for(fd, path)
                self._inside = True
                yield
            finally:
                self._inside = False
                os.close(fd)
            while self._late:
                self.close(*self._late.pop())

    def close(self, path: Path, db: sqlite3.Connection) -> None:
        """Close a connection; later, where the garbage collector comes by while this thread is inside."""
        with self.lock:
            if self._inside:
                self._late.append((path, db))
                return
            with ExitStack() as alone:
                with suppress(OSError, sqlite3.Error):  # the folder may be gone; nobody opens the file then
                    alone.enter_context(self.alone(path))
                db.close()


def lock_name(path: Path) -> Path:
    """The file whose lock the gate is."""
    return path.with_name(f"{path.name}.lock")


def _wait_for(fd: int, path: Path) -> None:
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                text = f"{lock_name(path).name} is locked: another process is opening the file"
                raise sqlite3.OperationalError(text) from None
            time.sleep(0.002)  # the kernel can wait, but not for a limited time


# SQLite must not be carried into a forked child: its memory says which locks this process has, and a
# thread inside it would leave its mutexes locked for ever. So no connection is opened, used or closed
# while a fork happens; they are closed before, and both sides open their own afterwards.
_gate = _Gate()
_files: WeakSet[SQLiteFile] = WeakSet()
_held: list[SQLiteFile] = []


def _before_fork() -> None:
    for file in sorted(_files, key=id):
        file._lock.acquire()
        _held.append(file)
    _gate.lock.acquire()
    for file in _held:
        file._close()


def _after_fork() -> None:
    _gate.lock.release()
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
                    None,
                    f"{path} is on a network file system ({kind}), where SQLite's locks may not hold; use "
                    "a local file, PostgresStore or ObjectStore, or network=True",
                )
            _check_kind(path, folder)
            os.close(_plain(lock_name(path), folder))
            with _gate.alone(path):
                _create(path, folder)
            os.fsync(folder)
        finally:
            os.close(folder)
        _files.add(self)

    def __del__(self) -> None:
        self._close()

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        db, self._connection = getattr(self, "_connection", None), None
        if db is not None:
            _gate.close(self.path, db)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        with _gate.alone(self.path):
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


def _create(path: Path, folder: int) -> None:
    """Make the file where there is none, readable by its owner only."""
    if not _check_kind(path, folder):
        os.close(_plain(path, folder))


def _check_kind(path: Path, folder: int) -> bool:
    """False where nothing stands there.

    It must not be opened to look at it: closing it again would drop the locks that SQLite, which may
    have it open in this process, holds on it (sqlite.org/howtocorrupt.html, 2.2).
    """
    try:
        info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(info.st_mode):
        raise UnsafePath(None, f"{path} is no plain file")
    return True


def _plain(path: Path, folder: int) -> int:
    try:
        fd = os.open(path.name, _FLAGS, 0o600, dir_fd=folder)
    except OSError as error:
        raise UnsafePath(None, f"{path} cannot be opened as a plain file: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnsafePath(None, f"{path} is no plain file")
    return fd
