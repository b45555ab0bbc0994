"""A process is killed in the middle of a tool; its trace is complete all the same, and stays the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agentor_exporters import export_run
from agentor_exporters.otlp import otlp
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from servers.otlp import Receiver, attributes
from tracing.conftest import WORKER

from agentor import FileStore, MemoryStore, SQLiteStore
from agentor.engine.spans import AgentSpan, Span, trace_id
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.errors import ExportFailed, RunNotFound


def start(act: str, folder: Path, url: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), act, str(folder), json.dumps(options)],
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url},
        stdout=subprocess.PIPE,
        text=True,
    )


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def work(act: str, folder: Path, url: str, **options: Any) -> None:
    with start(act, folder, url, **options) as process:
        assert heard(process) == {"status": "completed"}
    assert process.returncode == 0


def killed_in_a_tool(folder: Path, url: str) -> None:
    with start("run", folder, url, stuck=True) as process:
        assert heard(process) == {"ready": True}
        process.kill()
    assert process.returncode == -9


def projected(folder: Path, run_id: str) -> list[Span]:
    return project(run_id, hydrate(run_id, FileStore(folder).load(run_id))[0])


@pytest.mark.parametrize("exported", [True, False], ids=["exported before the resume", "resumed at once"])
def test_a_killed_run_has_one_whole_trace_before_and_after_its_resume(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, exported: bool
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    folder = tmp_path / "runs"
    killed_in_a_tool(folder, receiver.url)
    died = time.time()
    if exported:
        outcome = export_run(FileStore(folder), "r", "otlp")
        assert not outcome.unfinished
        names = sorted(s.name for s in receiver.spans())
        assert names == ["chat scripted", "execute_tool fast", "execute_tool slow", "invoke_agent traveller"]
        assert all(s.end_time_unix_nano // 1_000_000 <= died * 1e3 for s in receiver.spans())
        wrong = {s.name: attributes(s) for s in receiver.spans() if s.status.code == Status.STATUS_CODE_ERROR}
        assert {name: said["error.type"] for name, said in wrong.items()} == {
            "execute_tool slow": "interrupted",
            "invoke_agent traveller": "interrupted",
        }
        assert wrong["invoke_agent traveller"]["agentor.run.interrupted_during"] == "tool:slow"
    work("resume", folder, receiver.url)
    work("fork", folder, receiver.url)
    export_run(FileStore(folder), "r", "otlp")
    export_run(FileStore(folder), "f", "otlp")
    sent = receiver.spans()
    want = [*projected(folder, "r"), *projected(folder, "f")]
    ids = [s.span_id.hex() for s in sent]
    assert len(ids) == len(set(ids))  # nothing was sent twice
    assert sorted(ids) == sorted(s.context.span_id for s in want)
    assert {s.trace_id.hex() for s in sent} == {trace_id("r"), trace_id("f")}
    parents = {s.parent_span_id.hex() for s in sent if s.parent_span_id}
    assert parents <= set(ids)
    by_id = {s.context.span_id: s for s in want}
    for span in sent:
        original = by_id[span.span_id.hex()]
        assert span.start_time_unix_nano // 1_000_000 == round(original.started_at * 1000)
        assert span.end_time_unix_nano // 1_000_000 == round(original.ended_at * 1000)
    links = {(s.trace_id.hex(), attributes(link)["agentor.link.type"]) for s in sent for link in s.links}
    assert links == {(trace_id("r"), "resume"), (trace_id("f"), "fork")}


def test_a_run_that_a_living_worker_has_keeps_its_open_segment(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    with start("run", tmp_path, "http://127.0.0.1:1", stuck=True) as process:
        assert heard(process) == {"ready": True}
        outcome = export_run(FileStore(tmp_path), "r", "otlp")
        assert outcome.unfinished
        assert sorted(s.name for s in receiver.spans()) == ["chat scripted", "execute_tool fast"]
        assert process.poll() is None
        process.kill()


def test_a_store_without_a_lease_counts_as_dead_after_a_while_or_when_it_is_said(receiver: Receiver) -> None:
    class Plain:
        def __init__(self, store: MemoryStore) -> None:
            self.append, self.load, self.list_runs = store.append, store.load, store.list_runs

    store = MemoryStore()
    whole = hydrate("r", [])[0]
    assert whole == []
    from agentor.engine.events import RunStart

    store.append("new", RunStart(seq=0, at=time.time(), agent="a"))
    store.append("old", RunStart(seq=0, at=time.time() - 3600, agent="a"))
    assert export_run(Plain(store), "new", "json").unfinished
    assert export_run(Plain(store), "new", "json", dead=True).sent == 1
    assert export_run(Plain(store), "old", "json").sent == 1


def test_what_a_place_does_not_take_is_said_and_sent_later(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    work("run", tmp_path, receiver.url, tracer=None)
    FileStore(tmp_path).path("r").with_suffix(".trace.json").unlink(missing_ok=True)
    receiver.forget()
    receiver.status = 400
    with pytest.raises(ExportFailed, match=r"run 'r': otlp 127.0.0.1:\d+ took 0 of 7 spans .* export again"):
        export_run(FileStore(tmp_path), "r", otlp())
    receiver.status = 200
    assert export_run(FileStore(tmp_path), "r", otlp()).sent == 7
    assert len(receiver.spans()) == 7


def test_a_run_that_is_not_there_has_no_trace(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="nope"):
        export_run(FileStore(tmp_path), "nope", "json")


def test_a_new_run_with_an_old_name_is_sent_from_its_beginning(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    for kind in ("files", "sqlite"):
        store: Any = FileStore(tmp_path / "runs") if kind == "files" else SQLiteStore(tmp_path / "runs.db")
        for _ in range(2):
            from agentor import Agentor
            from agentor.testing import ScriptedModel

            agent = Agentor("a", model=ScriptedModel(["x"]), store=store)
            agent.run("go", run_id="r", tracing=False)
            assert export_run(store, "r", "otlp").sent == 2
            assert export_run(store, "r", "otlp").sent == 0
            store.delete("r")
        if kind == "files":
            assert list((tmp_path / "runs").iterdir()) == []
        else:
            store.close()


def test_the_segment_of_a_dead_process_is_a_span_of_its_own(tmp_path: Path, receiver: Receiver) -> None:
    killed_in_a_tool(tmp_path, receiver.url)
    work("resume", tmp_path, receiver.url)
    segments = [s for s in projected(tmp_path, "r") if isinstance(s, AgentSpan)]
    assert [(s.status, s.during) for s in segments] == [("interrupted", "tool:slow"), ("completed", None)]
    assert segments[1].parent == segments[0].context
