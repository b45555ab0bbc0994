"""Metrics of live runs, through a real meter provider; none from a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentor_exporters import OtelTracer, export_run
from agentor_exporters.jsonlines import JsonLines
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agentor import Agentor, FileStore
from agentor.engine.messages import Usage
from agentor.testing import ScriptedModel, answer, call


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float, int]]]:
    """By metric, the attributes, sum and count of its points."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: [(dict(p.attributes or {}), p.sum, p.count) for p in metric.data.data_points]  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_live_run_is_measured_once_and_an_export_not(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    out = (tmp_path / "spans.jsonl").open("w")
    tracer = OtelTracer(JsonLines(out), meter_provider=meters)

    def look() -> str:
        return "seen"

    script = [answer("", call("look"), usage=Usage(input_tokens=10, output_tokens=5)), "done"]
    store = FileStore(tmp_path / "runs")
    Agentor("a", model=ScriptedModel(script), tools=[look], store=store, tracer=tracer).run("go", run_id="r")
    assert tracer.close()
    export_run(store, "r", JsonLines(out), everything=True)
    out.close()
    found = points(reader)
    tokens = {p[0]["gen_ai.token.type"]: p[1] for p in found["gen_ai.client.token.usage"]}
    assert tokens == {"input": 10, "output": 5}
    assert sum(count for _, _, count in found["gen_ai.client.operation.duration"]) == 2
    ((about, _, count),) = found["gen_ai.execute_tool.duration"]
    assert (about["gen_ai.tool.name"], count) == ("look", 1)
    assert [s for _, s, _ in found["gen_ai.invoke_agent.inference_calls"]] == [2]
    assert not [
        about for rows in found.values() for about, _, _ in rows if "r" in about.values()
    ]  # no run's id
    meters.shutdown()
