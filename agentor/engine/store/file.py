"""`FileStore`: one append-only file per run in a folder."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from agentor.engine import codec
from agentor.engine.events import Event
from agentor.engine.store.base import ForkMore, Lease, fork_marker
from agentor.engine.store.disk import Disk, is_network, open_directory, read_all, temporary_prefix, write_all
from agentor.engine.store.filecancel import CANCEL, FileCancels
from agentor.engine.store.glance import glances
from agentor.engine.store.lock import FileLease, lock, unlock
from agentor.engine.store.names import check_run_id, decoded_id, encoded
from agentor.engine.store.records import fresh
from agentor.engine.store.runlog import SUFFIX, Folder, RunLog, keep_aside, sealed, sound_part
from agentor.engine.store.summary import RunInfo
from agentor.engine.store.upkeep import Upkeep
from agentor.errors import CorruptLog, Fenced, RunExists, RunNotFound, StoreError, StoreWarning, UnsafePath

_MAX_OPEN = 128


class FileStore(FileCancels, Upkeep):
    """Runs as files `<directory>/<run_id>.jsonl`, readable by their owner only.

    A log appears with its first record, whole. Each `append` is on the medium when it returns
    (`sync="full"`: survives a killed process and a power loss, if the device honours flushes), or
    with the operating system (`sync="process"`: survives a killed process only). Several processes
    of one host may share the folder. Linux and macOS.

    Args:
        directory: Created (0700) where it does not exist.
        sync: What `append` waits for.
        network: True takes a folder on a network file system all the same: its locks must then be
            seen by every host that uses it, which agentor cannot check.
        disk: The system calls; for tests that let one fail.

    Raises:
        UnsafePath: the folder is on a network file system.
    """

    def __init__(
        self,
        directory: str | Path = "runs",
        *,
        sync: Literal["full", "process"] = "full",
        network: bool = False,
        disk: Disk | None = None,
    ) -> None:
        if sync not in ("full", "process"):
            raise ValueError(f"sync must be 'full' or 'process', not {sync!r}")
        self.directory = Path(directory)
        self._disk = disk or Disk()
        self._lock = threading.RLock()
        self._logs: OrderedDict[str, RunLog] = OrderedDict()
        self._leases: dict[str, FileLease] = {}
        self._pid = os.getpid()
        fd = open_directory(self.directory, self._disk)
        self._folder = Folder(self.directory, fd, self._disk, full=sync == "full")
        kind = self._disk.file_system(fd)
        if is_network(kind) and not network:
            raise UnsafePath(
                None,
                f"{self.directory} is on a network file system ({kind}), where a lock may not hold and a "
                "flush may not flush; use a local folder, PostgresStore or ObjectStore, or network=True",
            )
        if os.fstat(fd).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            warnings.warn(
                f"{self.directory} can be written by others, who can change logs; chmod 700 it",
                StoreWarning,
                stacklevel=2,
            )

    def __del__(self) -> None:
        for log in getattr(self, "_logs", {}).values():
            log.close()
        if hasattr(self, "_folder"):
            os.close(self._folder.fd)

    def __repr__(self) -> str:
        return f"FileStore({str(self.directory)!r})"

    # --- names ----------------------------------------------------------------------------------

    def path(self, run_id: str) -> Path:
        """Where this run's log is, or would be.

        Raises:
            InvalidRunId: the id cannot name a log.
        """
        return self.directory / (self._name(run_id) + SUFFIX)

    def _name(self, run_id: str) -> str:
        check_run_id(run_id)
        if encoded(run_id) == run_id:
            return run_id
        if self._exists(run_id + SUFFIX):  # a log of agentor 0.1 keeps its name
            return run_id
        return encoded(run_id)

    def _exists(self, file_name: str) -> bool:
        try:
            os.stat(file_name, dir_fd=self._folder.fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _log_names(self) -> list[str]:
        return [n for n in os.listdir(self._folder.fd) if n.endswith(SUFFIX) and n[0] != "."]

    def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        return sorted(decoded_id(name.removesuffix(SUFFIX)) for name in self._log_names())

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
        """The events from `seq` on; only what is new is read where it was read before."""
        with self._lock:
            log = self._logs.get(run_id)
            if log is not None and log.broken is None and log.is_same_file():
                if seq >= log.end.seq and not log.has_grown():
                    return []
                with contextlib.suppress(CorruptLog):  # the whole log shows whether it is one
                    if (events := log.events_from(seq)) is not None:
                        return events
            return self._read(run_id)[0].events[seq:]

    def describe(self, run_ids: Sequence[str] | None = None) -> list[RunInfo]:
        """Each run at a glance, from the first and last bytes of its file."""
        if run_ids is None:
            names = sorted((decoded_id(n.removesuffix(SUFFIX)), n) for n in self._log_names())
        else:
            names = [(run_id, self._name(run_id) + SUFFIX) for run_id in run_ids]
        return glances(self._folder, names)

    def _read(self, run_id: str) -> tuple[codec.Decoded, bytes]:
        """The log's content; its end is kept, so that the next append reads nothing."""
        known = self._logs.get(run_id)
        broken = None if known is None else known.broken
        acknowledged = known.end.offset if known is not None and broken else None
        self._forget(run_id)
        try:
            log = RunLog(self._folder, run_id, self._name(run_id), acknowledged)
        except FileNotFoundError:
            return codec.Decoded(), b""
        log.broken = broken
        decoded, data = log.decoded, log.data
        log.forget_content()
        self._keep(run_id, log)
        return decoded, data

    def _keep(self, run_id: str, log: RunLog) -> None:
        self._logs[run_id] = log
        self._logs.move_to_end(run_id)
        healthy = (r for r, kept in self._logs.items() if kept.broken is None)
        if len(self._logs) > _MAX_OPEN and (oldest := next(healthy)) != run_id:
            self._forget(oldest)

    def _forget(self, run_id: str) -> None:
        if (log := self._logs.pop(run_id, None)) is not None:
            log.close()

    # --- writing --------------------------------------------------------------------------------

    def append_many(self, run_id: str, events: Sequence[Event], epoch: int | None = None) -> None:
        """Save a batch with one write and one sync; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            Fenced: the lease with this epoch was given back, or the log names a higher one.
            StoreError: the system refused; nothing of the batch counts as written, and the same
                call may be repeated. After a second failed sync in a row this store writes no more
                to that run.
        """
        if not events:
            return
        with self._lock:
            while (log := self._current(run_id)) is not None:
                with log.alone():
                    if log.broken is None and (log.has_grown() or not log.is_same_file()):
                        continue  # another writer was faster: read what it wrote
                    self._check(run_id, log, epoch)
                    log.append(events)
                    return
            self._check(run_id, None, epoch)
            if events[0].seq:
                raise StoreError(
                    run_id, f"{self.path(run_id)} is gone, {events[0].seq} records with it; restore it"
                )
            self._create(run_id, sealed(fresh(run_id, events, 0, {}), 0)[0])

    def _current(self, run_id: str) -> RunLog | None:
        """The run's log, read again where somebody else wrote to it; None where there is none."""
        if self._pid != os.getpid():  # a forked child and its parent must not share open files
            self._pid = os.getpid()
            for inherited in list(self._logs):
                self._forget(inherited)
        log = self._logs.get(run_id)
        if log is None or (log.broken is None and (not log.is_same_file() or log.has_grown())):
            self._read(run_id)
        return self._logs.get(run_id)

    def _check(self, run_id: str, log: RunLog | None, epoch: int | None) -> None:
        if epoch is None:
            return
        lease = self._leases.get(run_id)
        if lease is None or lease.epoch != epoch:
            raise Fenced(run_id, f"this worker's lease (epoch {epoch}) was given back")
        if log is not None and log.epoch > epoch:
            raise Fenced(run_id, f"this worker had epoch {epoch}, its log names epoch {log.epoch}")

    def _create(self, run_id: str, data: bytes) -> None:
        """Make a log appear whole under its name, or not at all."""
        name = self._name(run_id) + SUFFIX
        try:
            temporary = self._written(run_id, name, data)
            try:
                self._disk.link(temporary, name, self._folder.fd)
            finally:
                with contextlib.suppress(FileNotFoundError):  # a reader cleaned up before us
                    self._disk.unlink(temporary, self._folder.fd)
            self._folder.sync_names()
        except FileExistsError:
            raise RunExists(run_id) from None
        except OSError as error:
            raise self._folder.refused(run_id, "create", name, error) from error

    def _written(self, run_id: str, name: str, data: bytes) -> str:
        """Save bytes under a hidden name of ours, which is returned."""
        temporary = f"{temporary_prefix(name)}{os.getpid()}-{threading.get_ident()}"
        fd = self._folder.open(run_id, temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(self._disk, fd, data)
            self._folder.sync(fd)
        finally:
            os.close(fd)
        return temporary

    def fork(self, src: str, dst: str, at: int | None = None, more: ForkMore | None = None) -> None:
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
            marker = fork_marker(src, decoded.events, at, more)
            cut = marker.seq or 0
            copied = data[: decoded.ends[cut - 1]]
            if not copied.endswith(b"\n"):
                copied += b"\n"
            if self._exists(self._name(dst) + SUFFIX):
                raise RunExists(dst)
            self._create(dst, copied + codec.encode(marker, decoded.crcs[cut - 1])[0])

    # --- removing and mending -------------------------------------------------------------------

    def delete(self, run_id: str, epoch: int | None = None) -> None:
        """Remove a run with all that was set aside of it; whole or not at all.

        Raises:
            RunNotFound: no such run.
            RunBusy: somebody holds it, who is not the caller with this `epoch`.
            StoreError: the system refused.
        """
        with self._lock, self._locked(run_id, epoch, "delete"):
            name = self._name(run_id)
            self._forget(run_id)
            try:
                self._disk.unlink(name + SUFFIX, self._folder.fd)
                self._folder.sync_names()
            except FileNotFoundError:
                raise RunNotFound(run_id, repr(self)) from None
            except OSError as error:
                raise self._folder.refused(run_id, "delete", name + SUFFIX, error) from error
            finally:  # whoever waits at the lock sees that its file is gone, and takes a new one
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name + ".lock", dir_fd=self._folder.fd)
            for aside in os.listdir(self._folder.fd):
                if aside.startswith((f".{name}.torn-", f".{name}.damaged-")) or aside in (
                    f"{name}.trace.json",
                    name + CANCEL,
                ):
                    self._disk.unlink(aside, self._folder.fd)

    def repair(self, run_id: str, upto: int | None = None) -> str:
        """Cut a log behind record `upto`, and keep the file as it was under a hidden name.

        Args:
            upto: None: the last record before the damage.

        Returns:
            The path of the kept file.

        Raises:
            RunNotFound, RunBusy: as `delete`.
            ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
        """
        with self._lock, self._locked(run_id, None, "repair"):
            name = self._name(run_id)
            self._forget(run_id)
            try:
                fd = self._folder.open(run_id, name + SUFFIX, os.O_RDONLY)
            except FileNotFoundError:
                raise RunNotFound(run_id, repr(self)) from None
            try:
                data = read_all(fd)
            finally:
                os.close(fd)
            kept = sound_part(run_id, data, upto)
            aside = f".{name}.damaged-{time.time_ns() // 1_000_000}"
            try:
                keep_aside(self._folder, run_id, aside, data)
                temporary = self._written(run_id, name + SUFFIX, kept)
                self._disk.replace(temporary, name + SUFFIX, self._folder.fd)
                self._folder.sync_names()
            except OSError as error:
                raise self._folder.refused(run_id, "repair", name + SUFFIX, error) from error
            return str(self.directory / aside)

    # --- the lock -------------------------------------------------------------------------------

    def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease:
        """Become the run's only writer on this host, until `release` or the process's death.

        The kernel frees the lock, so `ttl_s` plays no part: a stopped process still holds it.

        Raises:
            RunBusy: another one holds it; who, where, since when.
        """
        taken = self._take(run_id, owner)
        try:
            with self._lock:
                log = self._current(run_id)
                taken.begin(0 if log is None else log.epoch)
                self._leases[run_id] = taken
        except BaseException:
            taken.release()
            raise
        return taken

    def _take(self, run_id: str, owner: str) -> FileLease:
        name = self._name(run_id) + ".lock"
        fd = lock(self._folder, run_id, name)
        try:
            return FileLease(run_id, fd, owner, on_release=self._let_go)
        except OSError as error:
            unlock(fd)
            raise self._folder.refused(run_id, "write to", name, error) from error

    @contextlib.contextmanager
    def _locked(self, run_id: str, epoch: int | None, owner: str) -> Iterator[None]:
        """Under the caller's own lease with this epoch, else under a lock for this act alone."""
        mine = self._leases.get(run_id)
        if mine is not None and epoch is not None and mine.epoch == epoch:
            yield
            return
        taken = self._take(run_id, owner)
        try:
            yield
        finally:
            taken.release()

    def _let_go(self, lease: FileLease) -> None:
        with self._lock:
            if self._leases.get(lease.run_id) is lease:
                del self._leases[lease.run_id]
            log = self._logs.get(lease.run_id)
            if log is not None and log.broken is None:
                self._forget(lease.run_id)
