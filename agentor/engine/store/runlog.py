"""One run's file: where its acknowledged part ends, and how more is put behind it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agentor.engine import codec
from agentor.engine.events import Event
from agentor.engine.store.disk import Disk, open_file, read_all, write_all
from agentor.engine.store.records import fresh, kept, record
from agentor.engine.store.summary import epoch_of
from agentor.errors import CorruptLog, StoreError

SUFFIX = ".jsonl"
_MARKS = 64  # places of the last batches: whoever follows a run reads from one of them on


class Folder:
    """The folder of a `FileStore`: its open handle, its system calls, and what a sync means there."""

    def __init__(self, path: Path, fd: int, disk: Disk, *, full: bool) -> None:
        self.path, self.fd, self.disk, self.full = path, fd, disk, full

    def open(self, run_id: str, name: str, flags: int) -> int:
        """Open a plain file of a run.

        Raises:
            FileNotFoundError, PermissionError: as `os.open`.
            UnsafePath: it is no plain file.
            StoreError: any other refusal.
        """
        try:
            return open_file(self.disk, run_id, name, flags, self.fd)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            raise self.refused(run_id, "open", name, error) from error

    def sync(self, fd: int) -> None:
        if self.full:
            self.disk.sync(fd)

    def sync_names(self) -> None:
        if self.full:
            self.disk.sync_directory(self.fd)

    def refused(self, run_id: str, what: str, name: str, error: OSError) -> StoreError:
        """The error for a system call that failed."""
        return StoreError(
            run_id,
            f"cannot {what} {self.path / name}: {error.strerror}; what was saved before is whole. "
            "Mend the cause, then resume the run",
        )


class RunLog:
    """An open log, read up to its acknowledged end.

    Args:
        acknowledged: Bytes beyond this size do not count; None where nothing is known to be lost.

    Raises:
        FileNotFoundError: no such log.
        CorruptLog, UnsafePath, StoreError: as named.
    """

    def __init__(self, folder: Folder, run_id: str, name: str, acknowledged: int | None = None) -> None:
        self._folder, self._run_id, self._name = folder, run_id, name + SUFFIX
        try:
            self.fd = folder.open(run_id, self._name, os.O_RDWR | os.O_APPEND)
        except PermissionError as error:
            raise folder.refused(run_id, "open", self._name, error) from error
        try:
            self._inode = os.fstat(self.fd).st_ino
            self.data = read_all(self.fd)[:acknowledged]
            self.decoded = decoded = codec.decode(run_id, self.data)
        except BaseException:
            os.close(self.fd)
            raise
        self.end = codec.Mark(decoded.next_seq, decoded.size, decoded.crc)
        self._seen = len(self.data)  # bytes, a torn tail included
        self.epoch = epoch_of(decoded.events)
        self.broken: str | None = None  # why nothing more is written to this run
        self._newline_missing = decoded.newline_missing
        self._marks: deque[codec.Mark] = deque(maxlen=_MARKS)

    def forget_content(self) -> None:
        """Let go of what was read; the end is all that the next append needs."""
        self.data, self.decoded = b"", codec.Decoded()

    def close(self) -> None:
        os.close(self.fd)

    def is_same_file(self) -> bool:
        """True while this file has its name."""
        try:
            info = os.stat(self._name, dir_fd=self._folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return info.st_ino == self._inode

    def has_grown(self) -> bool:
        """True if somebody else wrote to it, or cut it, or a write of ours was cut off."""
        return os.fstat(self.fd).st_size != self._seen

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else appends to this file meanwhile, also without a lease."""
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        fd = self.fd
        try:
            yield
        finally:
            if fd == self.fd:  # else it was closed, and the lock went with it
                fcntl.flock(fd, fcntl.LOCK_UN)

    def events_from(self, seq: int) -> list[Event] | None:
        """The events from `seq` on, also those of other writers; None where the whole log must be read.

        Raises:
            CorruptLog: what was written behind the known end does not continue it.
        """
        marks = [m for m in (*self._marks, self.end) if 0 < m.seq <= seq]
        if not marks or self._newline_missing:
            return None
        start = max(marks, key=lambda m: m.seq)
        data = read_all(self.fd, start.offset)
        decoded = codec.decode(self._run_id, data, start)
        self._seen = start.offset + len(data)
        self._advance(
            codec.Mark(start.seq + len(decoded.events), start.offset + decoded.size, decoded.crc),
            epoch_of(decoded.events, self.epoch),
        )
        return decoded.events[seq - start.seq :]

    def _advance(self, end: codec.Mark, epoch: int) -> None:
        if end.seq > self.end.seq:
            self._marks.append(self.end)
            self.end, self.epoch = end, epoch

    # --- writing --------------------------------------------------------------------------------

    def append(self, events: Sequence[Event]) -> None:
        """Save a batch with one write and one sync; equal events twice are one record.

        Raises:
            RunExists, Conflict, StoreError: as `FileStore.append_many`.
        """
        if self.broken is not None:
            raise StoreError(self._run_id, self.broken)
        stored: dict[int, str] = {}
        if any(e.seq is not None and e.seq < self.end.seq for e in events):
            known = codec.decode(self._run_id, read_all(self.fd)[: self.end.offset]).events
            stored.update((event.seq or 0, record(event)) for event in known)
        new = fresh(self._run_id, events, self.end.seq, stored)
        if not new:
            self._sync_again()
            return
        data, crc = sealed(new, self.end.crc)
        if self._newline_missing:
            data = b"\n" + data
        self._write(data)
        self._newline_missing = False
        self._seen = self.end.offset + len(data)
        end = codec.Mark(self.end.seq + len(new), self._seen, crc)
        self._advance(end, epoch_of((event for event, _ in new), self.epoch))

    def _write(self, data: bytes) -> None:
        if os.fstat(self.fd).st_size > self.end.offset:
            self._set_aside()
        try:
            write_all(self._folder.disk, self.fd, data)
        except OSError as error:
            # What was half written is a torn tail now: the next append sees it, and sets it aside.
            raise self._refused("write to", error) from error
        try:
            self._folder.sync(self.fd)
        except OSError as error:
            self._write_again(data, error)

    def _write_again(self, data: bytes, first: OSError) -> None:
        # After a failed sync the kernel may have dropped the pages and call them clean: what is
        # read back proves nothing. Only a new write and a new sync can.
        folder = self._folder
        try:
            os.close(self.fd)
            self.fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            fd = folder.open(self._run_id, self._name, os.O_RDWR | os.O_APPEND)
            os.close(self.fd)
            self.fd = fd
            folder.disk.truncate(fd, self.end.offset)
            write_all(folder.disk, fd, data)
            folder.sync(fd)
        except (OSError, StoreError) as error:
            self._break(
                f"two syncs of {folder.path / self._name} failed ({first.strerror}, then {error})", error
            )

    def _set_aside(self) -> None:
        """Keep a torn tail, which nobody was told is saved, in a hidden file, and cut it off."""
        folder, size = self._folder, self.end.offset
        torn = read_all(self.fd, size)
        try:
            keep_aside(folder, self._run_id, f".{self._name.removesuffix(SUFFIX)}.torn-{size}", torn)
            folder.disk.truncate(self.fd, size)
            self._seen = size
        except OSError as error:
            raise self._refused("set a torn record aside in", error) from error

    def _sync_again(self) -> None:
        # A repeat of what is there: the first try, or the process that made it, may have ended
        # between the write and its sync.
        try:
            self._folder.sync(self.fd)
        except OSError as error:  # a second sync would succeed and prove nothing
            self._break(f"a sync of {self._folder.path / self._name} failed ({error.strerror})", error)
        try:
            self._folder.sync_names()
        except OSError as error:
            raise self._refused("sync the folder of", error) from error

    def _break(self, what: str, error: Exception) -> None:
        self.broken = (
            f"{what}; this process writes no more to it. Mend the disk, then resume the run in a new process"
        )
        raise StoreError(self._run_id, self.broken) from error

    def _refused(self, what: str, error: OSError) -> StoreError:
        return self._folder.refused(self._run_id, what, self._name, error)


def keep_aside(folder: Folder, run_id: str, name: str, data: bytes) -> None:
    """Save bytes under a hidden name, durably.

    Raises:
        OSError, StoreError: the system refused.
    """
    fd = folder.open(run_id, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(folder.disk, fd, data)
        folder.sync(fd)
    finally:
        os.close(fd)


def sealed(records: Iterable[tuple[Event, str]], crc: int) -> tuple[bytes, int]:
    """The lines of records that follow one whose checksum is `crc`; and the last checksum."""
    lines = []
    for _, text in records:
        line, crc = codec.seal(text.encode(), crc)
        lines.append(line)
    return b"".join(lines), crc


def sound_part(run_id: str, data: bytes, upto: int | None) -> bytes:
    """The bytes of the records up to `upto`, or up to the first damage where it is None.

    Raises:
        ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
    """
    try:
        decoded, damaged = codec.decode(run_id, data), False
    except CorruptLog as error:
        decoded, damaged = codec.decode(run_id, data[: error.offset]), True
    return data[: decoded.ends[kept(run_id, len(decoded.events), upto, damaged=damaged) - 1]]
