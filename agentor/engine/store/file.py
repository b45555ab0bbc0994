"""`FileStore`: one append-only file per run in a folder."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from agentor.engine import codec
from agentor.engine.events import Event, numbered
from agentor.engine.store.base import Lease, fork_marker
from agentor.engine.store.disk import Disk, open_directory, open_file, read_all, temporary_prefix, write_all
from agentor.engine.store.lock import FileLease
from agentor.engine.store.names import check_run_id, decoded_id, encoded
from agentor.errors import (
    Conflict,
    RunExists,
    RunNotFound,
    StoreError,
    StoreWarning,
)

_SUFFIX = ".jsonl"
_MAX_OPEN = 128


class _Tail:
    """Where a run's log ends, as last acknowledged, and the open file."""

    __slots__ = ("broken", "crc", "fd", "inode", "newline_missing", "next_seq", "size")

    def __init__(self, fd: int, inode: int, decoded: codec.Decoded) -> None:
        self.fd, self.inode = fd, inode
        self.size, self.crc, self.next_seq = decoded.size, decoded.crc, decoded.next_seq
        self.newline_missing = decoded.newline_missing
        self.broken: str | None = None  # why nothing more is written to this run


class FileStore:
    """Runs as files `<directory>/<run_id>.jsonl`, readable by their owner only.

    A log appears with its first record, whole. Each `append` is on the medium when it returns
    (`sync="full"`: survives a killed process and a power loss, if the device honours flushes), or
    with the operating system (`sync="process"`: survives a killed process only). Several processes
    of one host may share the folder; network file systems are not supported. Linux and macOS.

    Args:
        directory: Created (0700) where it does not exist.
        sync: What `append` waits for.
        disk: The system calls; for tests that let one fail.
    """

    def __init__(
        self,
        directory: str | Path = "runs",
        *,
        sync: Literal["full", "process"] = "full",
        disk: Disk | None = None,
    ) -> None:
        if sync not in ("full", "process"):
            raise ValueError(f"sync must be 'full' or 'process', not {sync!r}")
        self.directory = Path(directory)
        self._full = sync == "full"
        self._disk = disk or Disk()
        self._lock = threading.RLock()
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self._folder = open_directory(self.directory, self._disk)
        if os.fstat(self._folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            warnings.warn(
                f"{self.directory} can be written by others, who can change logs; chmod 700 it",
                StoreWarning,
                stacklevel=2,
            )

    def __del__(self) -> None:
        for tail in getattr(self, "_tails", {}).values():
            os.close(tail.fd)
        if hasattr(self, "_folder"):
            os.close(self._folder)

    def __repr__(self) -> str:
        return f"FileStore({str(self.directory)!r})"

    # --- names ----------------------------------------------------------------------------------

    def path(self, run_id: str) -> Path:
        """Where this run's log is, or would be.

        Raises:
            InvalidRunId: the id cannot name a log.
        """
        return self.directory / (self._name(run_id) + _SUFFIX)

    def _name(self, run_id: str) -> str:
        check_run_id(run_id)
        if encoded(run_id) == run_id:
            return run_id
        if self._exists(run_id + _SUFFIX):  # a log of agentor 0.1 keeps its name
            return run_id
        return encoded(run_id)

    def _exists(self, file_name: str) -> bool:
        try:
            os.stat(file_name, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        names = [n for n in os.listdir(self._folder) if n.endswith(_SUFFIX) and n[0] != "."]
        return sorted(decoded_id(name.removesuffix(_SUFFIX)) for name in names)

    # --- reading --------------------------------------------------------------------------------

    def load(self, run_id: str) -> list[Event]:
        """The acknowledged events, oldest first; empty for an unknown run.

        Raises:
            CorruptLog: the file is damaged; where, and how.
            UnsafePath: it is no plain file.
        """
        with self._lock:
            return self._read(run_id)[0].events

    def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on; nothing is read where nobody wrote since the last look."""
        with self._lock:
            tail = self._tails.get(run_id)
            if tail is not None and seq >= tail.next_seq and self._is_current(run_id, tail):
                return []
            return self._read(run_id)[0].events[seq:]

    def _read(self, run_id: str) -> tuple[codec.Decoded, bytes]:
        """The log's bytes, read; the tail is kept, so that the next append reads nothing."""
        broken = self._tails[run_id].broken if run_id in self._tails else None
        acknowledged = self._tails[run_id].size if broken else None
        self._forget(run_id)
        try:
            fd = self._open(run_id, self._name(run_id) + _SUFFIX, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return codec.Decoded(), b""
        except PermissionError as error:
            raise self._refused(run_id, "open", error) from error
        try:
            data = read_all(fd)[:acknowledged]
            decoded = codec.decode(run_id, data)
        except BaseException:
            os.close(fd)
            raise
        tail = _Tail(fd, os.fstat(fd).st_ino, decoded)
        tail.broken = broken
        self._keep(run_id, tail)
        return decoded, data

    def _open(self, run_id: str, file_name: str, flags: int) -> int:
        try:
            return open_file(self._disk, run_id, file_name, flags, self._folder)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            raise self._refused(run_id, "open", error) from error

    def _keep(self, run_id: str, tail: _Tail) -> None:
        self._tails[run_id] = tail
        self._tails.move_to_end(run_id)
        healthy = (r for r, t in self._tails.items() if t.broken is None)
        if len(self._tails) > _MAX_OPEN and (oldest := next(healthy)) != run_id:
            self._forget(oldest)

    def _forget(self, run_id: str) -> None:
        if (tail := self._tails.pop(run_id, None)) is not None:
            os.close(tail.fd)

    def _is_current(self, run_id: str, tail: _Tail) -> bool:
        if tail.broken is not None:
            return True
        try:
            info = os.stat(self._name(run_id) + _SUFFIX, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (info.st_ino, info.st_size) == (tail.inode, tail.size)

    # --- writing --------------------------------------------------------------------------------

    def append(self, run_id: str, event: Event) -> None:
        """Save one event; as `append_many`."""
        self.append_many(run_id, [event])

    def append_many(self, run_id: str, events: Sequence[Event]) -> None:
        """Save a batch with one write and one sync; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            StoreError: the system refused; nothing of the batch counts as written, and the same
                call may be repeated. After a second failed sync in a row this store writes no more
                to that run.
        """
        if not events:
            return
        with self._lock:
            tail = self._tails.get(run_id)
            if tail is None or not self._is_current(run_id, tail):
                self._read(run_id)
                tail = self._tails.get(run_id)
            if tail is not None and tail.broken is not None:
                raise StoreError(run_id, tail.broken)
            if tail is None and events[0].seq:
                raise StoreError(
                    run_id, f"{self.path(run_id)} is gone, {events[0].seq} records with it; restore it"
                )
            if tail is None:
                self._create(run_id, _encode_all(run_id, events, 0, 0)[0])
                return
            new = self._new_ones(run_id, tail, events)
            if not new:
                self._sync_again(run_id, tail)
            else:
                data, crc = _encode_all(run_id, new, tail.next_seq, tail.crc)
                self._write(run_id, tail, data)
                tail.size += len(data) + tail.newline_missing
                tail.newline_missing = False
                tail.crc, tail.next_seq = crc, tail.next_seq + len(new)

    def _new_ones(self, run_id: str, tail: _Tail, events: Sequence[Event]) -> list[Event]:
        new = [e for e in events if e.seq is None or e.seq >= tail.next_seq]
        if len(new) < len(events):
            stored = codec.decode(run_id, read_all(tail.fd)[: tail.size]).events
            for event in events:
                if event.seq is not None and event.seq < tail.next_seq and stored[event.seq] != event:
                    raise RunExists(run_id) if event.seq == 0 else Conflict(run_id, event.seq)
        return new

    def _write(self, run_id: str, tail: _Tail, data: bytes) -> None:
        if tail.newline_missing:
            data = b"\n" + data
        if os.fstat(tail.fd).st_size > tail.size:
            self._set_aside(run_id, tail)
        try:
            write_all(self._disk, tail.fd, data)
        except OSError as error:
            # What was half written is a torn tail now: the next append sees it, and sets it aside.
            raise self._refused(run_id, "write to", error) from error
        try:
            self._sync(tail.fd)
        except OSError as error:
            self._write_again(run_id, tail, data, error)

    def _write_again(self, run_id: str, tail: _Tail, data: bytes, first: OSError) -> None:
        # After a failed sync the kernel may have dropped the pages and call them clean: what is
        # read back proves nothing. Only a new write and a new sync can.
        try:
            os.close(tail.fd)
            tail.fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            fd = self._open(run_id, self._name(run_id) + _SUFFIX, os.O_RDWR | os.O_APPEND)
            os.close(tail.fd)
            tail.fd = fd
            self._disk.truncate(fd, tail.size)
            write_all(self._disk, fd, data)
            self._sync(fd)
        except (OSError, StoreError) as error:
            tail.broken = (
                f"two syncs of {self.path(run_id)} failed ({first.strerror}, then {error}); this "
                "process writes no more to it. Mend the disk, then resume the run in a new process"
            )
            raise StoreError(run_id, tail.broken) from error

    def _set_aside(self, run_id: str, tail: _Tail) -> None:
        """Keep a torn tail, which nobody was told is saved, in a hidden file, and cut it off."""
        torn = os.pread(tail.fd, os.fstat(tail.fd).st_size - tail.size, tail.size)
        name = f".{self._name(run_id)}.torn-{tail.size}"
        try:
            fd = self._open(run_id, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(self._disk, fd, torn)
                self._sync(fd)
            finally:
                os.close(fd)
            self._disk.truncate(tail.fd, tail.size)
        except OSError as error:
            raise self._refused(run_id, "set a torn record aside in", error) from error

    def _sync(self, fd: int) -> None:
        if self._full:
            self._disk.sync(fd)

    def _sync_again(self, run_id: str, tail: _Tail) -> None:
        # A repeat of what is there: the first try, or the process that made it, may have ended
        # between the write and its sync.
        try:
            self._sync(tail.fd)
        except OSError as error:  # a second sync would succeed and prove nothing
            tail.broken = (
                f"a sync of {self.path(run_id)} failed ({error.strerror}); this process writes no more "
                "to it. Mend the disk, then resume the run in a new process"
            )
            raise StoreError(run_id, tail.broken) from error
        try:
            if self._full:
                self._disk.sync_directory(self._folder)
        except OSError as error:
            raise self._refused(run_id, "sync the folder of", error) from error

    def _refused(self, run_id: str, what: str, error: OSError) -> StoreError:
        return StoreError(
            run_id,
            f"cannot {what} {self.path(run_id)}: {error.strerror}; what was saved before is whole. "
            "Mend the cause, then resume the run",
        )

    # --- new logs -------------------------------------------------------------------------------

    def _create(self, run_id: str, data: bytes) -> None:
        """Make a log appear whole under its name, or not at all."""
        name = self._name(run_id)
        temporary = f"{temporary_prefix(name + _SUFFIX)}{os.getpid()}-{threading.get_ident()}"
        try:
            fd = self._open(run_id, temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(self._disk, fd, data)
                self._sync(fd)
            finally:
                os.close(fd)
            try:
                self._disk.link(temporary, name + _SUFFIX, self._folder)
            finally:
                with contextlib.suppress(FileNotFoundError):  # a reader cleaned up before us
                    self._disk.unlink(temporary, self._folder)
            if self._full:
                self._disk.sync_directory(self._folder)
        except FileExistsError:
            raise RunExists(run_id) from None
        except OSError as error:
            raise self._refused(run_id, "create", error) from error

    def fork(self, src: str, dst: str, at: int | None = None) -> None:
        """Copy a run's bytes up to record `at` (all of it where None), and add the marker.

        Raises:
            RunNotFound, RunExists, CorruptLog: as named.
            ValueError: the parent has no record `at`.
        """
        check_run_id(dst)
        with self._lock:
            decoded, data = self._read(src)
            if not decoded.events:
                raise RunNotFound(src, repr(self))
            cut = len(decoded.events) if at is None else at + 1
            if not 1 <= cut <= len(decoded.events):
                raise ValueError(f"run {src!r} has no record {at}")
            copied = data[: decoded.ends[cut - 1]]
            if not copied.endswith(b"\n"):
                copied += b"\n"
            marker = numbered(fork_marker(src, decoded.events, at), cut, round(time.time(), 3))
            if self._exists(self._name(dst) + _SUFFIX):
                raise RunExists(dst)
            self._create(dst, copied + codec.encode(marker, decoded.crcs[cut - 1])[0])

    # --- the lock -------------------------------------------------------------------------------

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease:
        """Become the run's only writer on this host, until `release` or the process's death.

        The kernel frees the lock, so `ttl_s` plays no part: a stopped process still holds it.

        Raises:
            RunBusy: another one holds it; who, where, since when.
        """
        fd = self._open(run_id, self._name(run_id) + ".lock", os.O_RDWR | os.O_CREAT)
        return FileLease(run_id, fd, owner, on_release=lambda: self._let_go(run_id))

    def _let_go(self, run_id: str) -> None:
        with self._lock:
            if run_id in self._tails and self._tails[run_id].broken is None:
                self._forget(run_id)


def _encode_all(run_id: str, events: Sequence[Event], seq: int, crc: int) -> tuple[bytes, int]:
    lines = []
    for place, event in enumerate(events, seq):
        if event.seq is None:
            event = numbered(event, place, event.at)
        elif event.seq != place:
            raise Conflict(run_id, event.seq, f"seq {place} comes first")
        line, crc = codec.encode(event, crc)
        lines.append(line)
    return b"".join(lines), crc
