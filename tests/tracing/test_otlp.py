"""Spans as a real OTLP receiver gets them, by each way out."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from pathlib import Path
from typing import Any

import pytest
from agentor_exporters import OtelTracer, export_run
from agentor_exporters.otel import ExporterTarget
from agentor_exporters.otlp import otlp
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from servers.otlp import Receiver, attributes
from tracing.conftest import ran

from agentor import Agentor, FileStore, MemoryStore
from agentor.engine.events import RunStart
from agentor.engine.messages import Usage
from agentor.engine.spans import AgentSpan, Span, SpanContext, trace_id
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.errors import ModelError
from agentor.testing import ScriptedModel, answer, attempts, call


def look(city: str) -> str:
    """Look at a city."""
    return f"sunny in {city}"


def broken(city: str) -> str:
    """Never works."""
    raise ValueError(f"no {city}")


def agent(store: Any, tracer: Any, **more: Any) -> Agentor:
    asked = answer(
        "I look.",
        call("look", {"city": "A"}),
        call("broken", {"city": "B"}),
        usage=Usage(input_tokens=10, output_tokens=5, cached_input_tokens=4, reasoning_tokens=2),
        cost=0.25,
    )
    told = answer("Sunny.", usage=Usage(input_tokens=30, output_tokens=5))
    script = [asked, told, answer("More.", usage=Usage(input_tokens=40, output_tokens=5))]
    return Agentor(
        "weather", "Be brief.", ScriptedModel(script), [look, broken], store=store, tracer=tracer, **more
    )


def spans_of(store: Any, run_id: str) -> list[Span]:
    return project(run_id, hydrate(run_id, store.load(run_id))[0])


def tree(receiver: Receiver) -> dict[str, tuple[str, str, str, int, int]]:
    """What arrived: by span id its trace, parent, name and times in milliseconds."""
    return {
        s.span_id.hex(): (
            s.trace_id.hex(),
            s.parent_span_id.hex(),
            s.name,
            s.start_time_unix_nano // 1_000_000,
            s.end_time_unix_nano // 1_000_000,
        )
        for s in receiver.spans()
    }


def expected(*runs: list[Span]) -> dict[str, tuple[str, str, str, int, int]]:
    """The same of projections."""
    found = {}
    for span in (s for spans in runs for s in spans):
        kind = {"AgentSpan": "invoke_agent", "ModelSpan": "chat", "ToolSpan": "execute_tool"}[
            type(span).__name__
        ]
        of = span.agent if isinstance(span, AgentSpan) else getattr(span, "model", None)
        found[span.context.span_id] = (
            span.context.trace_id,
            "" if span.parent is None else span.parent.span_id,
            f"{kind} {of or getattr(getattr(span, 'call', None), 'name', '')}",
            round(span.started_at * 1000),
            round(span.ended_at * 1000),
        )
    return found


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_what_arrives_is_the_projection_of_the_log(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url if "http" in protocol else receiver.grpc_url
    )
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-service")
    store, tracer = FileStore(tmp_path), OtelTracer(otlp())
    weather = agent(store, tracer)
    weather.run("go", run_id="r")
    weather.continue_run("r", "more")
    weather.fork("r", "other", at_turn=1, fork_id="f")
    assert tracer.close()
    runs = [spans_of(store, "r"), spans_of(store, "f")]
    assert tree(receiver) == expected(*runs)
    assert len(receiver.spans()) == len(tree(receiver)) == sum(map(len, runs))
    (resource,) = {r.resource_spans[0].resource.SerializeToString() for r in receiver.requests}
    assert b"my-service" in resource


def test_the_spans_say_what_dashboards_read(tmp_path: Path, receiver: Receiver) -> None:
    tracer = OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    weather = agent(FileStore(tmp_path), tracer, trace_metadata={"team": "a"})
    weather.run("go", run_id="r")
    weather.fork("r", "other", fork_id="f")
    assert tracer.close()
    by_name = {
        s.name: (s, attributes(s)) for s in reversed(receiver.spans()) if s.trace_id.hex() == trace_id("r")
    }
    chat, said = by_name["chat scripted"]
    assert chat.kind == chat.SPAN_KIND_CLIENT
    assert said["gen_ai.usage.input_tokens"] == 10
    assert said["gen_ai.usage.cache_read.input_tokens"] == 4
    assert said["gen_ai.usage.reasoning.output_tokens"] == 2
    assert said["gen_ai.usage.cost"] == 0.25
    assert said["gen_ai.response.finish_reasons"] == ["tool_call"]
    segment, said = by_name["invoke_agent weather"]
    assert (segment.kind, segment.status.code) == (segment.SPAN_KIND_INTERNAL, Status.STATUS_CODE_UNSET)
    assert not [key for key in said if key.startswith("gen_ai.usage")]  # it would count tokens twice
    assert (said["agentor.usage.input_tokens"], said["agentor.run.status"]) == (40, "completed")
    assert json.loads(said["agentor.metadata"]) == {"team": "a"}
    failed, said = by_name["execute_tool broken"]
    assert (failed.status.code, said["error.type"]) == (Status.STATUS_CODE_ERROR, "ValueError")
    assert failed.status.message == ""  # it may quote what was said
    for span in receiver.spans():
        said = attributes(span)
        assert {"gen_ai.operation.name", "gen_ai.agent.name", "agentor.run.id"} <= set(said)
        assert said["gen_ai.conversation.id"] == "r"  # also in the fork
        assert len(said) <= 30
    (root,) = [s for s in receiver.spans() if not s.parent_span_id and s.trace_id.hex() == trace_id("f")]
    (link,) = root.links
    assert (link.span_id, attributes(link)) == (segment.span_id, {"agentor.link.type": "fork"})
    assert attributes(root)["agentor.fork.parent_run.id"] == "r"


def test_attempts_that_were_repeated_are_events_of_the_span_that_succeeded(receiver: Receiver) -> None:
    tracer = OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    again = ModelError("busy", error_type="RateLimitError", retryable=True, retry_after_s=0.0)
    Agentor("a", model=ScriptedModel([attempts(again, "fine")]), tracer=tracer).run("go")
    assert tracer.close()
    chat, _ = receiver.spans()
    assert chat.status.code == Status.STATUS_CODE_UNSET
    assert [(e.name, attributes(e)["error.type"]) for e in chat.events] == [
        ("agentor.retry", "RateLimitError")
    ]
    assert chat.start_time_unix_nano <= chat.events[0].time_unix_nano <= chat.end_time_unix_nano


def test_sending_again_sends_equal_bytes_and_by_default_nothing(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    agent(store, None).run("go", run_id="r", tracing=False)
    exporter = f"{receiver.url}/v1/traces"
    first = export_run(store, "r", OTLPSpanExporter(exporter))
    assert (first.sent, first.skipped, first.unfinished) == (5, 0, False)
    assert export_run(store, "r", OTLPSpanExporter(exporter)).sent == 0
    assert export_run(store, "r", OTLPSpanExporter(exporter), everything=True).sent == 5
    one, two = receiver.bodies
    assert one == two


def test_times_can_be_moved_for_backends_that_refuse_late_spans(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    agent(store, None).run("go", run_id="r", tracing=False)
    old = [json.loads(line) for line in store.path("r").read_text().splitlines()]
    assert old
    spans = spans_of(store, "r")
    export_run(store, "r", OTLPSpanExporter(f"{receiver.url}/v1/traces"), shift_to_now=True)
    for span, sent in zip(spans, receiver.spans(), strict=True):
        by_s = attributes(sent)["agentor.time.shift_s"]
        assert sent.end_time_unix_nano / 1e9 == pytest.approx(span.ended_at + by_s, abs=0.01)


# --- an application's own provider --------------------------------------------------------------


def provider_to(receiver: Receiver, **more: Any) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False, **more)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    return provider


def test_a_provider_of_the_application_gets_the_same_spans_under_the_same_ids(
    tmp_path: Path, receiver: Receiver
) -> None:
    store, provider = FileStore(tmp_path), provider_to(receiver)
    tracer = OtelTracer(provider)
    weather = agent(store, tracer)
    weather.run("go", run_id="r")
    weather.fork("r", "other", fork_id="f")
    assert tracer.close()
    with provider.get_tracer("other").start_as_current_span("theirs") as theirs:
        assert f"{theirs.get_span_context().trace_id:032x}" != trace_id("f")
    provider.shutdown()
    got = {k: v for k, v in tree(receiver).items() if v[2] != "theirs"}
    assert got == expected(spans_of(store, "r"), spans_of(store, "f"))
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_processor_gets_finished_spans(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    tracer = OtelTracer(BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    agent(store, tracer).run("go", run_id="r")
    assert tracer.close()
    receiver.wait_for(5)
    assert tree(receiver) == expected(spans_of(store, "r"))


def test_what_is_no_place_for_spans_is_refused() -> None:
    with pytest.raises(TypeError, match="a TracerProvider, a SpanExporter or a SpanProcessor"):
        OtelTracer(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has set no TracerProvider"):
        OtelTracer()


# --- what is current while a run happens ----------------------------------------------------------


def test_spans_of_libraries_in_parallel_tools_and_models_nest_in_ours(
    tmp_path: Path, receiver: Receiver
) -> None:
    provider = provider_to(receiver)
    library = provider.get_tracer("library")

    def sync(n: int) -> str:
        with library.start_as_current_span(f"library sync {n}"):
            return str(n)

    async def asynchronous(n: int) -> str:
        with library.start_as_current_span(f"library asynchronous {n}"):
            await asyncio.sleep(0)
            return str(n)

    class Model(ScriptedModel):
        async def complete(self, *args: Any) -> Any:
            with library.start_as_current_span("library model"):
                return await super().complete(*args)

    names = ["sync", "asynchronous"] * 2
    model = Model([[call(name, {"n": n}) for n, name in enumerate(names)], "done"])
    store, tracer = FileStore(tmp_path), OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    Agentor("a", model=model, tools=[sync, asynchronous], store=store, tracer=tracer).run("go", run_id="r")
    assert tracer.close()
    provider.shutdown()
    spans = {s.span_id: s for s in receiver.spans()}
    nested = [s for s in spans.values() if s.name.startswith("library")]
    assert len(nested) == 6
    for span in nested:
        above = spans[span.parent_span_id]
        if span.name == "library model":
            assert above.name == "chat scripted"
        else:
            _, tool, _ = span.name.split()
            assert above.name == f"execute_tool {tool}"
        assert span.trace_id == above.trace_id
    parents = [s.parent_span_id for s in nested]
    assert len(set(parents)) == 6  # each in its own


async def test_leaving_a_stream_early_disturbs_no_context(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    tracer = OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    provider = provider_to(receiver)
    store = MemoryStore()
    weather = agent(store, tracer)
    with (
        caplog.at_level(logging.DEBUG, "opentelemetry.context"),
        provider.get_tracer("x").start_as_current_span("mine"),
    ):
        mine = trace.get_current_span()
        stream = weather.astream("go", run_id="r")
        async for event in stream:
            assert trace.get_current_span() is mine
            if event.type == "text_delta":
                break
        await stream.aclose()  # type: ignore[attr-defined]
        assert trace.get_current_span() is mine
    assert caplog.records == []
    assert tracer.close()
    provider.shutdown()
    (segment,) = [s for s in receiver.spans() if s.name == "invoke_agent weather"]
    assert attributes(segment)["error.type"] == "cancelled"


def test_a_run_inside_a_span_is_in_its_trace_and_a_resume_elsewhere_too(
    tmp_path: Path, receiver: Receiver
) -> None:
    provider = provider_to(receiver)
    store, tracer = FileStore(tmp_path), OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    weather = agent(store, tracer)
    with provider.get_tracer("web").start_as_current_span("request") as request:
        weather.run("go", run_id="r")
    context = request.get_span_context()
    start = store.load("r")[0]
    assert isinstance(start, RunStart)
    assert start.traceparent == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    weather.continue_run("r", "more")  # no span is current here
    assert tracer.close()
    provider.shutdown()
    assert {s.trace_id.hex() for s in receiver.spans()} == {f"{context.trace_id:032x}"}
    (root,) = [s for s in receiver.spans() if not s.parent_span_id]
    assert root.name == "request"


def test_an_agent_that_is_a_tool_of_another_one_is_in_its_trace(tmp_path: Path, receiver: Receiver) -> None:
    store, tracer = FileStore(tmp_path), OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    inner = Agentor("inner", model=ScriptedModel(["inner answer"]), store=store, tracer=tracer)

    async def ask(question: str) -> str:
        return str((await inner.arun(question, run_id="child")).final_output)

    def ask_sync(question: str) -> str:
        return str(inner.run(question, run_id="child-2").final_output)

    script = [[call("ask", {"question": "?"})], [call("ask_sync", {"question": "?"})], "done"]
    outer = Agentor("outer", model=ScriptedModel(script), tools=[ask, ask_sync], store=store, tracer=tracer)
    assert outer.run("go", run_id="parent").final_output == "done"
    assert tracer.close()
    spans = {s.span_id: s for s in receiver.spans()}
    assert {s.trace_id.hex() for s in spans.values()} == {trace_id("parent")}
    children = [s for s in spans.values() if s.name == "invoke_agent inner"]
    above = sorted(spans[s.parent_span_id].name for s in children)
    assert above == ["execute_tool ask", "execute_tool ask_sync"]


def nested(store: Any, tracer: Any = None) -> Agentor:
    inner = Agentor("inner", model=ScriptedModel(["inner answer"])).as_tool()
    return Agentor(
        "outer",
        model=ScriptedModel([call("inner", {"input": "?"}), "done"]),
        tools=[inner],
        store=store,
        tracer=tracer,
    )


@pytest.mark.parametrize("live", [True, False], ids=["live", "from the logs"])
def test_a_sub_agent_is_in_its_parents_trace_and_names_it(
    tmp_path: Path, receiver: Receiver, live: bool
) -> None:
    store, exporter = FileStore(tmp_path), OTLPSpanExporter(f"{receiver.url}/v1/traces")
    tracer = OtelTracer(exporter)
    nested(store, tracer if live else None).run("go", run_id="parent", tracing=None if live else False)
    child = next(run_id for run_id in store.list_runs() if run_id != "parent")
    for run_id in () if live else ("parent", child):
        export_run(store, run_id, OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    assert tracer.close()
    spans = {s.name: s for s in receiver.spans()}
    assert {s.trace_id.hex() for s in receiver.spans()} == {trace_id("parent")}
    below, above = spans["invoke_agent inner"], spans["execute_tool inner"]
    assert below.parent_span_id == above.span_id
    assert attributes(below)["agentor.parent_run.id"] == "parent"
    assert attributes(above)["agentor.child_run.id"] == child
    totals = [attributes(s).get("agentor.usage.input_tokens") for s in receiver.spans()]
    assert all(total in (None, 0) for total in totals)  # tokens of a child are on its own spans


# --- sampling and switches --------------------------------------------------------------------------


def test_a_ratio_sampler_takes_its_share_of_runs_and_all_segments_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.3")
    target = ExporterTarget(OTLPSpanExporter())
    places = [SpanContext(trace_id(uuid.uuid4().hex), "1" * 16) for _ in range(2000)]
    taken = [target.samples(place, None) for place in places]
    assert 0.25 < sum(taken) / len(taken) < 0.35
    assert [ExporterTarget(OTLPSpanExporter()).samples(place, None) for place in places] == taken
    target.close(0)


def test_a_caller_that_is_not_sampled_keeps_its_runs_out(tmp_path: Path, receiver: Receiver) -> None:
    store, tracer = FileStore(tmp_path), OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    weather = agent(store, tracer)
    unsampled = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    with trace.use_span(unsampled):
        weather.run("go", run_id="r")
    weather.continue_run("r", "more")
    assert tracer.close()
    assert receiver.spans() == []


PROBE = """
import sys
from agentor import Agentor
from agentor.errors import ModelError
from agentor.testing import ScriptedModel
assert Agentor("a", model=ScriptedModel(["hi"])).run("go").status == "completed"
print(any(name.split(".")[0] in ("opentelemetry", "agentor_exporters") for name in sys.modules))
"""


def test_without_tracing_opentelemetry_is_not_imported() -> None:
    assert ran(PROBE) == "False"


def test_the_standard_variables_alone_switch_tracing_on(receiver: Receiver) -> None:
    assert ran(PROBE, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url) == "True"
    assert [s.name for s in receiver.spans()] == ["chat scripted", "invoke_agent a"]


@pytest.mark.parametrize(
    "off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}], ids=["disabled", "none"]
)
def test_the_standard_variables_switch_it_off(receiver: Receiver, off: dict[str, str]) -> None:
    assert ran(PROBE, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **off) == "False"
    asked = PROBE.replace('"hi"])', '"hi"]), tracer="environment"')
    assert ran(asked, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **off) == "True"
    assert receiver.requests == []


def test_a_provider_that_the_application_set_is_used_unasked(receiver: Receiver) -> None:
    code = f"""
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter({receiver.url + "/v1/traces"!r})))
trace.set_tracer_provider(provider)
{PROBE}
assert trace.get_tracer_provider() is provider
Agentor("b", model=ScriptedModel(["hi"])).run("go", tracing=False)
"""
    assert ran(code) == "True"
    assert {s.name for s in receiver.spans()} == {"chat scripted", "invoke_agent a"}


def test_the_console_exporter_prints_spans() -> None:
    lines = ran(PROBE, OTEL_TRACES_EXPORTER="console")
    assert '"name": "invoke_agent a"' in lines


def test_a_tracer_that_is_dropped_lets_its_thread_end(receiver: Receiver) -> None:
    import gc
    import threading

    others = set(threading.enumerate())
    tracer = OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"), linger_s=0.0)
    agent(None, tracer).run("go")
    (thread,) = [t for t in threading.enumerate() if t.name == "agentor-trace" and t not in others]
    receiver.wait_for(5)
    del tracer
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
