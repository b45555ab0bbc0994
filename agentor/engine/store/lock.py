"""The kernel's lock on a run: freed at its holder's death, also when that has living children."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any  # what a lock file says

from agentor.engine.store.runlog import Folder
from agentor.errors import RunBusy

_held: dict[int, int] = {}  # lock fd -> pid of the process that took it


def _close_inherited() -> None:
    # A child that kept the descriptor would keep a dead parent's lock; closing it here does not
    # unlock, since the parent's own descriptor is still open.
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


def lock(folder: Folder, run_id: str, name: str) -> int:
    """Lock the lock file of a run; the descriptor that holds the lock.

    Raises:
        RunBusy: somebody else holds it; who, where, since when.
        UnsafePath, StoreError: the file cannot be opened.
    """
    while True:
        try:
            fd = folder.open(run_id, name, os.O_RDWR | os.O_CREAT)
        except PermissionError as error:
            raise folder.refused(run_id, "open", name, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(folder, name, fd):
                _held[fd] = os.getpid()
                return fd
        except BlockingIOError:
            busy = _holder(run_id, fd)
            os.close(fd)
            raise busy from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the run was deleted meanwhile, and this lock file with it


def unlock(fd: int) -> None:
    """Close a locked file, which frees the lock."""
    del _held[fd]
    os.close(fd)


def _is_named(folder: Folder, name: str, fd: int) -> bool:
    try:
        return os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


class FileLease:
    """The lock on one open lock file, which says who holds it.

    Args:
        fd: The locked file; closed at the end.
        on_release: Called before the lock is given back.
    """

    ttl_s = None

    def __init__(self, run_id: str, fd: int, owner: str, on_release: Callable[[FileLease], None]) -> None:
        self.run_id, self._fd, self._owner = run_id, fd, owner
        self._on_release = on_release
        self.epoch = _about(fd).get("epoch", 0)
        self._write()

    def begin(self, epoch_in_log: int) -> None:
        """Number this lease: higher than all before, by the lock file and by the log."""
        self.epoch = max(self.epoch, epoch_in_log) + 1
        self._write()

    def _write(self) -> None:
        holder = {"owner": self._owner, "host": socket.gethostname(), "pid": os.getpid()}
        text = json.dumps({**holder, "since": time.time(), "epoch": self.epoch}).encode()
        os.pwrite(self._fd, text, 0)  # before the old end is cut off: the epoch must not get lost
        os.ftruncate(self._fd, len(text))

    def renew(self) -> None:
        """Nothing to do: the kernel keeps the lock."""

    def release(self) -> None:
        """Give the lock back; nothing happens the second time, or in a forked child."""
        fd, self._fd = self._fd, -1
        if _held.get(fd) == os.getpid():
            self._on_release(self)
            unlock(fd)


def _about(fd: int) -> dict[str, Any]:
    try:
        about = json.loads(os.pread(fd, 4096, 0))
    except ValueError:  # nobody has written it yet, or a crash left a part of it
        return {}
    return about if isinstance(about, dict) else {}


def _holder(run_id: str, fd: int) -> RunBusy:
    about = _about(fd)
    return RunBusy(run_id, *(about.get(key) for key in ("owner", "host", "pid", "since")))
