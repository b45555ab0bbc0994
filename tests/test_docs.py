"""Every Python block of the README runs, in order, against a model server on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from agentor.cli.demo_server import DemoServer

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 7
    (tmp_path / "readme.py").write_text("\n".join(blocks))
    with DemoServer() as server:
        server.release.set()
        env = {**os.environ, "OPENAI_API_KEY": "test", "OPENAI_BASE_URL": server.base_url}
        done = subprocess.run(
            [sys.executable, "readme.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert "Order A-1042 is paid" in done.stdout
    assert "completed" in done.stdout
    # The run, both streams and the fork from before the charge; not the resume, nor the fork at the end.
    assert len((tmp_path / "ledger.txt").read_text().splitlines()) == 4
    assert len(list((tmp_path / "runs").glob("*.jsonl"))) == 5


def test_the_readme_names_both_commands() -> None:
    assert "make demo" in README
    assert "make test" in README
