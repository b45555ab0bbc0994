"""Every exception that agentor raises: one tree, rooted in `AgentorError`."""

from __future__ import annotations

import time
from typing import Any  # ModelError's own keywords


class AgentorError(Exception):
    """Base of all errors that agentor raises on purpose."""


class ToolDefinitionError(AgentorError, TypeError):
    """A function cannot be offered to a model as a tool: its signature has no JSON schema."""


class ToolArgumentError(AgentorError, ValueError):
    """The model's arguments do not fit the tool; the text tells the model what to mend."""


class ToolTimeout(AgentorError, TimeoutError):
    """A tool did not return within its `timeout_s`."""


class WrongThread(AgentorError, RuntimeError):
    """A sync method was called on the thread of agentor's own event loop, which it would block."""

    def __init__(self, method: str, instead: str | None = None) -> None:
        super().__init__(method, instead)
        self.method, self.instead = method, instead or f"await a{method}(...)"

    def __str__(self) -> str:
        return (
            f"{self.method}() was called on agentor's own event loop (an async tool runs there) and "
            f"would wait for itself; use `{self.instead}` instead"
        )


# --- stores ------------------------------------------------------------------------------------


class StoreError(AgentorError):
    """A store could not do what was asked: `run_id` names the run, `reason` the cause.

    `run_id` is None where it is about no single run.
    """

    def __init__(self, run_id: str | None, reason: str) -> None:
        super().__init__(run_id, reason)  # pickle rebuilds the error from these
        self.run_id, self.reason = run_id, reason

    def __str__(self) -> str:
        return self.reason if self.run_id is None else f"run {self.run_id!r}: {self.reason}"


class RunNotFound(StoreError, KeyError):
    """No log exists under this run id."""

    def __init__(self, run_id: str, where: str) -> None:
        super().__init__(run_id, where)
        self.where = where

    def __str__(self) -> str:
        return f"no run {self.run_id!r} in {self.where}; `store.list_runs()` gives the known ids"


class RunExists(StoreError, ValueError):
    """A new run or fork was given an id that already has a log."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "already exists")

    def __reduce__(self) -> tuple[type[RunExists], tuple[str | None]]:
        return type(self), (self.run_id,)

    def __str__(self) -> str:
        return f"run {self.run_id!r} already exists; resume it, or choose an unused id"


class RunBusy(StoreError):
    """A live worker holds the run, so nobody else may write to it.

    Attributes: `owner` (free text), `host`, `pid`, `since`, `expires` (epoch seconds); unknown ones
    are None. A lease that the kernel keeps does not expire.
    """

    def __init__(
        self,
        run_id: str,
        owner: str | None = None,
        host: str | None = None,
        pid: int | None = None,
        since: float | None = None,
        expires: float | None = None,
    ) -> None:
        super().__init__(run_id, "held by a live worker")
        self.owner, self.host, self.pid, self.since, self.expires = owner, host, pid, since, expires

    def __reduce__(self) -> tuple[type[RunBusy], tuple[object, ...]]:
        about = (self.run_id, self.owner, self.host, self.pid, self.since, self.expires)
        return type(self), about

    def __str__(self) -> str:
        holder = self.owner or "a live worker"
        place = f" (pid {self.pid} on {self.host})" if self.pid is not None else ""
        since = ""
        if self.since is not None:
            since = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        end = "its lock is freed at its death"
        if self.expires is not None:
            end = time.strftime(
                "its lease ends at %H:%M:%S UTC unless it is renewed", time.gmtime(self.expires)
            )
        return (
            f"run {self.run_id!r} is held by {holder}{place}{since}; wait for it "
            f"(`resume(run_id, wait_s=...)`), or end that process: {end}"
        )


class InvalidRunId(StoreError, ValueError):
    """A run id that cannot name a log safely."""

    def __str__(self) -> str:
        return (
            f"invalid run id {self.run_id!r}: {self.reason}; use a-z, 0-9, '_' and '-', at most 100 "
            "characters, starting with a letter or digit"
        )


class CorruptLog(StoreError):
    """A log is damaged at `record` (its number, from 0) and byte `offset`; nothing was skipped.

    `offset` is None where the store keeps no bytes.
    """

    def __init__(self, run_id: str, record: int, offset: int | None, reason: str) -> None:
        super().__init__(run_id, reason)
        self.record, self.offset = record, offset

    def __reduce__(self) -> tuple[type[CorruptLog], tuple[object, ...]]:
        return type(self), (self.run_id, self.record, self.offset, self.reason)

    def __str__(self) -> str:
        place = f"record {self.record}" + ("" if self.offset is None else f", byte {self.offset}")
        return (
            f"the log of run {self.run_id!r} is damaged at {place}: {self.reason}; nothing was changed. "
            "Restore a copy, or keep what is sound: `store.repair(run_id)`, which sets the log as it is aside"
        )


class Conflict(StoreError):
    """Another record already stands at this sequence number: two writers, or a broken store."""

    def __init__(self, run_id: str, seq: int, reason: str = "another record stands there") -> None:
        super().__init__(run_id, reason)
        self.seq = seq

    def __reduce__(self) -> tuple[type[Conflict], tuple[object, ...]]:
        return type(self), (self.run_id, self.seq, self.reason)

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} cannot take a record at seq {self.seq}: {self.reason}; "
            "load the run again before writing to it"
        )


class Fenced(StoreError):
    """The lease under which a worker writes has ended, or passed to another one: it must stop."""

    def __str__(self) -> str:
        return (
            f"this worker holds run {self.run_id!r} no longer: {self.reason}; nothing more was started or "
            "written here. Resume the run to see how it goes on"
        )


class UnsupportedLog(StoreError):
    """A log was written by a newer agentor whose meaning this version cannot know."""

    def __str__(self) -> str:
        what = "the store" if self.run_id is None else f"run {self.run_id!r}"
        return f"{what} cannot be read by this version: {self.reason}; upgrade agentor"


class UnsafePath(StoreError):
    """A store's file or folder is something else than a plain file or folder of ours."""


# --- models ------------------------------------------------------------------------------------


class AgentChanged(AgentorError):
    """Another agent wrote the run, and this one is not to go on with it; nothing was written."""

    def __init__(self, run_id: str, what: str, way_out: str) -> None:
        super().__init__(run_id, what, way_out)
        self.run_id, self.what, self.way_out = run_id, what, way_out

    def __str__(self) -> str:
        return f"run {self.run_id!r}: {self.what}; {self.way_out}"


class DecisionRefused(AgentorError, ValueError):
    """A decision about a call that has no use for it; nothing of it was written."""

    def __init__(self, run_id: str, call_id: str, reason: str) -> None:
        super().__init__(run_id, call_id, reason)
        self.run_id, self.call_id, self.reason = run_id, call_id, reason

    def __str__(self) -> str:
        return f"run {self.run_id!r}, call {self.call_id!r}: {self.reason}"


class ModelError(AgentorError):
    """A model call failed.

    Args:
        message: What happened, in the provider's words where it has any.
        error_type: Name of the provider's or library's error class, for logs and traces.
        retryable: True if the same request may succeed later (rate limit, overload, lost stream).
        retry_after_s: Seconds the provider asks to wait, where it says so.
        provider, model, status, request_id: Who answered, as far as known.
    """

    def __init__(
        self,
        message: str,
        *,
        error_type: str = "ModelError",
        retryable: bool = False,
        retry_after_s: float | None = None,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.error_type = message, error_type
        self.retryable, self.retry_after_s = retryable, retry_after_s
        self.provider, self.model = provider, model
        self.status, self.request_id = status, request_id

    def __str__(self) -> str:
        known = {
            "provider": self.provider,
            "model": self.model,
            "status": self.status,
            "request": self.request_id,
        }
        about = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
        return f"{self.message} ({about})" if about else self.message


def as_model_error(error: Exception) -> ModelError:
    """What a custom model raised as the error that the engine acts on."""
    if isinstance(error, ModelError):
        return error
    return ModelError(f"{type(error).__name__}: {error}", error_type=type(error).__name__)


class CassetteMiss(ModelError):
    """A replayed request is not in its cassette; the message shows the nearest one and the difference."""

    def __init__(self, message: str, **about: Any) -> None:
        super().__init__(message, **{"error_type": "CassetteMiss", **about})


class NetworkBlocked(ModelError):
    """A test with agentor's marker or fixtures went to the network, which the pytest plugin blocks there."""

    def __init__(self, address: object) -> None:
        super().__init__(
            f"the network is blocked in tests with agentor's marker or fixtures, and this one goes to "
            f"{address!r}; to record its answers, use the fixture agentor_cassette and run pytest with "
            "--agentor-record=new",
            error_type="NetworkBlocked",
        )


class MissingExtra(AgentorError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package, self.extra = package, extra

    def __str__(self) -> str:
        return f"{self.package} is not installed; install it with `pip install 'agentor[{self.extra}]'`"


class ExportFailed(AgentorError):
    """A place for traces did not take a run's spans; `sent` of `total` are there."""

    def __init__(self, run_id: str, address: str, sent: int, total: int, reason: str) -> None:
        super().__init__(run_id, address, sent, total, reason)
        self.run_id, self.address, self.sent, self.total, self.reason = run_id, address, sent, total, reason

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r}: {self.address} took {self.sent} of {self.total} spans ({self.reason}); "
            "export again once it answers: what it has is not sent twice"
        )


class UnknownTarget(AgentorError, ValueError):
    """Nothing that is installed has this name as a place for traces."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        return f"there is no exporter {self.name!r}; installed are: {', '.join(self.known)}"


class UnusableTarget(AgentorError, ValueError):
    """A place for traces is set up in a way that it cannot work with."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        kind = "CELESTO_*" if self.name == "celesto" else "OTEL_*"
        return f"traces cannot go to {self.name!r}: {self.reason}; look at the {kind} variables"


class MissingKey(AgentorError, ValueError):
    """A service was asked for, and its key is not set."""

    def __init__(self, variable: str, purpose: str) -> None:
        super().__init__(variable, purpose)
        self.variable, self.purpose = variable, purpose

    def __str__(self) -> str:
        return f"{self.purpose} need a key; set {self.variable}, or pass it to the tracer"


class AgentChangedWarning(UserWarning):
    """The agent that continues a run differs from the one that wrote it."""


class ReplayDrift(AgentorError, AssertionError):
    """An agent does otherwise than a recorded run; the text is the report."""


class StoreWarning(UserWarning):
    """A store lacks a capability, so a promise is weaker than usual."""


__all__ = [
    "AgentChangedWarning",
    "AgentorError",
    "CassetteMiss",
    "Conflict",
    "CorruptLog",
    "Fenced",
    "InvalidRunId",
    "MissingExtra",
    "ModelError",
    "NetworkBlocked",
    "ReplayDrift",
    "RunBusy",
    "RunExists",
    "RunNotFound",
    "StoreError",
    "StoreWarning",
    "ToolArgumentError",
    "ToolDefinitionError",
    "ToolTimeout",
    "UnsafePath",
    "UnsupportedLog",
    "WrongThread",
]
