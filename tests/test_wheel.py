"""The built wheel works with the source folders out of the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from wheels import wheel_in

CODE = """
import sys
import agentor, agentor_exporters
from agentor.testing import ScriptedModel
site = sys.argv[1]
assert agentor.__file__.startswith(site), agentor.__file__
assert agentor_exporters.__file__.startswith(site)
for name in agentor.__all__:
    getattr(agentor, name)
agent = agentor.Agentor("a", model=ScriptedModel(["hello"]), store=agentor.FileStore("runs"))
result = agent.run("hi")
assert (result.status, str(agent.resume(result.run_id))) == ("completed", "hello")
print("fine")
"""


def test_the_wheel_runs_without_the_source(tmp_path: Path) -> None:
    site = wheel_in(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(site)], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.returncode) == ("fine", 0), done.stderr
    assert (site / "agentor" / "py.typed").exists()
