"""`agentor replay`: exit codes that CI can use, a report for people, JSON, and JUnit's XML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).resolve().parents[1]
APP = '''
import os
from agentor import Agentor, FileStore, function_tool
from agentor.testing import ScriptedModel, call

@function_tool
def look(n: int) -> str:
    """Look."""
    return "seen"

support = Agentor(
    "support", os.environ.get("SAY", "Be brief."), ScriptedModel([call("look", {"n": 1}), "done"]),
    [look], store=FileStore("runs"),
)
if __name__ == "__main__":
    support.run("hi", run_id="r")
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def run_in(project: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    known = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([".", os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        **env,
    }
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, env=known)


def replay(project: Path, *arguments: str, say: str = "Be brief.") -> subprocess.CompletedProcess[str]:
    code = "from agentor.cli.main import main; main()"
    return run_in(project, sys.executable, "-c", code, "replay", *arguments, SAY=say)


def test_an_unchanged_agent_exits_with_0_and_a_changed_one_with_1(project: Path) -> None:
    done = replay(project, "r", "runs/r.jsonl", "--agent", "app:support")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["✓ replay of run 'r' by agent 'support': 2 same"] * 2
    done = replay(project, "r", "--agent", "app:support", say="Be \x1b[31mred\u202e.")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "✗ replay of run 'r' by agent 'support': 1 changed, 1 answered by the recording",
        "  turn 1: changed",
        "    the instructions",
        "      - Be brief.",
        "      + Be \\x1b[31mred\\u202e.",
        "  turn 2: answered by the recording",
    ]
    assert replay(project, "r", "--agent", "app:support", "--lenient", say="x").returncode == 0


def test_machines_get_a_json_line_for_each_run(project: Path) -> None:
    done = replay(project, "r", "r", "--agent", "app:support", "--json", say="Be long.")
    assert done.returncode == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second
    assert (first["run_id"], first["ok"], first["recorded_turns"]) == ("r", False, 2)
    assert first["turns"][0] == {
        "turn": 1,
        "seq": 1,
        "status": "changed",
        "differences": [
            {"kind": "instructions", "what": "the instructions", "before": "Be brief.", "after": "Be long."}
        ],
    }


def test_junit_has_a_case_for_each_turn_and_takes_any_text(project: Path) -> None:
    done = replay(project, "r", "--agent", "app:support", "--junit", "out.xml", say="Be <b> & \x1b")
    assert done.returncode == 1
    suite = ElementTree.parse(project / "out.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("r", "2", "2")
    failure = suite[0][0]
    assert (failure.get("type"), failure.get("message")) == ("changed", "the instructions")
    assert str(failure.text).splitlines()[1:] == ["- Be brief.", "+ Be <b> & \ufffd"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nosuch", "--agent", "app:support"], 3, "no run 'nosuch'"),
        (["nosuch.jsonl", "--agent", "app:support"], 3, "no run 'nosuch'"),
        (["r", "--agent", "app:nothing"], 2, "has no attribute"),
        (["r", "--agent", "nowhere:x"], 2, "No module named"),
        (["r", "--agent", "app"], 2, "is no module:name"),
        (["r", "--agent", "app:look"], 2, "is no Agentor but Tool"),
        (["r"], 2, "Missing option '--agent'"),
    ],
)
def test_what_cannot_be_replayed_is_a_message_and_an_exit_code(
    project: Path, arguments: list[str], code: int, said: str
) -> None:
    done = replay(project, *arguments)
    assert done.returncode == code
    assert said in " ".join(done.stderr.replace("│", "").split())
    assert "Traceback" not in done.stderr
