"""The trace is a function of the log: over random runs, crashes, resumes and forks."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentor import Agentor, MemoryStore
from agentor.engine.events import Event, Fork, Generation, Interrupted, Rewind, RunEnd, RunStart
from agentor.engine.lineage import split_fork
from agentor.engine.messages import Usage
from agentor.engine.spans import AgentSpan, ModelSpan, Span, SpanContext, ToolSpan, span_id, trace_id
from agentor.engine.trace import MAX_SPANS, Projector, project
from agentor.engine.transcript import hydrate
from agentor.errors import ModelError
from agentor.testing import ScriptedModel, answer, attempts, call

CALLS = st.lists(
    st.tuples(st.sampled_from(["fine", "fails", "nosuch"]), st.sampled_from([None, "", "same", "other"])),
    max_size=3,
)
TURNS = st.lists(st.tuples(CALLS, st.integers(0, 2)), min_size=1, max_size=4)
ACTS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["resume", "fork", "say"])), max_size=3)


def fine() -> str:
    return "fine"


def fails() -> str:
    raise ValueError("no")


def script_of(turns: Sequence[tuple[Any, int]]) -> Any:
    """Answers by turn; each failed as often as it says before it comes."""

    def step(calls: Any, failures: int) -> Any:
        asked = [call(name, id=given) for name, given in calls]
        said = answer("text", *asked, usage=Usage(input_tokens=7, output_tokens=3))
        again = ModelError("busy", error_type="RateLimitError", retryable=True, retry_after_s=0.0)
        return attempts(*[again] * failures, said)

    steps = [step(calls, failures) for calls, failures in turns]

    def script(messages: Any, _: object) -> Any:
        done = sum(m["role"] == "assistant" for m in messages)
        return steps[done % len(steps)] if done < 2 * len(steps) else "the end"

    return script


async def grown(turns: Any, acts: Any) -> list[tuple[str, list[Event], list[int]]]:
    """Logs that the engine wrote: a run, then after each crash, its continuation.

    Each comes with the places where a process died.
    """
    logs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = MemoryStore()
        agent = Agentor(
            "a", "Be brief.", ScriptedModel(script_of(turns)), [fine, fails], store=store, max_turns=9
        )
        await agent.arun("go", run_id="run-0")
        run_id, deaths = "run-0", list[int]()
        logs.append((run_id, store.load(run_id), deaths))
        for number, (where, act) in enumerate(acts, 1):
            events = store.load(run_id)
            if act == "resume":
                least = len(split_fork(events)[0]) or 1  # a fork is there as a whole, or not at all
                cut = least + int(where * (len(events) - least))
                store = MemoryStore()
                store.append_many(run_id, events[:cut])
                died = not isinstance(events[cut - 1], RunEnd | Interrupted | Fork)
                deaths = [d for d in deaths if d < cut] + ([cut] if died else [])
                agent = Agentor("a", "Be brief.", agent.model, [fine, fails], store=store, max_turns=9)
                await agent.aresume(run_id)
            elif act == "fork":
                at = int(where * (len(events) - 1))
                await agent.afork(run_id, "other" if number % 2 else None, at=at, fork_id=f"run-{number}")
                run_id, deaths = f"run-{number}", []
            else:
                await agent.aresume(run_id)
                await agent.acontinue_run(run_id, "more")
            logs.append((run_id, store.load(run_id), list(deaths)))
    return [(run_id, hydrate(run_id, events)[0], deaths) for run_id, events, deaths in logs]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=TURNS, acts=ACTS)
def test_a_trace_is_one_whole_tree_and_never_changes(turns: Any, acts: Any) -> None:
    for run_id, events, deaths in asyncio.run(grown(turns, acts)):
        spans = project(run_id, events)
        assert spans == project(run_id, events)  # P1
        check_tree(run_id, events, spans)
        check_prefixes(run_id, events, spans)
        for cut in deaths:  # P8: what a dead process left is the same before and after the resume
            early = project(run_id, events[:cut])
            assert early == spans[: len(early)]
        check_content(events, spans)


def check_tree(run_id: str, events: list[Event], spans: list[Span]) -> None:
    """P2, and what each span says of its run."""
    by_id = {s.context.span_id: s for s in spans}
    assert len(by_id) == len(spans)
    assert [s.number for s in spans] == list(range(len(spans)))
    roots = [s for s in spans if s.parent is None]
    assert len(roots) == bool(spans)
    assert {s.context.trace_id for s in spans} <= {trace_id(run_id)}
    for span in spans:
        kind = "model" if isinstance(span, ModelSpan) else ""
        assert span.context.span_id == span_id(run_id, span.seq, kind)
        assert span.started_at <= span.ended_at
        if span.parent is not None:
            parent = by_id[span.parent.span_id]
            assert isinstance(parent, AgentSpan)
            if not isinstance(span, AgentSpan):
                assert parent.segment == span.segment
                assert parent.started_at <= span.started_at <= span.ended_at <= parent.ended_at
    copied, own = split_fork(events)
    answers = [s.generation for s in spans if isinstance(s, ModelSpan) and s.generation is not None]
    assert [g.seq for g in answers] == [e.seq for e in own if isinstance(e, Generation)]
    assert sum(s.type == "tool_call" for s in own) == sum(isinstance(s, ToolSpan) for s in spans)
    starts = sum(isinstance(e, RunStart) for e in own)
    assert sum(isinstance(s, AgentSpan) and isinstance(s.start, RunStart) for s in spans) == starts
    if copied:
        marker = copied[-1]
        assert isinstance(marker, Fork)
        (link,) = [link for s in roots for link in s.links]
        assert (link.kind, link.context.trace_id) == ("fork", trace_id(marker.forked_from))
        assert {s.conversation for s in spans} == {"run-0"}


def check_prefixes(run_id: str, events: list[Event], spans: list[Span]) -> None:
    """P3: a span that ended in a prefix of the log is that of the whole log."""
    copied, own = split_fork(events)
    projector, ended = Projector(run_id, copied), list[Span]()
    for event in own:
        ended += projector.feed(event)
        assert ended == spans[: len(ended)]


def check_content(events: list[Event], spans: list[Span]) -> None:
    """Every message of every request is shown once in its trace, and none is missing."""
    shown: dict[int, Any] = {}  # by place in the conversation, what a span of this trace showed
    for span in spans:
        if not isinstance(span, ModelSpan) or span.generation is None:
            continue
        request = span.generation.messages
        assert list(span.new) == request[span.offset :]
        for place, message in enumerate(request[: span.offset]):
            if place in shown:
                assert shown[place] == message
            else:  # the instructions, which the segment's span shows
                assert (place, message["role"]) == (0, "system")
        shown |= {span.offset + n: m for n, m in enumerate(span.new)}
        if span.generation.error is None:
            shown[len(request)] = after(events, span.generation, len(request))


def after(events: list[Event], generation: Generation, place: int) -> Any:
    """The answer as later requests have it: where the engine gave a call another id, with that."""
    for event in events[(generation.seq or 0) + 1 :]:
        if isinstance(event, Generation) and len(event.messages) > place:
            return event.messages[place]
    return generation.message


def test_a_copy_of_a_finished_run_is_one_span_and_its_follow_up_a_child_of_it() -> None:
    store = MemoryStore()
    agent = Agentor("a", model=ScriptedModel(["one", "two", "three"]), store=store)
    agent.run("go", run_id="parent")
    agent.fork("parent", fork_id="copy")
    (copy,) = project("copy", hydrate("copy", store.load("copy"))[0])
    assert isinstance(copy, AgentSpan)
    assert (copy.status, copy.parent, copy.started_at) == ("completed", None, copy.ended_at)
    assert copy.links[0].context == SpanContext(trace_id("parent"), span_id("parent", 0))
    agent.continue_run("copy", "more")
    first, chat, second = project("copy", hydrate("copy", store.load("copy"))[0])
    assert first == copy
    assert chat.parent == second.context
    assert second.parent == copy.context
    agent.fork("copy", "again", fork_id="grandchild")
    spans = project("grandchild", hydrate("grandchild", store.load("grandchild"))[0])
    assert spans[-1].links[0].context == copy.context
    assert {s.conversation for s in spans} == {"parent"}


def test_a_run_that_a_caller_traces_is_in_the_callers_trace_also_after_a_resume_elsewhere() -> None:
    caller = SpanContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    begin = RunStart(seq=0, at=1.0, agent="a", traceparent=caller.traceparent, epoch=1)
    again = RunStart(
        seq=1, at=2.0, agent="a", epoch=2, traceparent=SpanContext("1" * 32, "2" * 16).traceparent
    )
    first, second = project("r", [begin, again, RunEnd(seq=2, at=3.0, status="completed")])
    assert first.parent == caller
    assert (first.context.trace_id, second.context.trace_id) == (caller.trace_id, caller.trace_id)
    assert (second.parent, first.error_type) == (first.context, "interrupted")
    assert [(link.kind, link.context.span_id) for link in second.links] == [
        ("resume", first.context.span_id),
        ("caller", "2" * 16),
    ]


def test_a_header_that_names_no_span_is_no_caller() -> None:
    for text in (None, "", "00-x-y-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'g' * 16}-01"):
        assert SpanContext.parse(text) is None
    assert SpanContext.parse(f"00-{'A' * 32}-{'1' * 16}-00") == SpanContext("a" * 32, "1" * 16, sampled=False)


def test_a_run_of_thousands_of_spans_goes_on_in_a_new_trace_at_its_next_segment() -> None:
    events: list[Event] = [RunStart(seq=0, at=1.0, agent="a", epoch=1)]
    for seq in range(1, MAX_SPANS + 1):
        events.append(Generation(seq=seq, at=2.0, turn=seq, model="m", text="x"))
    events.append(RunEnd(seq=MAX_SPANS + 1, at=3.0, status="max_turns"))
    events.append(RunStart(seq=MAX_SPANS + 2, at=4.0, agent="a", epoch=2))
    events.append(Generation(seq=MAX_SPANS + 3, at=5.0, turn=1, model="m", text="x"))
    events.append(RunEnd(seq=MAX_SPANS + 4, at=5.0, status="completed"))
    spans = project("r", hydrate("r", events)[0])
    *_, chat, last = spans
    assert chat.context.trace_id == last.context.trace_id == trace_id("r", MAX_SPANS + 2)
    assert last.parent is None
    assert [(link.kind, link.context) for link in last.links] == [("resume", spans[MAX_SPANS].context)]


def test_a_model_that_failed_for_good_is_a_span_and_the_one_that_answered_another() -> None:
    broken, other = ScriptedModel([ModelError("gone", error_type="NotFoundError")]), ScriptedModel(["fine"])
    broken.model, other.model = "first", "second"
    store = MemoryStore()
    Agentor("a", model=broken, fallback_models=[other], store=store).run("go", run_id="r")
    failed, chat, segment = project("r", hydrate("r", store.load("r"))[0])
    assert isinstance(failed, ModelSpan)
    assert (failed.model, failed.error_type, failed.generation) == ("first", "NotFoundError", None)
    assert isinstance(chat, ModelSpan)
    assert (chat.model, chat.error_type) == ("second", None)
    assert segment.error_type is None


def test_what_a_dead_process_was_at_is_told() -> None:
    begin = RunStart(seq=0, at=1.0, agent="a", epoch=1, messages=[{"role": "user", "content": "x"}])
    assert during([begin]) == "generation"
    asked = Generation(
        seq=1,
        at=2.0,
        turn=1,
        calls=[{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    )
    assert during([begin, asked]) == "between steps"
    store = MemoryStore()
    Agentor("a", model=ScriptedModel([call("fine"), "done"]), tools=[fine], store=store).run("go", run_id="r")
    assert [during(store.load("r")[:length]) for length in (1, 2, 3, 4, 5)] == [
        "generation",
        "between steps",
        "tool:fine",
        "generation",
        "between steps",
    ]


def during(events: list[Event]) -> str | None:
    span = project("r", hydrate("r", events)[0])[-1]
    assert isinstance(span, AgentSpan)
    assert (span.error_type, span.ended_at) == ("interrupted", events[-1].at)
    return span.during


def test_clocks_that_are_set_back_give_no_negative_spans() -> None:
    events: list[Event] = [
        RunStart(seq=0, at=100.0, agent="a", epoch=1),
        Generation(seq=1, at=50.0, turn=1, text="x", elapsed=10.0),
        RunEnd(seq=2, at=20.0, status="completed"),
    ]
    assert all(s.started_at <= s.ended_at for s in project("r", hydrate("r", events)[0]))


def test_a_message_behind_an_answer_that_was_taken_back_is_shown() -> None:
    asked = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    more = {"role": "user", "content": "more"}
    events: list[Event] = [
        RunStart(seq=0, at=1.0, agent="a", messages=[{"role": "user", "content": "x"}]),
        Generation(seq=1, at=1.0, turn=1, calls=asked),
        RunStart(seq=2, at=1.0, agent="a"),
        Rewind(seq=3, at=1.0, to=1),
        RunStart(seq=4, at=1.0, agent="a", engine="0.2", messages=[more]),
        Generation(seq=5, at=1.0, turn=1, text="y"),
    ]
    spans = project("r", hydrate("r", events)[0])
    (chat,) = [s for s in spans if isinstance(s, ModelSpan) and s.seq == 5]
    assert (chat.new, chat.offset) == ((more,), 1)
