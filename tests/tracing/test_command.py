"""`agentor trace export`: what a person and a script see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers.otlp import Receiver

from agentor import Agentor, FileStore, SQLiteStore
from agentor.engine.events import RunStart
from agentor.testing import ScriptedModel


def command(*arguments: str, url: str = "http://127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from agentor.cli.main import main; main()", "trace", "export", *arguments],
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "4"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> str:
    store = FileStore(tmp_path / "runs")
    Agentor("a", model=ScriptedModel(["hello"]), store=store).run("go", run_id="r", tracing=False)
    return str(tmp_path / "runs")


def test_it_sends_a_run_and_says_where_it_is(folder: str, receiver: Receiver) -> None:
    done = command("r", "--store", folder, url=receiver.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("✓ r: 2 spans to otlp 127.0.0.1:")
    assert f"trace {receiver.spans()[0].trace_id.hex()}" in done.stdout
    assert "\x1b[" not in done.stdout
    again = command("r", "--store", folder, url=receiver.url)
    assert "0 spans to" in again.stdout
    assert "2 were there" in again.stdout
    assert command("r", "--store", folder, "--all", "--json", url=receiver.url).returncode == 0
    assert len(receiver.spans()) == 4


def test_its_outcome_is_json_for_scripts(folder: str, receiver: Receiver) -> None:
    said = json.loads(command("r", "--store", folder, "--json", url=receiver.url).stdout)
    assert (said["run_id"], said["sent"], said["skipped"], said["unfinished"]) == ("r", 2, 0, False)


def test_spans_can_be_printed(folder: str) -> None:
    done = command("r", "--store", folder, "--to", "json", "--content", "delta")
    chat, segment = map(json.loads, done.stdout.splitlines())
    assert (chat["name"], chat["parent_id"]) == ("chat scripted", segment["span_id"])
    assert "hello" in chat["attributes"]["gen_ai.output.messages"]


def test_a_collector_that_is_away_is_an_error_with_the_way_out(folder: str) -> None:
    done = command("r", "--store", folder)
    assert done.returncode == 1
    assert "run 'r': otlp 127.0.0.1:1 took 0 of 2 spans" in done.stderr
    assert "export again once it answers" in done.stderr
    assert "Connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_place_that_nobody_knows_is_said(folder: str) -> None:
    done = command("r", "--store", folder, "--to", "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("agentor: there is no exporter 'nowhere'; installed are: celesto, ")


def test_a_run_or_a_store_that_is_not_there_is_said(folder: str) -> None:
    assert command("nope", "--store", folder).returncode == 3
    missing = command("r", "--store", folder + "-not")
    assert missing.returncode == 1
    assert "there is no store at" in missing.stderr
    assert command("--store", folder).returncode == 2  # neither a run nor --all-incomplete


def test_a_sweep_sends_what_dead_processes_left(tmp_path: Path, receiver: Receiver) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    now = time.time()
    store.append("young", RunStart(seq=0, at=now, agent="a"))
    store.append("dead", RunStart(seq=0, at=now - 3600, agent="a"))
    Agentor("a", model=ScriptedModel(["hello"]), store=store).run("go", run_id="done", tracing=False)
    store.close()
    place = str(tmp_path / "runs.db")
    done = command("--all-incomplete", "--store", place, "--json", url=receiver.url)
    assert [json.loads(line)["run_id"] for line in done.stdout.splitlines()] == ["dead"]
    assert [s.name for s in receiver.spans()] == ["invoke_agent a"]
    done = command("--all-incomplete", "--older-than", "0s", "--store", place, url=receiver.url)
    assert done.stdout.count("✓") == 2  # the young one, and the one whose spans nobody had sent
    done = command("--all-incomplete", "--older-than", "0s", "--store", place, url=receiver.url)
    assert (done.stdout, done.stderr) == ("", "no run is incomplete\n")
    wrong = command("--all-incomplete", "--older-than", "soon", "--store", place)
    assert (wrong.returncode, "write 30s, 10m, 6h or 2d" in wrong.stderr) == (2, True)


def test_a_run_of_long_ago_comes_with_a_warning(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    store.append("old", RunStart(seq=0, at=time.time() - 7200, agent="a"))
    done = command("old", "--store", str(tmp_path), url=receiver.url)
    assert "it ended 2 h ago" in done.stdout
    assert "--shift-to-now" in done.stdout


def test_a_tracer_of_ones_own_brings_its_redaction(folder: str, tmp_path: Path) -> None:
    (tmp_path / "tracers.py").write_text(
        "from agentor_exporters import JsonLines, OtelTracer\n"
        "mine = OtelTracer(JsonLines(), content='delta', redact=lambda kind, value, event: None)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from agentor.cli.main import main; main()"),
            *("trace", "export", "r", "--store", folder, "--tracer", "tracers:mine"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello" not in done.stdout
    assert [line[0] for line in done.stdout.splitlines()] == ["{", "{", "✓", " "]
