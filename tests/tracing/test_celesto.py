"""Celesto's ingest format, sent to a real server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from agentor_exporters import CelestoTracer, export_run

from agentor import Agentor, FileStore
from agentor.engine.messages import Usage
from agentor.engine.spans import span_id, trace_id
from agentor.errors import MissingKey
from agentor.testing import ScriptedModel, answer, call
from agentor.tracer import setup_celesto_tracing


class Ingest:
    """Keeps each request: its path, its headers and its JSON."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        ingest = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {key.lower(): value for key, value in self.headers.items()}
                ingest.requests.append((self.path, headers, body))
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def data(self) -> list[dict[str, Any]]:
        return [item for _, _, body in self.requests for item in body["data"]]


@pytest.fixture
def ingest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingest]:
    one = Ingest()
    monkeypatch.setenv("CELESTO_BASE_URL", f"{one.url}/v1/")
    monkeypatch.setenv("CELESTO_API_KEY", "the-key")
    yield one
    one.server.shutdown()
    one.server.server_close()


def weather(city: str) -> str:
    return f"sunny {city}"


def agent(store: Any = None, **more: Any) -> Agentor:
    asked = answer("Looking.", call("weather", {"city": "A"}), usage=Usage(input_tokens=5, output_tokens=7))
    script = [asked, answer("done", reasoning_content="hm"), "more", "even more"]
    return Agentor("A", "Be brief.", ScriptedModel(script), [weather], store=store, **more)


def test_a_run_is_one_request_in_the_documented_shape(ingest: Ingest, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    told = agent(store, enable_tracing=True, trace_group_id="group", trace_metadata={"team": "x"})
    told.run("go", run_id="r")
    assert told.tracer.flush()  # type: ignore[union-attr]
    ((path, headers, body),) = ingest.requests
    assert (path, headers["authorization"]) == ("/v1/traces/ingest", "Bearer the-key")
    times = [(item.pop("started_at", ""), item.pop("ended_at", "")) for item in body["data"]]
    assert all(began <= ended for began, ended in times)
    trace, root = f"trace_{trace_id('r')}", f"span_{span_id('r', 0)}"
    envelope = {"object": "trace.span", "trace_id": trace, "parent_id": root}
    asked = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "A"}'},
    }
    assert body["data"] == [
        {
            "object": "trace",
            "id": trace,
            "workflow_name": "A",
            "group_id": "group",
            "metadata": {"run_id": "r", "segment": 0, "team": "x"},
        },
        {
            **envelope,
            "span_id": f"span_{span_id('r', 1, 'model')}",
            "span_data": {
                "type": "generation",
                "model": "scripted",
                "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}],
                "output": "Looking.",
                "tool_calls": [
                    {**asked, "function": {**asked["function"], "arguments": store_arguments(store)}}
                ],
                "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
            },
        },
        {
            **envelope,
            "span_id": f"span_{span_id('r', 2)}",
            "span_data": {"type": "function", "name": "weather", "input": {"city": "A"}, "output": "sunny A"},
        },
        {
            **envelope,
            "span_id": f"span_{span_id('r', 4, 'model')}",
            "span_data": {
                "type": "generation",
                "model": "scripted",
                "input": [{"role": "tool", "tool_call_id": "call_1", "content": "sunny A"}],
                "output": "done",
                "tool_calls": None,
                "usage": None,
                "reasoning": "hm",
            },
        },
        {
            **envelope,
            "parent_id": None,
            "span_id": root,
            "span_data": {
                "type": "agent",
                "name": "A",
                "model": "scripted",
                "output": "done",
                "status": "completed",
                "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
            },
        },
    ]


def store_arguments(store: FileStore) -> str:
    (asked,) = store.load("r")[1].calls  # type: ignore[attr-defined]
    return str(asked["function"]["arguments"])


def test_a_resume_is_in_the_runs_trace_and_a_fork_names_its_parent(ingest: Ingest, tmp_path: Path) -> None:
    told = agent(FileStore(tmp_path), tracer="celesto")
    told.run("go", run_id="r")
    told.continue_run("r", "again")
    told.fork("r", "other", fork_id="f")
    assert told.tracer.flush()  # type: ignore[union-attr]
    traces = {item["metadata"]["run_id"]: item for item in ingest.data() if item["object"] == "trace"}
    assert traces["f"]["metadata"]["forked_from"] == "r"
    assert traces["f"]["metadata"]["fork_of"] == f"span_{span_id('r', 0)}"
    assert {item["group_id"] for item in traces.values()} == {"r"}
    agents = [i for i in ingest.data() if i["object"] != "trace" and i["span_data"]["type"] == "agent"]
    assert [item["trace_id"] for item in agents] == [f"trace_{trace_id(run)}" for run in ("r", "r", "f")]
    assert agents[1]["parent_id"] == agents[0]["span_id"]
    ids = [item["span_id"] for item in ingest.data() if item["object"] != "trace"]
    assert len(ids) == len(set(ids))


def test_a_key_alone_is_no_consent(ingest: Ingest) -> None:
    agent().run("go")
    agent(enable_tracing=True).run("go", tracing=False)
    assert ingest.requests == []


def test_one_run_can_be_traced(ingest: Ingest) -> None:
    agent().run("go", tracing=True)
    tracer = CelestoTracer()
    agent().run("go", tracing=tracer)
    assert tracer.close()
    other = setup_celesto_tracing(f"{ingest.url}/elsewhere", "other-key", timeout=3.0)
    agent().run("go", tracing=other)
    assert other.close()  # type: ignore[attr-defined]
    paths = {(path, headers["authorization"]) for path, headers, _ in ingest.requests}
    assert ("/elsewhere", "Bearer other-key") in paths
    assert ("/v1/traces/ingest", "Bearer the-key") in paths


def test_a_missing_key_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingKey, match="traces to Celesto need a key; set CELESTO_API_KEY"):
        agent(enable_tracing=True)


def test_errors_are_on_the_envelope_and_refusals_have_times(ingest: Ingest) -> None:
    script = [call("nosuch"), ValueError("the model broke")]
    tracer = CelestoTracer()
    Agentor("A", model=ScriptedModel(script), tools=[weather], tracer=tracer).run("go")
    assert tracer.close()
    spans = {item["span_data"]["type"]: item for item in ingest.data() if item["object"] != "trace"}
    assert "there is no tool 'nosuch'" in spans["function"]["error"]["message"]
    assert spans["function"]["error"]["data"] == {"type": "unknown_tool"}
    assert spans["function"]["started_at"].endswith("+00:00")
    assert "the model broke" in spans["generation"]["error"]["message"]
    assert spans["agent"]["span_data"]["status"] == "failed"


def test_a_run_can_be_sent_later_and_with_nothing_that_was_said(ingest: Ingest, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    agent(store).run("canary", run_id="r", tracing=False)
    assert export_run(store, "r", "celesto", content="none").sent == 4
    assert "canary" not in json.dumps(ingest.data())
    assert export_run(store, "r", "celesto").sent == 0
    assert export_run(store, "r", "celesto", everything=True).sent == 4
    assert "canary" in json.dumps(ingest.data())
