"""What may happen to an open call, or after a failed model call: pure functions of the transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentor.engine.transcript import OpenCall, Transcript
from agentor.errors import ModelError

MAX_STARTS = 5  # run_starts in a row that came to nothing; the run is poisoned then
MAX_ATTEMPTS = 4  # of one model call
MAX_WAIT_S = 600.0  # a provider that asks for more is not waited for
INTERRUPTED = "interrupted"  # error_type of a note in place of a result
OVERTAKEN = "This call was interrupted before it had a result: it may or may not have taken effect."


@dataclass(frozen=True, slots=True)
class Happened:
    """A person's word on a call in doubt: it took effect, and this is what it returned."""

    result: str


@dataclass(frozen=True, slots=True)
class NotHappened:
    """A person's word on a call in doubt: it had no effect; run it again."""


Decision = Happened | NotHappened


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens next to the open calls of a turn; `rewind` excludes the rest."""

    rewind: bool = False
    run: tuple[OpenCall, ...] = ()
    notes: tuple[tuple[OpenCall, str], ...] = ()  # the text that stands in place of a result
    happened: tuple[tuple[OpenCall, str], ...] = ()  # results that a person gave
    ask: tuple[OpenCall, ...] = ()


def plan(
    transcript: Transcript,
    on_crash: Callable[[str], str],
    decisions: Mapping[str, Decision],
) -> Plan:
    """Decide about each open call of the last generation.

    Args:
        on_crash: The policy of a tool, by its name.
        decisions: A person's words, by call id.
    """
    open_calls = transcript.open_calls
    if _may_rewind(transcript, on_crash, decisions):
        return Plan(rewind=True)
    run, ask = [], []
    notes: list[tuple[OpenCall, str]] = []
    happened: list[tuple[OpenCall, str]] = []
    for c in open_calls:
        decision = decisions.get(c.call.call_id)
        policy = on_crash(c.call.name)
        if not c.in_doubt or isinstance(decision, NotHappened):
            run.append(c)
        elif isinstance(decision, Happened):
            happened.append((c, decision.result))
        elif policy == "ask":
            ask.append(c)
        elif policy == "retry" and not c.elsewhere:
            run.append(c)
        else:
            notes.append((c, _note(c, policy)))
    return Plan(run=tuple(run), notes=tuple(notes), happened=tuple(happened), ask=tuple(ask))


def _may_rewind(t: Transcript, on_crash: Callable[[str], str], decisions: Mapping[str, Decision]) -> bool:
    resumed = t.segment > t.last_segment
    untouched = not t.decided and all(c.result is None for c in t.calls)
    return (
        resumed
        and untouched
        and not any(c.call.call_id in decisions for c in t.calls)
        and all(on_crash(c.call.name) == "rewind" for c in t.open_calls)
    )


def _note(c: OpenCall, policy: str) -> str:
    if c.elsewhere:
        return (
            "This call ran in the run that this one was forked from; its result is not part of "
            "this conversation. Check before you call it again."
        )
    if policy == "fail":
        return "This call was interrupted and counts as failed. It will not be run again."
    return "This call was interrupted: it may or may not have taken effect. Check before you call it again."


def retry_wait_s(error: ModelError, attempt: int) -> float | None:
    """Seconds to wait before the next attempt on the same model; None where there is none.

    A provider's own `Retry-After` counts, up to `MAX_WAIT_S`; else 1, 2, 4 … seconds.
    """
    if not error.retryable or attempt >= MAX_ATTEMPTS:
        return None
    wait_s = error.retry_after_s if error.retry_after_s is not None else 2.0 ** (attempt - 1)
    return max(wait_s, 0.0) if wait_s <= MAX_WAIT_S else None
