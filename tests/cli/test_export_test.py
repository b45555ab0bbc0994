"""`agentor export-test`: what it writes runs as it is, holds no credential, and overwrites nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli.test_replay import APP, FOLDER, run_in


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def pytest_in(project: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run_in(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", **env)


def export(project: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    code = "from agentor.cli.main import main; main()"
    return run_in(
        project, sys.executable, "-c", code, "export-test", *arguments, "--agent", "app:support", **env
    )


def test_the_written_test_passes_and_fails_once_the_agent_changes(project: Path) -> None:
    done = export(project, "r", "--name", "Support 42")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "wrote tests/test_support_42.py",
        "wrote tests/runs/Support-42.jsonl",
        "Read the run before you commit it, then: pytest tests/test_support_42.py",
    ]
    assert pytest_in(project).returncode == 0
    changed = pytest_in(project, SAY="Be long.")
    assert changed.returncode == 1
    assert "- Be brief." in changed.stdout
    assert "test_support_42_does_as_recorded" in changed.stdout


def test_credentials_and_what_the_rules_name_are_taken_out_and_it_still_replays(project: Path) -> None:
    (project / "rules.txt").write_text("# people\n[\\w.]+@example\\.com\n\n")
    asked = "Write to ann@example.com with key sk-proj-abcdefghijklmnop1234."
    run_in(project, sys.executable, "-c", f"import app; app.support.run({asked!r}, run_id='s')")
    done = export(project, "s", "--rules", "rules.txt")
    assert done.returncode == 0, done.stderr
    log = (project / "tests" / "runs" / "s.jsonl").read_text()
    assert "Write to [redacted] with key [redacted]." in log
    assert "ann@" not in log
    assert pytest_in(project).returncode == 0


def test_nothing_is_written_over_and_what_cannot_be_done_is_said(project: Path) -> None:
    assert export(project, "r").returncode == 0
    before = (project / "tests" / "test_r.py").stat().st_mtime_ns
    again = export(project, "r")
    assert again.returncode == 2
    assert "is there already" in " ".join(again.stderr.replace("│", "").split())
    assert (project / "tests" / "test_r.py").stat().st_mtime_ns == before
    assert export(project, "r", "--force").returncode == 0
    assert export(project, "nosuch").returncode == 3
    assert export(project, "r", "--name", "x", "--rules", "nosuch.txt").returncode == 2
    (project / "bad.txt").write_text("[")
    assert export(project, "r", "--name", "x", "--rules", "bad.txt").returncode == 2
    assert not (project / "tests" / "test_x.py").exists()


def test_a_cassette_goes_along_and_the_live_agent_is_held_to_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        f"""
import asyncio, sys
sys.path.insert(0, {str(FOLDER)!r})
from scenarios import SCENARIOS, play
from agentor import FileStore
from agentor.testing.cassettes import cassette

scenario = next(s for s in SCENARIOS if (s.provider.name, s.name) == ("openai-chat", "one-call"))
support = scenario.agent(FileStore("runs"))
if __name__ == "__main__":
    with cassette(scenario.path):
        asyncio.run(play(scenario, support))
    print(scenario.path)
"""
    )
    made = run_in(tmp_path, sys.executable, "app.py")
    assert made.returncode == 0, made.stderr
    path = made.stdout.strip()
    done = export(tmp_path, "recorded", "--cassette", path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tests" / "cassettes" / "recorded.yaml").read_bytes() == Path(path).read_bytes()
    tests = pytest_in(tmp_path)
    assert tests.returncode == 0, tests.stdout
    assert "2 passed" in tests.stdout
    shutil.rmtree(tmp_path / "runs")
    assert pytest_in(tmp_path).returncode == 0
