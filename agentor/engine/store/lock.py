"""The kernel's lock on a run: freed at its holder's death, also when that has living children."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable

from agentor.errors import RunBusy

_held: dict[int, int] = {}  # lock fd -> pid of the process that took it


def _close_inherited() -> None:
    # A child that kept the descriptor would keep a dead parent's lock; closing it here does not
    # unlock, since the parent's own descriptor is still open.
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


class FileLease:
    """The lock on one open lock file, which says who holds it.

    Args:
        fd: The lock file, open for reading and writing; closed at the end.
        on_release: Called before the lock is given back.

    Raises:
        RunBusy: somebody else holds it; who, where, since when.
    """

    def __init__(self, run_id: str, fd: int, owner: str, on_release: Callable[[], None]) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = _holder(run_id, fd)
            os.close(fd)
            raise busy from None
        except BaseException:
            os.close(fd)
            raise
        _held[fd] = os.getpid()
        self._fd: int | None = fd
        self._on_release = on_release
        about = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(about).encode(), 0)

    def release(self) -> None:
        """Give the lock back; nothing happens the second time, or in a forked child."""
        fd, self._fd = self._fd, None
        if fd is not None and _held.pop(fd, None) == os.getpid():
            self._on_release()
            os.close(fd)


def _holder(run_id: str, fd: int) -> RunBusy:
    try:
        about = json.loads(os.pread(fd, 4096, 0))
        return RunBusy(run_id, about["owner"], about["host"], about["pid"], about["since"])
    except (ValueError, KeyError, TypeError):  # the holder has not written it yet
        return RunBusy(run_id)
