"""Child processes that end with the one that started them, also where that one is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def started(
    command: list[str], folder: Path, user: str | None, death: int = signal.SIGINT
) -> subprocess.Popen[bytes]:
    """Start a server that writes to `folder/log`; the kernel sends it `death` when this thread ends."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def die_with_parent() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, death)

    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user, preexec_fn=die_with_parent
        )


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses just now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """As many different ones."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in held:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in held]


def scratch(name: str, user: str | None) -> Path:
    """A new folder that this user can reach."""
    folder = Path(tempfile.mkdtemp(prefix=f"agentor-{name}-"))
    if user is not None:
        shutil.chown(folder, user)
        folder.chmod(0o755)
    return folder


def is_root() -> bool:
    return os.geteuid() == 0
