"""Runs steered from a shell: started, paused, decided, resumed, forked, stopped; exit codes that scripts use."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.test_replay import run_in

from agentor import FileStore

APP = '''
import asyncio, os
from agentor import Agentor, FileStore, function_tool
from agentor.testing import ScriptedModel, call

@function_tool
def look(n: int) -> str:
    """Look."""
    return "seen \\x1b[31m"

@function_tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"

@function_tool(on_crash="ask")
async def wait() -> str:
    """Wait for ever."""
    print("waiting", flush=True)
    await asyncio.Event().wait()
    return "never"

SCRIPT = [call("look", {"n": 1}), call("pay", {"euros": 5}), "All is paid.\\nGood \\x1b[2Jbye.", "More."]
support = Agentor("support", "Be brief.", ScriptedModel(SCRIPT), [look, pay])
own = Agentor("own", model=ScriptedModel(["From my own store."]), store=FileStore("own"))
slow = Agentor("slow", model=ScriptedModel([call("wait"), "It is over."]), tools=[wait])
plain = "no agent"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def agentor(project: Path, *arguments: str, agent: str = "app:support") -> subprocess.CompletedProcess[str]:
    code = "from agentor.cli.main import main; main()"
    return run_in(project, sys.executable, "-c", code, *arguments, AGENTOR_AGENT=agent)


def test_a_run_pauses_is_decided_from_another_process_and_goes_on(project: Path) -> None:
    first = agentor(project, "run", "Pay it.", "--run-id", "r")
    assert (first.returncode, first.stdout) == (5, "")
    assert first.stderr.splitlines()[:4] == [
        "run r",
        '  → look({"n":1})',
        "  ← look: seen \\x1b[31m",
        'call_2  approval  pay({"euros":5}): pay needs an approval',
    ]
    assert first.stderr.splitlines()[4].startswith("run r: paused: calls wait for an approval")
    (waits,) = [json.loads(line) for line in agentor(project, "pending", "r", "--json").stdout.splitlines()]
    assert (waits["call_id"], waits["tool"], waits["args"]) == ("call_2", "pay", {"euros": 5})
    assert agentor(project, "resume", "r").returncode == 5  # nobody has decided
    wrong = agentor(project, "approve", "r", "call_1")
    assert (wrong.returncode, "does not wait for a decision" in wrong.stderr) == (1, True)
    done = agentor(
        project, "approve", "r", "call_2", "--args", '{"euros": 4}', "--by", "ann", "--reason", "less"
    )
    assert done.returncode == 0
    assert "agentor resume r" in done.stderr
    last = agentor(project, "resume", "r")
    assert (last.returncode, last.stdout, last.stderr) == (0, "All is paid.\nGood \\x1b[2Jbye.\n", "")
    assert agentor(project, "pending", "r").stderr == "nothing of run r waits\n"
    log = FileStore(project / "runs").load("r")
    (word,) = [e.to_dict() for e in log if e.type == "approval"]
    assert (word["by"], word["reason"], word["args"]) == ("ann", "less", {"euros": 4})
    follow = agentor(project, "continue", "r", "And?", "--json")
    assert (json.loads(follow.stdout)["text"], follow.returncode) == ("More.", 0)


def test_a_fork_denies_and_the_original_is_not_touched(project: Path) -> None:
    agentor(project, "run", "Pay it.", "--run-id", "r")
    before = (project / "runs" / "r.jsonl").read_bytes()
    fork = agentor(project, "fork", "r", "Again.", "--at-turn", "1", "--id", "f")
    assert (fork.returncode, fork.stderr.splitlines()[0]) == (5, "run f")
    assert agentor(project, "deny", "f", "call_2", "too much", "--by", "bob").returncode == 0
    assert agentor(project, "resume", "f").returncode == 0
    assert (project / "runs" / "r.jsonl").read_bytes() == before
    assert agentor(project, "fork", "r", "--at", "99").returncode == 1


def test_a_script_reads_events_and_the_result_as_json_lines(project: Path) -> None:
    done = agentor(project, "run", "hi", "--json", agent="app:own")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("type") for line in lines] == ["run_start", "generation", "run_end", None]
    assert (lines[-1]["status"], lines[-1]["text"], done.returncode) == ("completed", "From my own store.", 0)
    assert list((project / "own").glob("*.jsonl"))  # the agent's own store
    other = agentor(project, "run", "hi", "--store", "elsewhere", agent="app:own")
    assert other.stdout == "From my own store.\n"
    assert len(list((project / "elsewhere").glob("*.jsonl"))) == 1


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "cancel"])
def test_a_run_that_is_stopped_can_be_resumed(project: Path, how: str) -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from agentor.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "run", "go", "--run-id", "r", "--agent", "app:slow"]
    process = subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    if how == "cancel":
        done = agentor(project, "cancel", "r", "--reason", "enough")
        assert (done.returncode, done.stdout) == (0, "r: cancelled\n")
    else:
        process.send_signal(getattr(signal, how))
    _, err = process.communicate(timeout=60)
    assert process.returncode == {"SIGTERM": 143, "SIGINT": 130, "cancel": 1}[how], err
    assert "Traceback" not in err
    assert FileStore(project / "runs").load("r")[-1].to_dict()["status"] == "cancelled"
    doubt = agentor(project, "resume", "r", agent="app:slow")
    assert doubt.returncode == 5
    assert "call_1  doubt  wait({})" in doubt.stderr
    assert agentor(project, "decide", "r", "call_1").returncode == 2
    assert agentor(project, "decide", "r", "call_1", "--happened", "it rang").returncode == 0
    assert agentor(project, "resume", "r", agent="app:slow").stdout == "It is over.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["resume", "nosuch"], 3, "no run 'nosuch'"),
        (["cancel", "nosuch"], 3, "no run 'nosuch'"),
        (["pending", "nosuch", "--store", "nowhere"], 1, "there is no store at 'nowhere'"),
        (["run", "x", "--agent", "app:plain"], 2, "is no Agentor but str"),
        (["run", "x", "--agent", "app:nothing"], 2, "has no attribute"),
        (["run", "x", "--run-id", "r"], 1, "run 'r' already exists"),
        (["approve", "r", "call_2", "--args", "[1]"], 2, "give a JSON object"),
        (["approve", "r", "call_2", "--args", "{"], 2, "no JSON"),
        (["approve", "r", "call_2", "--expires", "-1"], 1, "expires_s must be seconds from 0 on"),
        (["fork", "r", "--at", "1", "--at-turn", "1"], 1, "give at= or at_turn=, not both"),
        (["continue", "r", "x"], 1, "resume it to its end before a follow-up"),
    ],
)
def test_what_cannot_be_done_is_a_message_and_an_exit_code(
    project: Path, arguments: list[str], code: int, said: str
) -> None:
    agentor(project, "run", "Pay it.", "--run-id", "r")
    done = agentor(project, *arguments)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.replace("│", "").split())
    assert "Traceback" not in done.stderr
    assert "\x1b[" not in done.stderr + done.stdout


def test_a_run_that_a_worker_has_is_exit_code_4_and_debug_shows_where(project: Path) -> None:
    agentor(project, "run", "Pay it.", "--run-id", "r")
    agentor(project, "approve", "r", "call_2")
    lease = FileStore(project / "runs").lease("r", "somebody", 30.0)
    done = agentor(project, "resume", "r")
    lease.release()
    assert (done.returncode, "is held by somebody" in done.stderr) == (4, True)
    assert "Traceback" in agentor(project, "--debug", "fork", "r", "--at", "99").stderr
