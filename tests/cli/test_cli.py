"""The command: the demo keeps its promises, export prints data, errors are messages with exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentor import Agentor, FileStore
from agentor.testing import ScriptedModel, call


def agentor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from agentor.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def tool(n: int) -> int:
        return n

    store = FileStore(tmp_path / "runs")
    model = ScriptedModel([call("tool", {"n": 1}), "done"])
    Agentor("a", "Be brief.", model, [tool], store=store).run("go", run_id="r")
    return tmp_path / "runs"


def test_the_demo_holds_every_promise() -> None:
    done = agentor("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" held ") == 7
    assert "BROKEN" not in done.stdout
    assert "\x1b[" not in done.stdout  # no colours off a terminal
    assert done.stderr == ""


def test_export_prints_the_events_as_stored(folder: Path) -> None:
    done = agentor("export", "r", "--store", str(folder))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(6))
    assert all("messages" not in line for line in lines[1:])


def test_export_full_repeats_the_requests_as_agentor_0_1_did(folder: Path) -> None:
    done = agentor("export", "r", "--store", str(folder), "--full")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    generations = [line for line in lines if line["type"] == "generation"]
    assert [len(g["messages"]) for g in generations] == [2, 4]
    assert generations[1]["messages"][-1]["content"] == "1"
    assert [line["args"] for line in lines if line["type"] == "tool_call"] == [{"n": 1}]
    assert all(line["ended_at"] >= line["started_at"] for line in lines)


@pytest.mark.parametrize("store", ["runs", "nowhere"])
def test_a_run_that_is_not_there_is_exit_code_3(folder: Path, store: str) -> None:
    done = agentor("export", "nope", "--store", str(folder.parent / store))
    assert (done.returncode, done.stdout) == (3, "")
    assert "no run 'nope'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder.parent / "nowhere").exists()


def test_a_damaged_log_is_exit_code_1_with_the_place(folder: Path) -> None:
    log = folder / "r.jsonl"
    log.write_bytes(log.read_bytes().replace(b"Be brief.", b"Be grief."))
    done = agentor("export", "r", "--store", str(folder))
    assert done.returncode == 1
    assert "record 0, byte 0" in done.stderr


def test_wrong_usage_is_exit_code_2() -> None:
    assert agentor("export").returncode == 2
    assert agentor("version").stdout.strip()


def test_sigterm_ends_the_command_with_its_exit_code_and_no_traceback(folder: Path) -> None:
    (folder.parent / "places.py").write_text(
        "import threading\n"
        "class Hangs:\n"
        "    def export(self, records):\n"
        "        print('asked', flush=True)\n"
        "        threading.Event().wait()\n"
        "place = Hangs()\n"
    )
    command = [sys.executable, "-c", "from agentor.cli.main import main; main()"]
    command += ["trace", "export", "r", "--store", str(folder), "--tracer", "places:place"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder.parent
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "asked\n"
        process.terminate()
        assert process.wait(30) == 143
        assert process.stderr.read() == ""
