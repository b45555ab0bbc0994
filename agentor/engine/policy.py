"""What may happen to an open call, or after a failed model call: pure functions of the transcript."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any  # arguments are JSON

from agentor.engine import strictjson
from agentor.engine.events import Approval
from agentor.engine.opencalls import OpenCall
from agentor.engine.transcript import Transcript
from agentor.errors import ModelError

MAX_ATTEMPTS = 4  # of one model call
MAX_WAIT_S = 600.0  # a provider that asks for more is not waited for
OVERTAKEN = "This call was interrupted before it had a result: it may or may not have taken effect."
NOT_RUN = "This call was not run: a new message came first."
NOT_STARTED = "This call was not run: the run was cancelled first."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """Who said it and why; `hash` binds it to the tool and arguments that the person saw."""

    by: str | None = None
    reason: str | None = None
    hash: str | None = None

    def __post_init__(self) -> None:
        for name in ("by", "reason", "hash"):
            said = getattr(self, name)
            if not isinstance(said, str | None):
                raise TypeError(f"{type(self).__name__}: {name} must be a text or None, not {said!r}")


@dataclass(frozen=True, slots=True)
class Approve(_Word):
    """A call that waits for approval may start, with `args` instead of the model's if given.

    It is used once, and ends `expires_s` seconds after it was given if the call has not started by then.
    """

    args: dict[str, Any] | None = None
    expires_s: float | None = None

    def __post_init__(self) -> None:
        _Word.__post_init__(self)
        if self.args is not None and not isinstance(self.args, dict):
            raise TypeError(f"Approve: args must be a JSON object, not {self.args!r}")
        try:
            strictjson.dumps(self.args)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Approve: args cannot be saved as JSON: {error}") from None
        seconds = self.expires_s
        if seconds is not None and not (isinstance(seconds, int | float) and 0 <= seconds < float("inf")):
            raise ValueError(f"Approve: expires_s must be seconds from 0 on, not {seconds!r}")


@dataclass(frozen=True, slots=True)
class Deny(_Word):
    """A call that waits for approval, or is in doubt, does not run; the model is told `reason`."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Happened(_Word):
    """A call in doubt took effect, and this is what it returned."""

    result: str

    def __post_init__(self) -> None:
        _Word.__post_init__(self)
        if not isinstance(self.result, str):
            raise TypeError(f"Happened: result must be the text that the model gets, not {self.result!r}")


@dataclass(frozen=True, slots=True)
class NotHappened(_Word):
    """A call in doubt had no effect; run it again."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What a tool's `reconcile` answers where the outside world cannot tell."""


Decision = Approve | Deny | Happened | NotHappened


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens next to the open calls of a turn; `rewind` excludes the rest.

    Attributes:
        notes: With the text that stands in place of a result.
        happened: With the result that was given for it.
        denied: With the reason.
        request: Calls that may not start before a person says so, and that nobody was asked about yet.
        wait: Calls that wait for a person's answer, to a request or to a doubt, also of their sub-agents.
    """

    rewind: bool = False
    run: tuple[OpenCall, ...] = ()
    notes: tuple[tuple[OpenCall, str], ...] = ()
    happened: tuple[tuple[OpenCall, str], ...] = ()
    denied: tuple[tuple[OpenCall, str], ...] = ()
    request: tuple[OpenCall, ...] = ()
    wait: tuple[OpenCall, ...] = ()


def plan(
    transcript: Transcript,
    on_crash: Callable[[str], str],
    gated: Collection[str] = (),
    now: float = 0.0,
) -> Plan:
    """Decide about each open call of the last generation.

    Args:
        on_crash: The policy of a tool, by its name.
        gated: Ids of calls that need an approval before they start.
        now: Epoch seconds; approvals end.
    """
    if _may_rewind(transcript, on_crash):
        return Plan(rewind=True)
    run: list[OpenCall] = []
    request: list[OpenCall] = []
    wait: list[OpenCall] = []
    notes: list[tuple[OpenCall, str]] = []
    happened: list[tuple[OpenCall, str]] = []
    denied: list[tuple[OpenCall, str]] = []
    for c in transcript.open_calls:
        word, policy = c.decision, on_crash(c.call.name)
        if c.stopped is not None:  # its sub-agent waits, and so does it
            wait.append(c)
        elif word is not None and word.decision == "deny":
            denied.append((c, word.reason or ""))
        elif not c.in_doubt:
            if not (c.requested or c.call.call_id in gated) or is_approved(c, now):
                run.append(c)
            else:
                (wait if c.requested else request).append(c)
        elif word is not None and word.decision == "happened":
            happened.append((c, word.result or ""))
        elif word is not None and word.decision == "not_happened":
            run.append(c)
        elif policy == "ask":
            wait.append(c)
        elif policy == "retry" and not c.elsewhere:
            run.append(c)
        else:
            notes.append((c, _note(c, policy)))
    return Plan(
        run=tuple(run),
        notes=tuple(notes),
        happened=tuple(happened),
        denied=tuple(denied),
        request=tuple(request),
        wait=tuple(wait),
    )


def is_approved(c: OpenCall, now: float) -> bool:
    """True while an approval of exactly this call, with these arguments, holds."""
    word = c.decision
    return (
        word is not None
        and word.decision == "approve"
        and word.hash == c.call.hash
        and not is_over(word, now)
    )


def is_over(word: Approval, now: float) -> bool:
    """True for an approval whose time has run out."""
    return word.expires_at is not None and now >= word.expires_at


def closed(
    t: Transcript, keeps: Callable[[str], bool], on_crash: Callable[[str], str]
) -> list[tuple[OpenCall, str]]:
    """The open calls of a run that is cancelled, with the text that stands in place of a result.

    Args:
        keeps: Whether a started call of this tool stays in doubt, since a resume may find out, or may ask.
        on_crash: The policy of a tool, by its name.
    """
    notes = []
    for c in t.open_calls:
        if not (c.attempt or c.in_doubt):
            notes.append((c, NOT_STARTED))
        elif not keeps(c.call.name):
            notes.append((c, _note(c, on_crash(c.call.name))))
    return notes


def _may_rewind(t: Transcript, on_crash: Callable[[str], str]) -> bool:
    resumed = t.segment > t.last_segment
    # Where none has started, as when a budget came first, nothing is in doubt: what was asked for runs.
    begun = any(c.attempt or c.in_doubt for c in t.calls)
    untouched = not t.decided and all(c.result is None for c in t.calls)
    return resumed and begun and untouched and all(on_crash(c.call.name) == "rewind" for c in t.open_calls)


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
