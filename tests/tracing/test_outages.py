"""A collector that is away, hangs or refuses costs a run nothing, and loses nothing."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentor_exporters import OtelTracer, export_run
from agentor_exporters.otlp import otlp
from servers.otlp import Receiver
from tracing.conftest import WORKER, ran

from agentor import Agentor, FileStore
from agentor.engine.spans import span_id
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.testing import ScriptedModel

RUNS = 40


@pytest.fixture(params=["down", "hangs", "503", "413"])
def collector(request: pytest.FixtureRequest, receiver: Receiver) -> Iterator[str]:
    """The address of a collector that does not work."""
    if request.param == "down":
        with socket.socket() as taken:  # bound, and nobody listens
            taken.bind(("127.0.0.1", 0))
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        return
    if request.param == "hangs":
        receiver.hang = True
    else:
        receiver.status = int(request.param)
    yield receiver.url


def runs(folder: Path, url: str) -> tuple[float, float]:
    """By how much tracing lengthens a run (the median), and how long the process takes to end."""
    done = subprocess.run(
        [sys.executable, str(WORKER), "runs", str(folder), json.dumps({"count": RUNS})],
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    ended_at = time.time()
    said = json.loads(done.stdout)
    return statistics.median(said["grown"]), ended_at - said["ended"]


def test_a_run_does_not_wait_and_its_process_ends_and_a_later_export_delivers_all(
    tmp_path: Path, collector: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown_s, exit_s = runs(tmp_path / "runs", collector)
    assert grown_s < 0.005
    assert exit_s < 2.5
    receiver.hang, receiver.status = False, 200
    receiver.release()
    receiver.forget()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    store = FileStore(tmp_path / "runs")
    want = set()
    for run_id in (name for name in store.list_runs() if name.startswith("run-")):
        export_run(store, run_id, "otlp", everything=True)
        want |= {s.context.span_id for s in project(run_id, hydrate(run_id, store.load(run_id))[0])}
    assert len(want) == RUNS * 7
    assert {s.span_id.hex() for s in receiver.spans()} == want


def test_a_collector_that_comes_back_gets_what_waited(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    receiver.status = 400
    tracer = OtelTracer(otlp(), linger_s=0.0)
    store = FileStore(tmp_path)
    Agentor("a", model=ScriptedModel(["x"]), store=store, tracer=tracer).run("go", run_id="r")
    assert not tracer.flush(0.5)
    assert not store.path("r").with_suffix(".trace.json").exists()
    receiver.status = 200
    assert tracer.flush(10)
    assert len(receiver.spans()) == 2
    assert export_run(store, "r", otlp()).skipped == 2


def test_a_batch_that_is_too_large_is_halved(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    receiver.max_bytes = 3000
    tracer = OtelTracer(otlp())
    agent = Agentor("a", model=ScriptedModel(lambda messages, _: "x"), tracer=tracer)
    for _ in range(20):
        agent.run("go")
    assert tracer.flush(10)
    assert len(receiver.spans()) == 40
    assert receiver.refused > 0


def test_one_span_that_is_not_wanted_does_not_keep_back_the_others(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setattr("agentor_exporters.pipeline.ATTEMPTS", 1)
    receiver.max_bytes = 3000
    tracer = OtelTracer(otlp(), content="delta")
    agent = Agentor("a", model=ScriptedModel(lambda messages, _: messages[-1]["content"]), tracer=tracer)
    agent.run("x" * 4000)
    agent.run("short")
    assert any(tracer.flush(0.5) for _ in range(20))  # each tries at once what failed before
    assert len(receiver.spans()) == 2


def test_what_was_dropped_is_in_the_log_and_the_next_segment_sends_it(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setattr("agentor_exporters.pipeline.MAX_SPANS", 1)  # a limit, not code of ours
    monkeypatch.setattr("agentor_exporters.pipeline.ATTEMPTS", 1)
    receiver.status = 400
    tracer = OtelTracer(otlp())
    agent = Agentor("a", model=ScriptedModel(["x", "y"]), store=FileStore(tmp_path), tracer=tracer)
    agent.run("go", run_id="r")
    tracer.flush(2.0)
    monkeypatch.setattr("agentor_exporters.pipeline.MAX_SPANS", 1000)
    receiver.status = 200
    agent.continue_run("r", "more")
    assert tracer.flush(10)
    assert {s.span_id.hex() for s in receiver.spans()} >= {span_id("r", 0), span_id("r", 1, "model")}
    assert len({s.span_id for s in receiver.spans()}) == 4


def test_a_forked_process_leaves_what_waits_to_its_parent_and_sends_its_own(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
import os, sys
from agentor import Agentor, FileStore
from agentor.testing import ScriptedModel
agent = Agentor("a", model=ScriptedModel(lambda m, _: "x"), store=FileStore({str(tmp_path)!r}), tracer="otlp")
agent.run("go", run_id="parent")
pid = os.fork()
if pid == 0:
    agent.run("go", run_id="child")
    agent.tracer.close()
    os._exit(0)
os.waitpid(pid, 0)
"""
    ran(code, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    ids = [s.span_id.hex() for s in receiver.spans()]
    assert sorted(ids) == sorted(
        span_id(run_id, *which) for run_id in ("parent", "child") for which in ((0,), (1, "model"))
    )
