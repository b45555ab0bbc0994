"""Each safeguard, taken out of a copy of the source, makes a test fail: the tests can see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MUTATIONS = {
    "the sync of data": (
        "engine/store/runlog.py",
        "        if self.full:\n            self.disk.sync(fd)",
        "        if not self.full:\n            self.disk.sync(fd)",
        "tests/crash/test_disk_faults.py",
    ),
    "the sync of the folder": (
        "engine/store/runlog.py",
        "        if self.full:\n            self.disk.sync_directory(self.fd)",
        "        if not self.full:\n            self.disk.sync_directory(self.fd)",
        "tests/crash/test_disk_faults.py",
    ),
    "the checksum": (
        "engine/codec.py",
        'if b"%08x" % crc == line[-10:-2]',
        'if b"%08x" % crc != b"no"',
        "tests/crash/test_damage.py",
    ),
    "the chain of checksums": (
        "engine/codec.py",
        "crc32(line[:-_TAIL], out.crc)",
        "crc32(line[:-_TAIL], 0)",
        "tests/crash/test_damage.py",
    ),
    "the kernel's lock": (
        "engine/store/lock.py",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        "tests/contract/test_store_contract.py",
    ),
    "the result saved when it ends": (
        "engine/loop.py",
        "            self._record_results(done)\n            await self.journal.commit()",
        "            self._record_results(done)",
        "tests/unit/test_resume.py",
    ),
    "the call saved before its body": (
        "engine/loop.py",
        "        await self.journal.commit()  # write-ahead: the calls are on disk before any body runs\n",
        "",
        "tests/unit/test_resume.py",
    ),
    "the torn tail set aside": (
        "engine/store/runlog.py",
        "            folder.disk.truncate(self.fd, size)",
        "            pass",
        "tests/crash/test_disk_faults.py",
    ),
    "the epoch in the log": (
        "engine/store/file.py",
        "if log is not None and log.epoch > epoch:",
        "if False:",
        "tests/contract/test_store_contract.py",
    ),
    "the epoch of a lease": (
        "engine/store/holder.py",
        "if self.epoch != epoch or self.expires is None:",
        "if False:",
        "tests/crash/test_leases.py",
    ),
    "the fence in an object store's log": (
        "engine/store/objects.py",
        "if epoch is not None and end.epoch > epoch:",
        "if False:",
        "tests/contract/test_objects.py",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_taking_out_a_safeguard_is_noticed(name: str, tmp_path: Path) -> None:
    file, old, new, tests = MUTATIONS[name]
    shutil.copytree(ROOT / "agentor", tmp_path / "agentor")
    path = tmp_path / "agentor" / file
    source = path.read_text()
    assert source.count(old) == 1, "the safeguard has moved; name its new place above"
    path.write_text(source.replace(old, new))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), str(ROOT / tests)]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode in (1, 2), done.stdout[-2000:]  # 2: it already fails while it is read
    assert " failed" in done.stdout or " error" in done.stdout
