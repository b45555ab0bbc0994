"""What waits is bounded, and whoever is asked on the way (a redactor, a place) can break nothing but his piece."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agentor_exporters import OtelTracer, export_run, pipeline
from agentor_exporters.attributes import Encoder, Record
from agentor_exporters.content import Fitted
from agentor_exporters.pipeline import size_of
from agentor_exporters.target import Plain
from agentor_exporters.tracer import SpanTracer
from servers.otlp import Receiver, attributes
from tracing.conftest import ran
from tracing.test_command import command

from agentor import Agentor, FileStore, MemoryStore
from agentor.engine.events import Event, Generation, RunStart
from agentor.engine.messages import Usage
from agentor.engine.spans import AgentSpan
from agentor.engine.store.base import Lease
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.errors import ExportFailed, UnusableTarget
from agentor.testing import ScriptedModel, call
from agentor.tracer import named


class Place:
    """A place in this process: it takes what `wants` takes."""

    address = identity = "place"

    def __init__(self, wants: Callable[[Record], bool] = lambda record: True) -> None:
        self.wants = wants
        self.records: list[Record] = []

    def export(self, records: Sequence[Record]) -> bool:
        if not all(self.wants(record) for record in records):
            return False
        self.records += records
        return True


def answering(*answers: Any, tools: Sequence[Callable[..., Any]] = (), **more: Any) -> Agentor:
    return Agentor("a", model=ScriptedModel(list(answers) or ["x"]), tools=list(tools), **more)


def tracer_to(place: Place, **options: Any) -> SpanTracer:
    return SpanTracer(Plain(place), Encoder(**options), linger_s=0.0)


# --- bounds -----------------------------------------------------------------------------------------


def test_a_full_backlog_costs_each_new_span_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_SPANS", 20)
    stripped = list[str]()
    whole = Record.without_content

    def counted(record: Record) -> Record:
        stripped.append(record.span.context.span_id)
        return whole(record)

    monkeypatch.setattr(Record, "without_content", counted)
    place = Place(lambda record: False)
    tracer = tracer_to(place, content="full")
    agent = Agentor("a", model=ScriptedModel(lambda messages, _: "x"), tracer=tracer)
    for _ in range(60):
        agent.run("go")
        tracer.flush(0.05)
    assert len(stripped) == len(set(stripped)) > 60  # each span at most once
    place.wants = lambda record: True
    assert tracer.flush(10)
    assert len(place.records) == 20
    assert not any(record.content for record in place.records[:-2])


def test_a_span_that_waits_keeps_no_conversation_in_memory() -> None:
    def tell(secret: str) -> str:
        return f"canary {secret}"

    store = MemoryStore()
    answering(call("tell", {"secret": "canary"}), "canary", tools=[tell], store=store).run(
        "canary", run_id="r"
    )
    spans = project("r", hydrate("r", store.load("r"))[0])
    records = [Encoder(content="none").record(span) for span in spans]
    assert len(records) == 4
    assert "canary" in repr(spans)
    assert "canary" not in repr(records)


def test_events_that_wait_behind_a_hanging_place_are_bounded_by_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_BYTES", 1_000_000)
    hangs, goes_on = threading.Event(), threading.Event()

    def wants(record: Record) -> bool:
        hangs.set()
        return goes_on.wait(30)

    place, store = Place(wants), FileStore(tmp_path)
    tracer = tracer_to(place)
    answering("x", store=store, tracer=tracer).run("go", run_id="first")
    assert hangs.wait(10)
    for n in range(8):
        answering("y" * 400_000, store=store, tracer=tracer).run("go", run_id=f"large-{n}")
    assert tracer._pipeline._inbox_bytes < 1_500_000
    goes_on.set()
    assert tracer.flush(10)
    for run_id in store.list_runs():
        export_run(store, run_id, tracer)
    ids = [record.span.context.span_id for record in place.records]
    assert len(ids) == 18
    assert len(set(ids)) == 18


def test_the_size_of_an_event_is_that_of_its_texts() -> None:
    assert size_of(Generation(text="x" * 1000)) > 1000
    assert (
        size_of(RunStart(messages=[{"role": "user", "content": [{"type": "text", "text": "x" * 5000}]}]))
        > 5000
    )
    history = Generation(text="x", request=([{"role": "user", "content": "x" * 5000}], 1))
    assert size_of(history) < 1000  # the conversation is the run's


def test_a_segment_that_waits_for_its_end_is_sent_in_pieces_of_a_request() -> None:
    class Whole(Plain):
        whole_segments = True

    place = Place()
    sizes = list[int]()
    target = Whole(place)
    take = target.export

    def export(records: Sequence[Record]) -> bool:
        sizes.append(sum(record.size_bytes for record in records))
        return take(records)

    target.export = export  # type: ignore[method-assign]  # it only listens
    tracer = SpanTracer(target, Encoder(content="delta"), linger_s=0.0)

    def big(n: int) -> str:
        return "x" * 30_000

    turns = [call("big", {"n": n}) for n in range(120)]
    answering(*turns, "end", tools=[big], tracer=tracer).run("go", max_turns=200)
    assert tracer.flush(10)
    assert len(place.records) == 2 * 120 + 2
    assert len(sizes) >= 3
    assert max(sizes) < 2 * 1024 * 1024


def test_a_very_long_list_of_messages_is_fitted_in_few_passes() -> None:
    said = [{"role": "user", "parts": [{"type": "text", "content": f"message {n}"}]} for n in range(50_000)]
    passes = 0

    class Counted(str):
        def encode(self, *arguments: Any) -> bytes:
            nonlocal passes
            passes += 1
            return str(self).encode(*arguments)

    said[-1]["parts"][0]["content"] = Counted("the last one")  # type: ignore[index]
    text = Fitted(256 * 1024).json(said)
    assert len(text) <= 256 * 1024
    assert "the last one" in text
    assert passes < 12


def test_a_provider_that_is_made_after_the_import_gets_what_waits_at_exit(receiver: Receiver) -> None:
    code = f"""
import agentor_exporters
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from agentor import Agentor
from agentor.testing import ScriptedModel
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter({receiver.url!r} + "/v1/traces")))
trace.set_tracer_provider(provider)
Agentor("a", model=ScriptedModel(["hi"])).run("go")
"""
    ran(code)
    assert {s.name for s in receiver.spans()} == {"chat scripted", "invoke_agent a"}


# --- redactors and places ---------------------------------------------------------------------------


def test_a_redactor_that_changes_what_it_gets_changes_no_conversation() -> None:
    def hide(kind: str, value: Any, event: Event) -> Any:
        if isinstance(value, list):
            for message in value:
                message["content"] = "hidden"
        if isinstance(value, dict):
            value.clear()
        return value

    def tell(secret: str) -> str:
        return f"told {secret}"

    place = Place()
    tracer = tracer_to(place, content="full", redact=hide)
    model = ScriptedModel([call("tell", {"secret": "s"}), "done"])
    result = Agentor("a", model=model, tools=[tell], tracer=tracer).run("go")
    assert tracer.flush(10)
    assert [m.get("content") for m in result.messages] == ["go", None, "told s", "done"]
    assert '"s' in str(result.messages[1]["tool_calls"])
    assert "hidden" in str(place.records[0].content)
    assert "go" not in str(place.records[0].content)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def leaves() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "odd",
    [
        lambda: {1, 2},
        circle,
        Unprintable,
        leaves,
        lambda: [{"role": "user", "tool_calls": 5}],
        lambda: [{"role": "user", "content": 7}, 3, None],
        lambda: float("nan"),
    ],
    ids=["set", "circle", "unprintable", "exit", "calls", "content", "nan"],
)
def test_a_redactor_that_gives_what_cannot_be_sent_costs_its_piece_alone(odd: Callable[[], Any]) -> None:
    def redact(kind: str, value: Any, event: Event) -> Any:
        return odd() if kind == "input_messages" else value

    place = Place()
    tracer = tracer_to(place, content="delta", redact=redact)
    for _ in range(2):  # the thread lives on
        answering("fine", tracer=tracer).run("go")
        assert tracer.flush(10)
    assert len(place.records) == 4
    for record in place.records:
        assert "fine" in record.content["gen_ai.output.messages"]
        assert "gen_ai.input.messages" not in record.content


def test_a_place_that_would_end_the_process_ends_nothing() -> None:
    fails = [True]

    def wants(record: Record) -> bool:
        if fails:
            fails.pop()
            raise SystemExit(3)
        return True

    place = Place(wants)
    tracer = tracer_to(place)
    answering("x", tracer=tracer).run("go")
    assert tracer.flush(10)
    assert len(place.records) == 2


def test_counts_beyond_64_bits_do_not_make_a_batch_unsendable(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    answering("x", store=store).run("go", run_id="r")
    made = [
        Generation(
            **{
                **{f: getattr(e, f) for f in ("seq", "at", "run_id", "turn", "model", "text", "sent")},
                "usage": Usage(input_tokens=10**30),
            }
        )
        if isinstance(e, Generation)
        else e
        for e in store.load("r")
    ]
    odd = MemoryStore()
    for event in made:
        odd.append("r", event)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    assert export_run(odd, "r", "otlp").sent == 2
    chat = next(s for s in receiver.spans() if s.name.startswith("chat"))
    assert attributes(chat)["gen_ai.usage.input_tokens"] == 1e30


# --- an export ---------------------------------------------------------------------------------------


def test_a_span_that_a_place_refuses_does_not_keep_back_the_others_and_is_tried_again(tmp_path: Path) -> None:
    place = Place(lambda record: not record.name.startswith("execute_tool"))
    store = FileStore(tmp_path)

    def step() -> str:
        return "ok"

    answering(call("step"), call("step"), "done", tools=[step], store=store).run("go", run_id="r")
    first = export_run(store, "r", place)
    assert (first.sent, len(first.refused)) == (4, 2)
    place.wants = lambda record: True
    again = export_run(store, "r", place)
    assert again.refused == ()
    assert {r.span.context.span_id for r in place.records} == {
        s.context.span_id for s in project("r", store.load("r"))
    }
    assert set(first.refused) <= {r.span.context.span_id for r in place.records}


def test_a_place_that_refuses_everything_is_an_error_that_says_so(tmp_path: Path) -> None:
    place = Place(lambda record: False)
    store = FileStore(tmp_path)
    answering("x", store=store).run("go", run_id="r")
    with pytest.raises(ExportFailed, match="0 of 2"):
        export_run(store, "r", place)


def test_a_run_that_ends_while_its_export_asks_for_it_is_not_shown_as_dead(tmp_path: Path) -> None:
    other = FileStore(tmp_path)

    class Slow(FileStore):
        """The worker ends the run between the load and the question who has it."""

        def lease(self, run_id: str, owner: str, ttl_s: float) -> Lease:
            if not ended:
                ended.append(True)
                answering("done", store=other).resume(run_id)
            return super().lease(run_id, owner, ttl_s)

    ended = list[bool]()
    answering("never saved", store=other).run("go", run_id="r")
    place = Place()
    store = Slow(tmp_path)
    path = other.path("r")
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])  # its process died here
    outcome = export_run(store, "r", place)
    assert not outcome.unfinished
    agents = [r.span for r in place.records if isinstance(r.span, AgentSpan)]
    assert agents[-1].status == "completed"


def test_a_new_run_under_an_id_that_was_used_is_sent_live(tmp_path: Path) -> None:
    place, store = Place(), FileStore(tmp_path)
    tracer = tracer_to(place)
    for n in range(2):
        answering("x", store=store, tracer=tracer).run("go", run_id="r")
        assert tracer.flush(10)
        assert len(place.records) == 2 * (n + 1)
        store.delete("r")


def test_a_pipe_in_place_of_a_cursor_is_not_waited_for(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    answering("x", store=store).run("go", run_id="r")
    os.mkfifo(store.path("r").with_suffix(".trace.json"))
    assert export_run(store, "r", Place()).sent == 2


# --- settings and logs of others ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1"), ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "bogus")],
)
def test_a_variable_that_is_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    store = FileStore(tmp_path)
    answering("x", store=store).run("go", run_id="r")
    monkeypatch.setenv(variable, value)
    with pytest.raises(UnusableTarget, match="OTEL_"):
        export_run(store, "r", "otlp")
    done = command(
        "r", "--store", str(tmp_path), url=os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    )
    assert done.returncode == 1
    assert done.stderr.startswith("agentor: traces cannot go to 'otlp'")
    named.cache_clear()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    with pytest.warns(UserWarning, match="sends no traces"):
        answering("fine").run("go")


def test_an_address_of_celesto_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELESTO_API_KEY", "key")
    monkeypatch.setenv("CELESTO_BASE_URL", "http://[::1")
    store = MemoryStore()
    answering("x", store=store).run("go", run_id="r", tracing=False)
    with pytest.raises(UnusableTarget, match="CELESTO_"):
        export_run(store, "r", "celesto")


def test_odd_values_in_a_log_of_0_1_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text(
        '{"type":"run_start","agent":"a","model":"m","messages":[{"role":"user"}],"started_at":"abc"}\n'
        '{"type":"generation","turn":1,"model":"m","messages":[{"content":7},{"role":"tool"},{"tool_calls":5}],'
        '"text":"hi","started_at":"yesterday","ended_at":null}\n'
        '{"type":"run_end","status":"completed","text":"hi","ended_at":[1]}\n'
    )
    place = Place()
    assert export_run(FileStore(tmp_path), "old", place, content="full").sent == 2
    assert {record.name for record in place.records} == {"chat m", "invoke_agent a"}


def test_an_observer_that_fails_breaks_no_run_where_warnings_are_errors() -> None:
    code = """
from agentor import Agentor
from agentor.testing import ScriptedModel
def fails(event):
    raise RuntimeError("no")
print(Agentor("a", model=ScriptedModel(["hi"]), tracer=fails).run("go").final_output)
"""
    assert ran(code) == "hi"


def test_the_environment_switches_a_given_tracer_off(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    tracer = OtelTracer(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
    answering("x", tracer=tracer).run("go")
    assert tracer.flush(5)
    assert receiver.requests == []
