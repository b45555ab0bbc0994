"""Asking models: what goes before a call, its attempts, and its outcome as events."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable
from typing import Any  # request parameters are JSON

from agentor.engine.calls import name_of, request_schemas
from agentor.engine.compaction import compacted
from agentor.engine.events import Context, Event, Generation, Retry, TextDelta
from agentor.engine.messages import split_message
from agentor.engine.models import Model, ModelResponse, StreamChunk
from agentor.engine.policy import retry_wait_s
from agentor.engine.recording import Recording
from agentor.engine.spans import MODEL
from agentor.engine.words import CANCELLED
from agentor.errors import ModelError, as_model_error


class Asking:
    """The model calls of a segment.

    Args:
        log: Where they are recorded.
        stream: Gets the pieces of streamed answers.
    """

    def __init__(self, log: Recording, stream: Callable[[Event], None] | None) -> None:
        self._log, self._stream = log, stream
        self._heard: list[StreamChunk] = []  # of the answer that is on its way
        self._params: dict[str, Any] | None = None  # those of the last generation, as they were

    async def generate(self, turn: int) -> None:
        """Ask until a model answers, or the last one has failed for good; what happened is recorded.

        Raises:
            StoreError: as `Journal.commit`.
        """
        await self._compact()
        await self._log.journal.commit()  # the model is only ever sent what is on disk
        attempt, model = 1, self._log.spec.chosen(self._log.transcript.fallback)
        opened = self._log.journal.next_seq  # the first event about this model's call names its span
        while True:
            started = time.perf_counter()
            try:
                with self._log.journal.watch.use_span(opened, MODEL):
                    response, first_s = await self._ask(model, turn, started)
                break
            except asyncio.CancelledError:
                self._record_cancelled(turn, model, time.perf_counter() - started)
                raise
            except Exception as error:  # a custom model may raise anything
                failure = as_model_error(error)
                wait_s = retry_wait_s(failure, attempt)
                fallback = self._log.spec.next_after(model) if wait_s is None else None
                elapsed = round(time.perf_counter() - started, 4)
                if wait_s is None and fallback is None:
                    self._record_failure(turn, model, failure, elapsed)
                    return
                self._log.record(
                    Retry(
                        turn=turn,
                        attempt=attempt,
                        error=str(failure),
                        error_type=failure.error_type,
                        wait_s=wait_s,
                        model=name_of(model),
                        elapsed=elapsed,
                        fallback=None if fallback is None else name_of(fallback),
                    )
                )
                await self._log.journal.commit()
                await asyncio.sleep(wait_s or 0)
                attempt += 1
                if fallback is not None:
                    attempt, model, opened = 1, fallback, self._log.journal.next_seq
        elapsed = round(time.perf_counter() - started, 4)
        self._record_answer(turn, model, response, first_s, elapsed)

    async def _compact(self) -> None:
        t = self._log.transcript
        if self._log.spec.compaction is None:
            return
        try:
            short = await compacted(self._log.spec.compaction, t.messages, t.asked)
        except Exception as error:  # the user's own: the conversation stays as it is
            run_id = self._log.journal.run_id
            text = f"run {run_id!r} goes on with its whole conversation: compaction failed: {error!r}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return
        if short is not None:
            usage = short.usage if short.usage and short.usage.to_dict() else None
            self._log.record(Context(messages=short.messages, usage=usage, cost=short.cost))

    async def _ask(self, model: Model, turn: int, started: float) -> tuple[ModelResponse, float | None]:
        messages = self._log.transcript.messages
        tools = request_schemas(self._log.spec, self._log.transcript.disabled)
        if not self._log.transcript.streams:
            return await model.complete(messages, tools, self._log.spec.response_format), None
        first_s: float | None = None
        self._heard = []
        chunks = model.stream(messages, tools, self._log.spec.response_format)
        try:
            async for chunk in chunks:
                if first_s is None:
                    first_s = round(time.perf_counter() - started, 4)
                self._heard.append(chunk)
                if self._stream is not None and (chunk.text or chunk.reasoning):
                    run_id, text = self._log.journal.shown_id, chunk.text
                    self._stream(TextDelta(turn=turn, text=text, reasoning=chunk.reasoning, run_id=run_id))
                if chunk.final is not None:
                    return chunk.final, first_s
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        raise ModelError("the stream ended early", error_type="LostStream", retryable=True)

    def _record_answer(
        self, turn: int, model: Model, response: ModelResponse, first_s: float | None, elapsed: float
    ) -> None:
        params = getattr(model, "params", None) or {}
        known = params in (self._params, self._log.transcript.params or {})  # the log's may be redacted
        self._params = params
        self._log.record(
            Generation(
                turn=turn,
                model=response.model or name_of(model),
                **split_message(response.message),
                usage=response.usage if response.usage.to_dict() else None,
                cost=response.cost,
                finish_reason=response.finish_reason,
                raw_finish_reason=response.raw_finish_reason,
                response_id=response.response_id,
                estimated=response.estimated or None,
                left_out=response.left_out or None,
                params=None if known else params,
                sent=self._log.transcript.sent(),
                time_to_first_chunk=first_s,
                elapsed=elapsed,
            )
        )

    def _record_failure(self, turn: int, model: Model, failure: ModelError, elapsed: float) -> None:
        self._log.record(
            Generation(
                turn=turn,
                model=name_of(model),
                error=str(failure),
                error_type=failure.error_type,
                elapsed=elapsed,
            )
        )
        self._log.end("failed", error=str(failure), error_type=failure.error_type)

    def _record_cancelled(self, turn: int, model: Model, took_s: float) -> None:
        """The call was on its way: its tokens may be paid for, and nobody knows how many.

        What a reader of the stream has seen of the answer is kept; it is no part of the conversation.
        """
        self._log.record(
            Generation(
                turn=turn,
                model=name_of(model),
                text="".join(chunk.text or "" for chunk in self._heard) or None,
                reasoning="".join(chunk.reasoning or "" for chunk in self._heard) or None,
                error="the model call was cancelled",
                error_type=CANCELLED,
                elapsed=round(took_s, 4),
            )
        )
