"""`Agentor`: an agent as its users hold it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from copy import copy
from importlib.metadata import version
from typing import Any, Literal, overload  # Any: context, metadata and output are the user's own

from agentor.branching import Branching
from agentor.chat import StreamItem, item_of, streamed
from agentor.engine.budget import Budget
from agentor.engine.calls import AgentSpec
from agentor.engine.compaction import Hook
from agentor.engine.decisions import check_types
from agentor.engine.events import Event
from agentor.engine.models import Model
from agentor.engine.models.settings import ModelSettings
from agentor.engine.observer import Observer, Tracer
from agentor.engine.policy import Decision
from agentor.engine.recovery import Runs
from agentor.engine.redact import Redactor
from agentor.engine.result import RunResult
from agentor.engine.store.access import Access
from agentor.engine.store.base import Store
from agentor.engine.threads import background
from agentor.inputs import (
    Input,
    built_fallbacks,
    built_model,
    count,
    is_batch,
    json_object,
    messages_of,
    one_of,
)
from agentor.schema import output_parser, output_schema
from agentor.starts import Starts
from agentor.tools import resolve_tools
from agentor.tracer import Tracing, checked_tracer


class Agentor(Branching):
    """An agent: a model, instructions and tools, and a store that its runs survive in.

    Args:
        name: Names the agent in logs and traces.
        instructions: The system message.
        model: A model string as LiteLLM takes it (`"gpt-5-mini"`, `"anthropic/claude-..."`), or any
            object with `complete` and `stream`.
        tools: Functions, bound methods, `@function_tool`s or `Tool`s.
        store: Where runs are saved; None saves nothing, and then nothing can be resumed.
        output_type: A pydantic model; `final_output` is then an object of it.
        max_turns: Model calls a run may make.
        max_attempts: Starts in a row that came to nothing, after which a run is `poisoned`.
        max_tool_failures: Failures after which a tool is switched off for the rest of the run.
        model_settings: Temperature and such, for a model given as a string.
        context: Anything; tools get it as `ToolContext.context`.
        api_key, base_url: For a model given as a string; else from the environment.
        durability: `"best_effort"` goes on when the store fails and says so in the result;
            `"strict"` stops with `StoreError` before anything acts on what is not saved.
        fallback_models: Asked in their order when the model before has failed for good; the run goes
            on with the first one that answers. A string gets what of `model_settings` any provider takes.
        budget: What each run may spend, over all its segments.
        compaction: Makes the conversation shorter before a model is asked: a `Summary(model, ...)`, or a
            function of the messages and the last request's tokens that gives other messages, or None.
        on_change: What happens where a run was written by another agent (instructions, tools, model):
            `"warn"` says what differs and goes on, `"refuse"` raises `AgentChanged`, `"accept"` goes on.
            An open call whose tool is gone is refused in any case.
        redactor: Takes credentials out of every event before it is saved; a `Redactor()` if not given.
        metadata: A JSON object, kept in each run's first record.
        tracer: `"otlp"`, an `OtelTracer` or a `CelestoTracer`, or a callable that gets each event after
            it is saved. None: that of the application, if it has set up OpenTelemetry.
        enable_tracing: True without a `tracer` sends traces to Celesto (`CELESTO_API_KEY`).
        trace_group_id, trace_metadata: Kept in the log for exporters.

    Raises:
        TypeError, ValueError: an argument that cannot work, with what is wrong with it.
    """

    def __init__(
        self,
        name: str,
        instructions: str | None = None,
        model: str | Model = "gpt-5-mini",
        tools: Sequence[Any] | None = None,  # functions, methods, Tool objects
        *,
        store: Store | None = None,
        output_type: type[Any] | None = None,
        max_turns: int = 20,
        max_tool_failures: int = 2,
        max_attempts: int = 5,
        model_settings: ModelSettings | None = None,
        context: Any = None,
        api_key: str | None = None,
        base_url: str | None = None,
        durability: Literal["best_effort", "strict"] = "best_effort",
        fallback_models: Sequence[str | Model] = (),
        budget: Budget | None = None,
        compaction: Hook | None = None,
        on_change: Literal["warn", "refuse", "accept"] = "warn",
        redactor: Redactor | None = None,
        metadata: dict[str, Any] | None = None,
        enable_tracing: bool = False,
        tracer: str | Observer | Tracer | None = None,
        trace_group_id: str | None = None,
        trace_metadata: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError("name must be a text that is not empty")
        one_of("durability", durability, ("best_effort", "strict"))
        self.name, self.instructions = name, instructions
        self.tools = resolve_tools(tools or [])
        self.model = built_model(model, model_settings, api_key, base_url)
        self.store = store
        self.tracer = checked_tracer(tracer, enable_tracing)
        self._starts = Starts(
            metadata=json_object("metadata", metadata),
            trace_group_id=trace_group_id,
            trace_metadata=json_object("trace_metadata", trace_metadata),
            tracer=self.tracer,
        )
        fallbacks = built_fallbacks(fallback_models, self.model, model_settings)
        keys = [key for m in (self.model, *fallbacks) for key in getattr(m, "secrets", ())]
        spec = AgentSpec(
            name=name,
            model=self.model,
            fallbacks=fallbacks,
            redact=(redactor or Redactor()).knowing(keys).event,
            instructions=instructions,
            tools={tool.name: tool for tool in self.tools},
            response_format=None if output_type is None else output_schema(output_type),
            parse_output=None if output_type is None else output_parser(output_type),
            max_turns=count("max_turns", max_turns),
            max_tool_failures=count("max_tool_failures", max_tool_failures),
            max_attempts=count("max_attempts", max_attempts),
            context=context,
            strict=durability == "strict",
            budget=budget,
            compaction=compaction,
            on_change=one_of("on_change", on_change, ("warn", "refuse", "accept")),
        )
        super().__init__(Runs(spec, None if store is None else Access(store), version("agentor")))

    def with_store(self, store: Store) -> Agentor:
        """The same agent with another store for its runs."""
        other = copy(self)
        other.store, other._runs = store, Runs(self.spec, Access(store), version("agentor"))
        return other

    # --- run ------------------------------------------------------------------------------------

    @overload
    async def arun(
        self,
        input: list[str],
        *,
        max_turns: int | None = None,
        budget: Budget | None = None,
        tracing: Tracing = None,
        metadata: dict[str, Any] | None = None,
        limit_concurrency: int = 10,
    ) -> list[RunResult]: ...

    @overload
    async def arun(
        self,
        input: Input,
        *,
        run_id: str | None = None,
        max_turns: int | None = None,
        budget: Budget | None = None,
        tracing: Tracing = None,
        metadata: dict[str, Any] | None = None,
        limit_concurrency: int = 10,
    ) -> RunResult: ...

    async def arun(
        self,
        input: Input | list[str],
        *,
        run_id: str | None = None,
        max_turns: int | None = None,
        budget: Budget | None = None,
        tracing: Tracing = None,
        metadata: dict[str, Any] | None = None,
        limit_concurrency: int = 10,
    ) -> RunResult | list[RunResult]:
        """Run the agent to its end.

        Args:
            input: A text, a list of messages, or a list of texts: one run each then, at most
                `limit_concurrency` at a time, results in the order of the texts.
            run_id: A name of your own for the run; it must be unused.
            max_turns, budget: Instead of the agent's.
            tracing: False: this run is shown to no tracer; True: to the agent's, or Celesto; or a tracer.
            metadata: A JSON object, over the agent's own.

        Raises:
            InvalidRunId, RunExists: about `run_id`.
            StoreError: with `durability="strict"`, when the store fails.
        """
        start = self._starts.start(max_turns, tracing, metadata, budget=budget)
        if is_batch(input):
            if run_id is not None:
                raise ValueError("run_id names one run; a list of texts is many")
            inputs = [messages_of(str(text)) for text in input]
            return await self._runs.run_many(inputs, start, count("limit_concurrency", limit_concurrency))
        return await self._runs.run(messages_of(input), run_id, start)

    def run(
        self,
        input: Input,
        *,
        run_id: str | None = None,
        max_turns: int | None = None,
        budget: Budget | None = None,
        tracing: Tracing = None,
        metadata: dict[str, Any] | None = None,
    ) -> RunResult:
        """`arun` for callers that are not async; Ctrl-C stops the run, which stays resumable."""
        work = self.arun(
            input, run_id=run_id, max_turns=max_turns, budget=budget, tracing=tracing, metadata=metadata
        )
        return background.run(work, method="run")

    # --- resume, follow up ----------------------------------------------------------------

    async def aresume(
        self,
        run_id: str,
        *,
        decisions: Mapping[str, Decision] | None = None,
        max_turns: int | None = None,
        budget: Budget | None = None,
        wait_s: float = 0.0,
        tracing: Tracing = None,
    ) -> RunResult:
        """Finish a run that was interrupted; a finished one gives its stored result.

        No recorded tool call runs again. A call that started and has no result goes by its tool's
        `on_crash`.

        Args:
            decisions: By call id, for what `result.pending` lists: `Approve()` or `Deny(why)` for a call
                that waits for an approval; `Happened(result)`, `NotHappened()` or `Deny(why)` for
                one in doubt. What is not decided waits on.
            max_turns, budget: New totals for the whole run; None keeps what it was started with.
            wait_s: Seconds to wait for a run that another worker holds.

        Raises:
            RunNotFound, RunBusy, CorruptLog, UnsupportedLog: as named.
            DecisionRefused: a decision that the run has no use for.
            ValueError: no store.
        """
        check_types(decisions or {})
        start = self._starts.start(max_turns, tracing, decisions=decisions, budget=budget, wait_s=wait_s)
        return await self._runs.resume(run_id, start)

    def resume(
        self,
        run_id: str,
        *,
        decisions: Mapping[str, Decision] | None = None,
        max_turns: int | None = None,
        budget: Budget | None = None,
        wait_s: float = 0.0,
        tracing: Tracing = None,
    ) -> RunResult:
        """`aresume` for callers that are not async."""
        work = self.aresume(
            run_id,
            decisions=decisions,
            max_turns=max_turns,
            budget=budget,
            wait_s=wait_s,
            tracing=tracing,
        )
        return background.run(work, method="resume")

    async def acontinue_run(
        self, run_id: str, input: Input, *, max_turns: int | None = None, tracing: Tracing = None
    ) -> RunResult:
        """A follow-up message in the same run, after it ended.

        Args:
            max_turns: Model calls for this follow-up alone.

        Raises:
            RunNotFound, RunBusy, CorruptLog, UnsupportedLog: as named.
            ValueError: no store, or the run is unfinished.
        """
        start = self._starts.start(max_turns, tracing)
        return await self._runs.follow_up(run_id, messages_of(input), start)

    def continue_run(
        self, run_id: str, input: Input, *, max_turns: int | None = None, tracing: Tracing = None
    ) -> RunResult:
        """`acontinue_run` for callers that are not async."""
        work = self.acontinue_run(run_id, input, max_turns=max_turns, tracing=tracing)
        return background.run(work, method="continue_run")

    # --- streams --------------------------------------------------------------------------------

    def astream(
        self,
        input: Input,
        *,
        run_id: str | None = None,
        max_turns: int | None = None,
        budget: Budget | None = None,
        tracing: Tracing = None,
        metadata: dict[str, Any] | None = None,
    ) -> AsyncIterator[Event]:
        """Run the agent and give every event as soon as it is saved, and text deltas as they come.

        Leaving the loop early cancels the run: its log says so, and it can be resumed.

        Raises: as `arun`.
        """

        def run(stream: Callable[[Event], None]) -> Coroutine[Any, Any, RunResult]:
            start = self._starts.start(max_turns, tracing, metadata, stream=stream, budget=budget)
            return self._runs.run(messages_of(input), run_id, start)

        return streamed(run)

    @overload
    def stream_chat(
        self, input: Input, serialize: Literal[True] = True, *, tracing: Tracing = None
    ) -> AsyncIterator[str]: ...

    @overload
    def stream_chat(
        self, input: Input, serialize: Literal[False], *, tracing: Tracing = None
    ) -> AsyncIterator[StreamItem]: ...

    async def stream_chat(
        self, input: Input, serialize: bool = True, *, tracing: Tracing = None
    ) -> AsyncIterator[str | StreamItem]:
        """Run the agent for a chat front end; the first item tells the run id.

        Args:
            serialize: True gives one JSON text per item, False `StreamItem` objects.
        """
        stream = self.astream(input, tracing=tracing)
        try:
            async for event in stream:
                if (item := item_of(event)) is not None:
                    yield item.to_json() if serialize else item
        finally:
            await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator
