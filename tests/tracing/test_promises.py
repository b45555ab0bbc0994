"""What must not happen, found by looking for it: lost spans, wrong ids, leaks, runs that tracing breaks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agentor_exporters import CelestoTracer, OtelTracer, aexport_run, export_run
from agentor_exporters.otel import ExporterTarget
from agentor_exporters.otlp import Several, otlp
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from servers.otlp import Receiver, attributes
from tracing.conftest import ran

from agentor import Agentor, FileStore, MemoryStore, SQLiteStore, ToolContext
from agentor.engine.events import Event
from agentor.engine.spans import span_id, trace_id
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.errors import ExportFailed
from agentor.testing import ScriptedModel, call
from agentor.tracer import named


def to(receiver: Receiver) -> OTLPSpanExporter:
    return OTLPSpanExporter(f"{receiver.url}/v1/traces")


def echo(*answers: str, store: Any = None, tracer: Any = None) -> Agentor:
    return Agentor("a", model=ScriptedModel(list(answers) or ["x"]), store=store, tracer=tracer)


def ids_of(store: Any, run_id: str) -> list[str]:
    return sorted(s.context.span_id for s in project(run_id, hydrate(run_id, store.load(run_id))[0]))


def sent(receiver: Receiver) -> list[str]:
    return sorted(s.span_id.hex() for s in receiver.spans())


# --- what a redactor by kind must be able to trust ---------------------------------------------------

SECRET = "secret-4711"


def hide(kind: str, value: Any, event: Event) -> Any:
    """The hook of the documentation, for arguments too."""
    return (
        None if kind in ("tool_result", "tool_arguments") and getattr(event, "name", "") == "mail" else value
    )


@pytest.mark.parametrize("content", ["delta", "full"])
@pytest.mark.parametrize("forked", [False, True], ids=["run", "fork"])
def test_a_redactor_of_results_and_arguments_meets_them_wherever_they_stand(
    tmp_path: Path, receiver: Receiver, content: Any, forked: bool
) -> None:
    def mail(to: str) -> str:
        return f"mail {SECRET}"

    store = FileStore(tmp_path)
    script = [call("mail", {"to": SECRET}), "done", "more"]
    agent = Agentor("a", model=ScriptedModel(script), tools=[mail], store=store)
    agent.run("go", run_id="r", tracing=False)
    tracer = OtelTracer(to(receiver), content=content, redact=hide, dialects=("openinference",))
    if forked:
        agent.fork("r", "again", fork_id="f", tracing=tracer)
    else:
        agent.continue_run("r", "again", tracing=tracer)
    assert tracer.close()
    export_run(store, "f" if forked else "r", to(receiver), content=content, redact=hide)
    assert receiver.spans()
    assert SECRET.encode() not in b"".join(receiver.bodies)


def test_a_redactor_meets_the_same_pieces_on_the_way_to_celesto(tmp_path: Path) -> None:
    def mail(to: str) -> str:
        return f"mail {SECRET}"

    store = FileStore(tmp_path)
    agent = Agentor(
        "a", model=ScriptedModel([call("mail", {"to": SECRET}), "done"]), tools=[mail], store=store
    )
    agent.run("go", run_id="r", tracing=False)
    tracer = CelestoTracer(endpoint="http://127.0.0.1:1/", api_key="k", content="full", redact=hide)
    spans = project("r", hydrate("r", store.load("r"))[0])
    pieces = [tracer.encoder.record(span).content for span in spans]
    assert SECRET not in json.dumps(pieces)
    assert "done" in json.dumps(pieces)


# --- providers ---------------------------------------------------------------------------------------


def test_two_tracers_and_an_export_through_one_provider_keep_their_ids(
    tmp_path: Path, receiver: Receiver
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(to(receiver)))
    store = FileStore(tmp_path)
    first, second = OtelTracer(provider), OtelTracer(provider)
    echo("x", "y", store=store, tracer=first).run("go", run_id="one")
    export = echo(store=store)
    export.run("go", run_id="three", tracing=False)
    export_run(store, "three", provider)
    echo(store=store, tracer=second).run("go", run_id="two")
    assert first.close()
    assert second.close()
    provider.shutdown()
    assert sent(receiver) == sorted(i for run_id in ("one", "two", "three") for i in ids_of(store, run_id))


def test_what_a_dead_process_gave_to_a_provider_is_sent_again_by_the_resume(
    tmp_path: Path, receiver: Receiver
) -> None:
    code = f"""
import os, sys, time
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from agentor import Agentor, FileStore
from agentor.testing import ScriptedModel, call
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter({receiver.url + "/v1/traces"!r})))
trace.set_tracer_provider(provider)
def step(n: int) -> str:
    if n == 2 and "first" in sys.argv:
        agent.tracer.flush()
        os.kill(os.getpid(), 9)
    return "ok"
from agentor_exporters import OtelTracer
script = [call("step", {{"n": 1}}), call("step", {{"n": 2}}), "done"]
agent = Agentor("a", model=ScriptedModel(script), tools=[step], store=FileStore({str(tmp_path)!r}), tracer=OtelTracer())
print((agent.run("go", run_id="r") if "first" in sys.argv else agent.resume("r")).status)
"""
    for argument, status in (("first", -9), ("second", 0)):
        done = subprocess.run(
            [sys.executable, "-c", code, argument], capture_output=True, timeout=60, check=False
        )
        assert done.returncode == status, done.stderr
    assert sorted(set(sent(receiver))) == ids_of(FileStore(tmp_path), "r")


# --- the pipeline --------------------------------------------------------------------------------------


def test_a_flush_before_the_first_run_changes_nothing(receiver: Receiver) -> None:
    tracer = OtelTracer(to(receiver))
    assert tracer.flush()
    echo(tracer=tracer).run("go")
    assert tracer.flush()
    assert len(receiver.spans()) == 2
    assert tracer.close()


def test_closing_a_named_tracer_ends_it_for_nobody(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    for _ in range(2):
        echo(tracer="otlp").run("go")
        assert named("otlp").close()  # type: ignore[attr-defined]
    assert len(receiver.spans()) == 4


def test_two_places_do_not_share_what_was_delivered(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    echo(store=store).run("go", run_id="r", tracing=False)
    with Receiver() as other:
        assert export_run(store, "r", to(receiver)).sent == 2
        assert export_run(store, "r", to(other)).sent == 2
        assert export_run(store, "r", to(other)).sent == 0
        keyed = OTLPSpanExporter(f"{other.url}/v1/traces", headers={"key": "of another project"})
        assert export_run(store, "r", keyed).sent == 2
    assert export_run(store, "r", "json").sent == 2
    assert export_run(store, "r", "json").sent == 2  # a terminal keeps nothing


def test_a_live_tracer_and_the_command_know_of_each_other(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    store, tracer = FileStore(tmp_path), OtelTracer(OTLPSpanExporter())
    echo(store=store, tracer=tracer).run("go", run_id="r")
    assert tracer.close()
    assert export_run(store, "r", "otlp").sent == 0


def test_a_span_that_was_dropped_is_sent_later_though_a_later_segment_was_delivered(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tracer = FileStore(tmp_path), OtelTracer(to(receiver))
    agent = echo("x", "y", store=store, tracer=tracer)
    monkeypatch.setattr("agentor_exporters.pipeline.MAX_SPANS", 3)  # a limit, not code of ours
    agent.run("go", run_id="r")
    agent.continue_run("r", "more")
    assert tracer.close()
    assert len(receiver.spans()) == 3
    assert export_run(store, "r", to(receiver)).sent >= 1
    assert sorted(set(sent(receiver))) == ids_of(store, "r")


def test_one_of_several_places_that_is_away_does_not_fill_the_others(receiver: Receiver) -> None:
    with Receiver() as other:
        receiver.status = 400
        both = Several([ExporterTarget(to(receiver)), ExporterTarget(to(other))])
        tracer = OtelTracer(both, linger_s=0.0)
        echo(tracer=tracer).run("go")
        assert not tracer.flush(3)
        receiver.status = 200
        assert tracer.flush(5)
        assert tracer.close()
        assert len(receiver.spans()) == len(other.spans()) == 2


def test_batches_are_measured_in_bytes_whatever_the_language(receiver: Receiver) -> None:
    tracer = OtelTracer(to(receiver), content="delta")
    agent = Agentor("a", model=ScriptedModel(lambda messages, _: "日" * 10_000), tracer=tracer)
    for _ in range(120):
        agent.run("本" * 10_000)
    assert tracer.close(20)
    assert len(receiver.spans()) == 240
    assert len(receiver.bodies) > 1
    assert all(len(body) < 2 * 1024 * 1024 for body in receiver.bodies)


def test_a_forked_child_has_connections_of_its_own(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
import os
from agentor import Agentor, FileStore
from agentor.testing import ScriptedModel
agent = Agentor("a", model=ScriptedModel(lambda m, _: "x"), store=FileStore({str(tmp_path)!r}), tracer="otlp")
agent.run("go", run_id="before")
assert agent.tracer.flush()
exporter = agent.tracer.target._to
pid = os.fork()
if pid == 0:
    assert agent.tracer.target._to is not exporter
agent.run("go", run_id="child" if pid == 0 else "parent")
assert agent.tracer.flush()
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    ran(code, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    store = FileStore(tmp_path)
    assert sent(receiver) == sorted(i for run in ("before", "child", "parent") for i in ids_of(store, run))


async def test_an_export_leaves_the_event_loop_alone(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    await echo(store=store).arun("go", run_id="r", tracing=False)
    receiver.hang = True
    export = asyncio.create_task(aexport_run(store, "r", to(receiver)))
    ticks = 0
    while receiver.waiting == 0:
        await asyncio.sleep(0)
        ticks += 1
    assert not export.done()
    receiver.release()
    assert (await export).sent == 2
    assert ticks > 0


# --- a run and its trace stay in step --------------------------------------------------------------------


def test_what_could_not_be_saved_is_not_shown_as_if_it_were(receiver: Receiver) -> None:
    class Away(MemoryStore):
        away = False

        def append_many(self, run_id: str, events: Any) -> None:
            if self.away:
                raise OSError("away")
            super().append_many(run_id, events)

    store = Away()

    def work(ctx: ToolContext) -> str:
        store.away = ctx.fencing_token == 1  # with the first worker only
        return "worked"

    tracer = OtelTracer(to(receiver))
    script = [call("work"), "done", "again"]
    agent = Agentor("a", model=ScriptedModel(script), tools=[work], store=store, tracer=tracer)
    assert not agent.run("go", run_id="r").durable
    assert tracer.flush()
    assert sent(receiver) == [span_id("r", 1, "model")]
    store.away = False
    agent.resume("r")
    assert tracer.close()
    assert sorted(set(sent(receiver))) == ids_of(store, "r")


@pytest.mark.parametrize("broken", ["segment", "use_span", "enter", "exit", "call"])
def test_a_tracer_that_fails_anywhere_breaks_no_run(broken: str) -> None:
    class Segment:
        traceparent = None

        def __call__(self, event: Event) -> None:
            if broken == "call":
                raise RuntimeError(broken)

        def use_span(self, seq: int, kind: str = "") -> Any:
            if broken == "use_span":
                raise RuntimeError(broken)
            return self.around()

        @contextmanager
        def around(self) -> Any:
            if broken == "enter":
                raise RuntimeError(broken)
            yield
            if broken == "exit":
                raise RuntimeError(broken)

    class Tracer:
        def segment(self, *_: Any) -> Segment:
            if broken == "segment":
                raise RuntimeError(broken)
            return Segment()

    with pytest.warns(RuntimeWarning, match="observer failed"):
        assert echo(tracer=Tracer()).run("go").status == "completed"


async def test_a_model_call_that_is_cancelled_has_a_span_and_what_is_below_it_a_parent(
    tmp_path: Path, receiver: Receiver
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(to(receiver)))
    begun = asyncio.Event()

    class Slow(ScriptedModel):
        async def complete(self, *args: Any) -> Any:
            with provider.get_tracer("library").start_as_current_span("library"):
                begun.set()
                await asyncio.Event().wait()

    store, tracer = FileStore(tmp_path), OtelTracer(to(receiver))
    agent = Agentor("a", model=Slow(["x"]), store=store, tracer=tracer)
    run = asyncio.create_task(agent.arun("go", run_id="r"))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert tracer.close()
    provider.shutdown()
    spans = {s.name: s for s in receiver.spans()}
    assert attributes(spans["chat scripted"])["error.type"] == "cancelled"
    assert spans["library"].parent_span_id == spans["chat scripted"].span_id
    again = echo("done", store=store)
    assert (await again.aresume("r", tracing=False)).final_output == "done"


@pytest.mark.parametrize("kind", ["files", "memory", "sqlite"])
def test_a_copy_that_goes_on_inside_a_request_is_in_one_trace(
    tmp_path: Path, receiver: Receiver, kind: str
) -> None:
    stores: dict[str, Any] = {
        "files": lambda: FileStore(tmp_path / "runs"),
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db"),
    }
    store = stores[kind]()
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = OtelTracer(to(receiver))
    seen: list[str] = []

    def look() -> str:
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")
        return "seen"

    model = ScriptedModel(["one", call("look"), "two", "three"])
    agent = Agentor("a", model=model, tools=[look], store=store, tracer=tracer)
    agent.run("go", run_id="parent")
    agent.fork("parent", fork_id="copy")
    with provider.get_tracer("web").start_as_current_span("request"):
        agent.continue_run("copy", "more")
    assert tracer.close()
    assert seen == [trace_id("copy")]
    mine = [s for s in receiver.spans() if s.trace_id.hex() == trace_id("copy")]
    assert sorted(s.span_id.hex() for s in mine) == ids_of(store, "copy")
    assert len([s for s in mine if not s.parent_span_id]) == 1
    if kind == "sqlite":
        store.close()


def test_a_fork_under_an_id_that_was_used_before_is_no_copy(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    agent = echo("one", "two", "three", store=store)
    agent.run("go", run_id="parent", tracing=False)
    for _ in range(2):
        agent.fork("parent", "more", fork_id="f", tracing=False)
        names = [type(s).__name__ for s in project("f", hydrate("f", store.load("f"))[0])]
        assert names == ["ModelSpan", "AgentSpan"]
        store.delete("f")
    store.close()


# --- sampling and switches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sampled", [True, False])
def test_the_first_segment_decides_for_the_whole_run(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, sampled: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on" if sampled else "always_off")
    store, first = FileStore(tmp_path), OtelTracer(to(receiver))
    agent = echo("x", "y", store=store, tracer=first)
    agent.run("go", run_id="r")
    assert first.close()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off" if sampled else "always_on")
    later = OtelTracer(to(receiver))
    agent.continue_run("r", "more", tracing=later)
    assert later.close()
    assert len(receiver.spans()) == (4 if sampled else 0)
    assert export_run(store, "r", to(receiver), sampled_only=True).sent == 0
    assert export_run(store, "r", to(receiver), everything=True).sent == 4  # somebody asked for this one


def test_an_unsampled_request_does_not_unsample_a_run_that_it_follows_up(
    tmp_path: Path, receiver: Receiver
) -> None:
    store, tracer = FileStore(tmp_path), OtelTracer(to(receiver))
    agent = echo("x", "y", store=store, tracer=tracer)
    agent.run("go", run_id="r")
    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))):
        agent.continue_run("r", "more")
    assert tracer.close()
    assert sent(receiver) == ids_of(store, "r")


@pytest.mark.parametrize("variable", ["OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none"])
def test_the_switches_hold_for_tracers_that_were_asked_for(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    store = FileStore(tmp_path)
    tracer = OtelTracer(to(receiver))
    echo(store=store, tracer=tracer).run("go", run_id="r")
    echo(store=store, tracer="otlp").run("go")
    assert tracer.close()
    with pytest.raises(ExportFailed, match="switches tracing off"):
        export_run(store, "r", "otlp")
    assert receiver.requests == []


def test_a_run_that_nobody_can_go_on_with_names_no_conversation(receiver: Receiver) -> None:
    tracer = OtelTracer(to(receiver))
    echo(tracer=tracer).run("go")
    assert tracer.close()
    assert all("gen_ai.conversation.id" not in attributes(s) for s in receiver.spans())


def test_a_result_knows_its_trace(tmp_path: Path, receiver: Receiver) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = OtelTracer(to(receiver))
    agent = echo("x", "y", store=FileStore(tmp_path), tracer=tracer)
    alone = agent.run("go")
    with provider.get_tracer("web").start_as_current_span("request") as request:
        inside = agent.run("go")
    assert tracer.close()
    assert alone.trace_id == trace_id(str(alone.run_id))
    assert inside.trace_id == f"{request.get_span_context().trace_id:032x}"
    assert {s.trace_id.hex() for s in receiver.spans()} == {alone.trace_id, inside.trace_id}
    assert echo().run("go").trace_id is None


def test_a_place_of_ones_own_needs_only_export(tmp_path: Path) -> None:
    class Mine:
        def __init__(self) -> None:
            self.names: list[str] = []

        def export(self, records: Any) -> bool:
            self.names += [record.name for record in records]
            return True

    mine = Mine()
    tracer = OtelTracer(mine)
    store = FileStore(tmp_path)
    echo(store=store, tracer=tracer).run("go", run_id="r")
    assert tracer.close()
    assert mine.names == ["chat scripted", "invoke_agent a"]
    assert export_run(store, "r", mine).sent == 2


def test_an_export_through_a_tracer_has_its_content_and_redaction(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    echo(SECRET, store=store).run("go", run_id="r", tracing=False)

    def redact(kind: str, value: Any, event: Event) -> Any:
        return json.loads(json.dumps(value).replace(SECRET, "gone"))

    tracer = OtelTracer(to(receiver), content="delta", redact=redact)
    assert export_run(store, "r", tracer).sent == 2
    assert b"gone" in b"".join(receiver.bodies)
    assert SECRET.encode() not in b"".join(receiver.bodies)
    with pytest.raises(ValueError, match="a tracer has its own content and redact"):
        export_run(store, "r", tracer, content="full")
    tracer.close()
    assert threading.active_count() > 0


def test_a_batch_processor_of_the_application_is_handed_spans(tmp_path: Path, receiver: Receiver) -> None:
    store = FileStore(tmp_path)
    echo(store=store).run("go", run_id="r", tracing=False)
    assert export_run(store, "r", BatchSpanProcessor(to(receiver))).sent == 2  # closed, and so flushed
    assert sent(receiver) == ids_of(store, "r")
    assert otlp().address.startswith("otlp ")
