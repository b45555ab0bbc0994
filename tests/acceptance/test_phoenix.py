"""A run that is killed, exported, resumed and forked, as a real Arize Phoenix shows it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from acceptance import traveller
from agentor_exporters.after import Export, export_run
from servers.phoenix import Phoenix, once, python_or_skip
from servers.process import started

from agentor import Agentor, FileStore
from agentor.engine.events import ToolCall, ToolResult
from agentor.engine.spans import ModelSpan, Span
from agentor.engine.trace import project
from agentor.engine.transcript import hydrate
from agentor.testing import ScriptedModel

pytestmark = pytest.mark.acceptance
PROJECT, OTHER_PROJECT = "trips", "later"
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "phoenix.png"
Shown = dict[str, Any]  # a span in Phoenix's words


@dataclass
class Story:
    """What happened, and what Phoenix said of it on the way."""

    python: str
    phoenix: Phoenix
    live: list[Shown]  # when the process was killed
    after_crash: tuple[Export, list[Shown]]
    spans: list[Shown]  # when all was done
    again: list[Export]  # of both runs, by the cursor, when all was sent
    all_again: list[Export]  # of both runs, everything
    spans_at_last: list[Shown]
    projected: list[Span]  # from both logs

    @property
    def root(self) -> Shown:
        """The agent span of the process that was killed."""
        (found,) = (s for s in roots(self.spans) if s["attributes"]["agentor.run.id"] == traveller.RUN)
        return found


def roots(spans: list[Shown]) -> list[Shown]:
    return [s for s in spans if s["parent_id"] is None]


def by_id(spans: list[Shown]) -> dict[str, Shown]:
    return {s["context"]["span_id"]: s for s in spans}


def process(act: str, runs: Path) -> None:
    """A process that does this to the end."""
    command = [sys.executable, traveller.__file__, act, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "completed\n"), done.stderr


def killed_in_the_slow_tool(runs: Path, phoenix: Phoenix, folder: Path) -> list[Shown]:
    """Start the run, and kill it when one tool has ended and the other has not; what Phoenix has by then."""

    def tools() -> tuple[list[str], list[str]]:
        log = FileStore(runs).load(traveller.RUN)
        calls = [event.name for event in log if isinstance(event, ToolCall)]
        return calls, [event.name for event in log if isinstance(event, ToolResult)]

    command = [sys.executable, traveller.__file__, "run", str(runs)]
    child = started(command, folder, None, signal.SIGKILL)
    try:
        once(tools, lambda seen: seen == (["find_flight", "find_hotel"], ["find_flight"]))
        return once(lambda: phoenix.spans(PROJECT), lambda spans: len(spans) == 2)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def settle(phoenix: Phoenix, patch: pytest.MonkeyPatch) -> None:
    """Return when Phoenix has looked at all that it was sent: it takes spans one after the other."""
    patch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"openinference.project.name={OTHER_PROJECT}")
    Agentor("later", model=ScriptedModel(["done"]), tracer="otlp").run("go")
    once(lambda: phoenix.spans(OTHER_PROJECT), lambda spans: len(spans) == 2)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    python = python_or_skip()
    folder = tmp_path_factory.mktemp("phoenix")
    (folder / "child").mkdir()
    store = FileStore(folder / "runs")
    both = (traveller.RUN, traveller.FORK)
    with Phoenix(python, folder) as phoenix, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", phoenix.url)
        patch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"openinference.project.name={PROJECT}")

        def arrived(count: int) -> list[Shown]:
            return once(lambda: phoenix.spans(PROJECT), lambda spans: len(spans) >= count)

        live = killed_in_the_slow_tool(folder / "runs", phoenix, folder / "child")
        after_crash = export_run(store, traveller.RUN), arrived(4)
        process("resume", folder / "runs")
        process("fork", folder / "runs")
        spans = arrived(11)
        again = [export_run(store, run_id) for run_id in both]
        all_again = [export_run(store, run_id, everything=True) for run_id in both]
        settle(phoenix, patch)
        projected = [s for run_id in both for s in project(run_id, hydrate(run_id, store.load(run_id))[0])]
        last = phoenix.spans(PROJECT)
        yield Story(python, phoenix, live, after_crash, spans, again, all_again, last, projected)


def test_what_ended_before_the_kill_is_shown_while_the_run_is_alive(story: Story) -> None:
    assert sorted(s["name"] for s in story.live) == ["chat scripted", "execute_tool find_flight"]


def test_an_export_after_the_kill_shows_what_was_cut_off_as_interrupted(story: Story) -> None:
    export, spans = story.after_crash
    assert (export.sent + export.skipped, export.unfinished) == (4, False)
    failed = {s["name"]: s for s in spans if s["status_code"] == "ERROR"}
    assert sorted(failed) == ["execute_tool find_hotel", "invoke_agent traveller"]
    assert {s["attributes"]["error.type"] for s in failed.values()} == {"interrupted"}
    agent = failed["invoke_agent traveller"]
    assert agent["attributes"]["agentor.run.interrupted_during"] == "tool:find_hotel"
    assert agent["parent_id"] is None


def test_the_spans_are_those_of_the_logs_each_once(story: Story) -> None:
    shown = [s["context"]["span_id"] for s in story.spans]
    assert len(shown) == len(set(shown))
    found = {i: (s["context"]["trace_id"], s["parent_id"]) for i, s in by_id(story.spans).items()}
    places = {s.context.span_id: (s.context.trace_id, s.parent and s.parent.span_id) for s in story.projected}
    assert found == places


def test_agents_models_and_tools_are_shown_as_what_they_are(story: Story) -> None:
    kinds = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}
    assert [s["span_kind"] for s in story.spans] == [kinds[s["name"].split()[0]] for s in story.spans]


def test_run_and_resume_are_one_whole_tree_and_the_fork_another(story: Story) -> None:
    known = by_id(story.spans)
    parents = {s["parent_id"] for s in story.spans if s["parent_id"] is not None}
    assert parents <= set(known)
    assert {known[p]["span_kind"] for p in parents} == {"AGENT"}
    traces = {s["attributes"]["agentor.run.id"]: s["context"]["trace_id"] for s in story.spans}
    assert len(roots(story.spans)) == len({s["context"]["trace_id"] for s in story.spans}) == 2
    assert len(set(traces.values())) == 2
    resumed = [s for s in story.spans if s["parent_id"] == story.root["context"]["span_id"]]
    assert [s["attributes"]["agentor.run.segment"] for s in resumed if s["span_kind"] == "AGENT"] == [1]


def test_the_fork_names_its_parent_and_is_in_the_session_of_it(story: Story) -> None:
    (fork,) = (s for s in roots(story.spans) if s != story.root)
    assert fork["attributes"]["agentor.fork.parent_run.id"] == traveller.RUN
    assert {s["attributes"]["session.id"] for s in story.spans} == {traveller.RUN}
    # Phoenix 20 keeps no links, so the link is looked at where it is made.
    sent = {s.context.span_id: s.links for s in story.projected}[fork["context"]["span_id"]]
    assert [(link.context.span_id, link.kind) for link in sent] == [
        (story.root["context"]["span_id"], "fork")
    ]


def test_tokens_are_counted_once(story: Story) -> None:
    answers = [
        s.generation for s in story.projected if isinstance(s, ModelSpan) and s.run_id == traveller.RUN
    ]
    used = [answer.usage for answer in answers if answer is not None and answer.usage is not None]
    spent = sum(u.input_tokens for u in used), sum(u.output_tokens for u in used)
    query = """query ($id: String!) { getSpanByOtelId(spanId: $id) {
        cumulativeTokenCountPrompt cumulativeTokenCountCompletion } }"""
    counted = story.phoenix.ask(query, id=story.root["context"]["span_id"])["getSpanByOtelId"]
    assert (counted["cumulativeTokenCountPrompt"], counted["cumulativeTokenCountCompletion"]) == spent
    # Phoenix adds up what LLM spans have; others that read these keys take them from any span.
    assert {s["span_kind"] for s in story.spans if "llm.token_count.total" in s["attributes"]} == {"LLM"}
    (trace,) = (
        t for t in story.phoenix.traces(PROJECT) if t["trace_id"] == story.root["context"]["trace_id"]
    )
    assert trace["token_count_total"] == sum(spent) == 1759


def test_what_was_said_can_be_read(story: Story) -> None:
    said = [s["attributes"].get("llm.output_messages.0.message.content") for s in story.spans]
    assert traveller.FOUND.text in said
    assert traveller.SCRIPT[-1].text in said
    (asked,) = (s for s in story.live if s["span_kind"] == "LLM")
    messages = [asked["attributes"][f"llm.input_messages.{place}.message.content"] for place in (0, 1)]
    assert messages == [traveller.INSTRUCTIONS, traveller.TASK]
    assert story.root["attributes"]["input.value"] == traveller.TASK
    calls = "llm.output_messages.0.message.tool_calls"
    names = [asked["attributes"][f"{calls}.{n}.tool_call.function.name"] for n in (0, 1)]
    assert names == ["find_flight", "find_hotel"]
    (booked,) = (s for s in story.spans if s["name"] == "execute_tool book_hotel")
    assert booked["attributes"]["tool.parameters.hotel"] == "Casa do Rio"
    assert "Casa do Rio is booked" in booked["attributes"]["output.value"]


def test_sending_it_again_sends_nothing_or_changes_nothing(story: Story) -> None:
    assert [(export.sent, export.skipped) for export in story.again] == [(0, 9), (0, 2)]
    assert [(export.sent, export.skipped) for export in story.all_again] == [(9, 0), (2, 0)]
    assert story.spans_at_last == story.spans


def test_a_picture_for_the_docs(story: Story) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium to take the picture with")
    (first,) = (s for s in story.live if s["span_kind"] == "LLM")
    page = story.phoenix.page_of(PROJECT, first)
    PICTURE.parent.mkdir(exist_ok=True)
    command = [story.python, str(Path(__file__).with_name("picture.py")), page, "find_flight({", chromium]
    done = subprocess.run([*command, str(PICTURE)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 20_000 < PICTURE.stat().st_size < 300_000
