"""A run waits for a person in no process at all, on every store, and one word is heard once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import opened

from agentor import Agentor
from agentor.testing import ScriptedModel
from agentor.testing.settled import Settled

WAITER = Path(__file__).with_name("waiter.py")


def start(act: str, place: str, folder: Path, word: str = "-") -> subprocess.Popen[str]:
    command = [sys.executable, str(WAITER), act, place, str(folder), word]
    env = {"PYTHONPATH": f"{WAITER.parent}:{WAITER.parent.parent}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return dict(json.loads(out))


def ledger(folder: Path) -> list[str]:
    path = folder / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def events(place: str) -> list[Any]:
    return Settled(opened(place)).load("r")


@pytest.mark.parametrize("word", ["approve", "deny", "edit"])
def test_one_process_asks_another_decides_and_a_third_goes_on(tmp_path: Path, place: str, word: str) -> None:
    assert said(start("run", place, tmp_path)) == {"status": "paused", "pending": ["call_1"]}
    assert said(start("resume", place, tmp_path)) == {"status": "paused", "pending": ["call_1"]}
    assert said(start("decide", place, tmp_path, word)) == {"decided": [True]}
    assert said(start("decide", place, tmp_path, "deny")) == {"error": "DecisionRefused"}
    assert ledger(tmp_path) == []
    assert said(start("resume", place, tmp_path)) == {"status": "completed", "pending": []}
    paid = [line.split()[0] for line in ledger(tmp_path)]
    assert paid == {"approve": ["5"], "deny": [], "edit": ["1"]}[word]
    approvals = [e for e in events(place) if e.type == "approval"]
    assert [e.by for e in approvals] == [word]


@pytest.mark.parametrize("apart", [True, False], ids=["decide", "resume"])
def test_what_a_sub_agent_waits_for_is_decided_in_other_processes(
    tmp_path: Path, place: str, apart: bool
) -> None:
    waits = {"status": "paused", "pending": ["call_1/call_1"]}
    assert said(start("child-run", place, tmp_path)) == waits
    assert said(start("child-resume", place, tmp_path)) == waits
    if apart:
        assert said(start("child-decide", place, tmp_path, "edit")) == {"decided": [True]}
        assert said(start("child-decide", place, tmp_path, "deny")) == {"error": "DecisionRefused"}
    word = "-" if apart else "edit"
    assert said(start("child-resume", place, tmp_path, word)) == {"status": "completed", "pending": []}
    assert [line.split()[0] for line in ledger(tmp_path)] == ["1"]


def test_of_processes_that_decide_and_resume_at_once_one_word_counts(tmp_path: Path, place: str) -> None:
    said(start("run", place, tmp_path))
    words = ["approve", "deny", "edit"]
    racing = [start(act, place, tmp_path, word) for word in words for act in ("decide", "resume")]
    answers = [said(process) for process in racing]
    if not any(answer.get("status") == "completed" for answer in answers):
        said(start("resume", place, tmp_path))
    log = events(place)
    approvals = [e for e in log if e.type == "approval"]
    assert len(approvals) == 1
    assert len(ledger(tmp_path)) == (approvals[0].decision == "approve")
    assert log[-1].status == "completed"


def test_what_waits_can_be_listed_without_the_agents_tools(tmp_path: Path, place: str) -> None:
    said(start("run", place, tmp_path))
    page = Agentor("page", model=ScriptedModel([]), store=opened(place))
    (waiting,) = page.unresolved("r")
    assert (waiting.tool, waiting.args, waiting.decided) == ("pay", {"euros": 5}, False)
