"""The system calls of `FileStore`, each one once: safe opening and durable writing."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

from agentor.errors import UnsafePath

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # NONBLOCK: opening a FIFO must not wait


class Disk:
    """What the store asks of the operating system; tests give one that fails where they say."""

    def open(self, name: str, flags: int, directory: int) -> int:
        return os.open(name, flags | _FLAGS, 0o600, dir_fd=directory)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Data and size on the medium. On macOS only F_FULLFSYNC says so."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def sync_directory(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def link(self, name: str, final: str, directory: int) -> None:
        """Give a finished file its name; FileExistsError where the name is taken."""
        os.link(name, final, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)

    def unlink(self, name: str, directory: int) -> None:
        os.unlink(name, dir_fd=directory)

    def replace(self, name: str, final: str, directory: int) -> None:
        """Give a finished file the name of another one, which is gone then."""
        os.replace(name, final, src_dir_fd=directory, dst_dir_fd=directory)

    def file_system(self, fd: int) -> str | None:
        """The kind of file system that a file is on, as the kernel calls it; None where it does not say."""
        return kind_of(os.fstat(fd).st_dev)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write every byte at the end of the file, however many calls it takes."""
    view = memoryview(data)
    while view:
        written = disk.write(fd, view)  # type: ignore[arg-type]  # os.write takes any buffer
        if written <= 0:
            raise OSError(errno.EIO, "the system wrote nothing")
        view = view[written:]


def read_all(fd: int, offset: int = 0) -> bytes:
    """The whole file, or what stands in it from `offset` on."""
    size = os.fstat(fd).st_size
    parts = []
    while offset < size and (part := os.pread(fd, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def open_file(disk: Disk, run_id: str, name: str, flags: int, directory: int) -> int:
    """Open a plain file of ours.

    Raises:
        FileNotFoundError, FileExistsError: as `os.open`.
        UnsafePath: a link, FIFO, device or folder stands there, or a second name leads to the file.
    """
    try:
        fd = disk.open(name, flags, directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK):
            raise UnsafePath(run_id, f"{name} is no plain file ({error.strerror})") from None
        raise
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
        _drop_leftovers(disk, name, info.st_ino, directory)
        info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
        os.close(fd)
        raise UnsafePath(run_id, f"{name} is no plain file, or has a second name elsewhere")
    return fd


_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "glusterfs",
    "gpfs",
    "beegfs",
}


def is_network(kind: str | None) -> bool:
    """True for file systems whose locks and flushes another host may not see.

    A FUSE file system counts as one unless it is known to be local: most of them are remote.
    """
    if kind is None:
        return False
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in ("fuse.lxcfs", "fuse.overlayfs"))


def kind_of(device: int, mounts: str | None = None) -> str | None:
    """The file system type of a device, from Linux's table of mounts; None where there is none.

    Args:
        mounts: Such a table (proc(5), `mountinfo`); None for this process's own.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] == wanted and "-" in fields[:-1]:
            return fields[fields.index("-") + 1]
    return None


def temporary_prefix(name: str) -> str:
    """How the hidden name begins under which a log is made before it gets its own."""
    return f".{name}.new-"


def _drop_leftovers(disk: Disk, name: str, inode: int, directory: int) -> None:
    """Unlink the hidden name that a crash in the middle of a creation left to the same file."""
    for other in os.listdir(directory):
        if other.startswith(temporary_prefix(name)):
            try:
                if os.stat(other, dir_fd=directory, follow_symlinks=False).st_ino == inode:
                    disk.unlink(other, directory)
            except FileNotFoundError:
                continue  # its maker was faster


def open_directory(path: Path, disk: Disk) -> int:
    """Create the folder (0700) and its parents, durably, and open it.

    Raises:
        UnsafePath: something else stands there, or it may not be made.
    """
    missing = []
    step = path
    while not step.exists():
        missing.append(step)
        step = step.parent
    try:
        for folder in reversed(missing):
            _make(folder, disk)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (NotADirectoryError, PermissionError) as error:
        raise UnsafePath(None, f"{path} cannot be used as a folder: {error.strerror}") from None


def _make(folder: Path, disk: Disk) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return  # another process was faster
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.sync_directory(parent)
    finally:
        os.close(parent)
