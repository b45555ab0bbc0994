"""Disks that die or fail at the n-th operation, and one that remembers what a power loss may take."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from agentor.engine.store.disk import Disk


class CountingDisk(Disk):
    """Counts every operation and gives each a number; subclasses act on it."""

    def __init__(self) -> None:
        self.operations = 0
        self.syncs = 0

    def act(self, name: str, work: Callable[[], object], half: Callable[[], object]) -> object:
        self.operations += 1
        return work()

    def open(self, name: str, flags: int, directory: int) -> int:
        real = super().open
        return int(self.act("open", lambda: real(name, flags, directory), lambda: None))  # type: ignore[call-overload]

    def write(self, fd: int, data: bytes) -> int:
        real = super().write
        cut = data[: max(1, len(data) // 2)]
        return int(self.act("write", lambda: real(fd, data), lambda: real(fd, cut)))  # type: ignore[call-overload]

    def sync(self, fd: int) -> None:
        self.syncs += 1
        real = super().sync
        self.act("sync", lambda: real(fd), lambda: None)

    def sync_directory(self, fd: int) -> None:
        real = super().sync_directory
        self.act("sync_directory", lambda: real(fd), lambda: None)

    def truncate(self, fd: int, size_bytes: int) -> None:
        real = super().truncate
        self.act("truncate", lambda: real(fd, size_bytes), lambda: None)

    def link(self, name: str, final: str, directory: int) -> None:
        real = super().link
        self.act("link", lambda: real(name, final, directory), lambda: None)

    def unlink(self, name: str, directory: int) -> None:
        real = super().unlink
        self.act("unlink", lambda: real(name, directory), lambda: None)


class DeadlyDisk(CountingDisk):
    """Kills its own process with SIGKILL before, in the middle of, or after the n-th operation."""

    def __init__(self, at: int, moment: str) -> None:
        super().__init__()
        self._at, self._moment = at, moment

    def act(self, name: str, work: Callable[[], object], half: Callable[[], object]) -> object:
        self.operations += 1
        if self.operations != self._at:
            return work()
        if self._moment == "half":
            half()
        elif self._moment == "after":
            work()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


class FailingDisk(CountingDisk):
    """Fails `times` operations from the n-th on.

    A failed sync drops the bytes that were not synced yet and leaves zeros, as Linux may.
    """

    def __init__(self, at: int, code: int = errno.EIO, times: int = 1) -> None:
        super().__init__()
        self._at, self._code, self._times = at, code, times
        self._synced: dict[int, int] = {}  # inode -> size

    def act(self, name: str, work: Callable[[], object], half: Callable[[], object]) -> object:
        self.operations += 1
        if self._at <= self.operations < self._at + self._times:
            if self._code == errno.ENOSPC:
                half()
            raise OSError(self._code, os.strerror(self._code))
        return work()

    def sync(self, fd: int) -> None:
        info = os.fstat(fd)
        try:
            super().sync(fd)
        except OSError:
            kept = self._synced.get(info.st_ino, 0)
            path = os.readlink(f"/proc/self/fd/{fd}")
            other = os.open(path, os.O_WRONLY)
            os.pwrite(other, b"\0" * (info.st_size - kept), kept)
            os.close(other)
            raise
        self._synced[info.st_ino] = info.st_size


@dataclass
class Remembered:
    """One file as the medium may hold it."""

    synced: bytes = b""
    written: bytes = b""


@dataclass
class PowerDisk(CountingDisk):
    """Remembers, after each operation, what is surely on the medium and what may be."""

    states: list[tuple[dict[str, int], dict[str, int], dict[int, Remembered]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.files: dict[int, Remembered] = {}  # inode -> content
        self.entries: dict[str, int] = {}  # name -> inode, as the running system sees it
        self.durable_entries: dict[str, int] = {}  # as the last directory sync left it

    def _remember(self) -> None:
        files = {inode: Remembered(f.synced, f.written) for inode, f in self.files.items()}
        self.states.append((dict(self.entries), dict(self.durable_entries), files))

    def open(self, name: str, flags: int, directory: int) -> int:
        fd = super().open(name, flags, directory)
        inode = os.fstat(fd).st_ino
        if flags & os.O_TRUNC or inode not in self.files:
            self.files[inode] = Remembered()
        if flags & os.O_CREAT:
            self.entries[name] = inode
        self._remember()
        return fd

    def write(self, fd: int, data: bytes) -> int:
        count = super().write(fd, data)
        self.files[os.fstat(fd).st_ino].written += bytes(data[:count])
        self._remember()
        return count

    def sync(self, fd: int) -> None:
        super().sync(fd)
        file = self.files[os.fstat(fd).st_ino]
        file.synced = file.written
        self._remember()

    def sync_directory(self, fd: int) -> None:
        super().sync_directory(fd)
        self.durable_entries = dict(self.entries)
        self._remember()

    def link(self, name: str, final: str, directory: int) -> None:
        super().link(name, final, directory)
        self.entries[final] = self.entries[name]
        self._remember()

    def unlink(self, name: str, directory: int) -> None:
        super().unlink(name, directory)
        self.entries.pop(name, None)
        self._remember()
