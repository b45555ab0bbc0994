"""What all events have in common: their place in a log, and their way to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar  # Any: events carry provider JSON

from agentor.engine import strictjson
from agentor.engine.eventkeys import check_messages, readable_keys, time_in, written_keys
from agentor.engine.messages import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact about a run.

    `seq` (0, 1, 2 … without a gap) and `at` (epoch seconds, to the millisecond) are set by the
    journal. `run_id` is set live and on load and is never written, so a fork's copied records stay
    equal to the byte. `extra` keeps keys that this version does not know. A kind that this version
    does not know is a plain `Event`.
    """

    type: str
    seq: int | None = None
    at: float | None = None
    run_id: str | None = field(default=None, compare=False)
    extra: Mapping[str, Any] = field(default_factory=dict)

    elapsed_s: ClassVar[float | None] = None

    @property
    def started_at(self) -> float | None:
        """When the work that this event describes began, in epoch seconds."""
        if (noted := time_in(self.extra, "started_at")) is not None:  # logs of agentor 0.1
            return noted
        elapsed = getattr(self, "elapsed", None)
        return self.at if elapsed is None or self.at is None else round(self.at - elapsed, 3)

    @property
    def ended_at(self) -> float | None:
        """When that work ended, in epoch seconds."""
        noted = time_in(self.extra, "ended_at")
        return self.at if noted is None else noted

    def to_dict(self) -> dict[str, Any]:
        """The record's keys: those that are set and not at their default."""
        data: dict[str, Any] = {"type": self.type}
        if self.seq is not None:
            data["seq"] = self.seq
        if self.at is not None:
            data["at"] = self.at
        for name, key, default in _WRITTEN[type(self)]:
            value = getattr(self, name)
            if value is not default and value != default:
                data[key] = value.to_dict() if isinstance(value, Usage) else value
        data.update(self.extra)
        return data

    def to_json(self) -> str:
        """The record as one line of strict, compact JSON."""
        return strictjson.dumps(self.to_dict())

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Event:
        """Rebuild the event of a record; nothing is lost, `to_dict` gives equal keys and values.

        Raises:
            ValueError: no `type`, or a known key with a value of the wrong kind.
        """
        kind = data.get("type")
        if not isinstance(kind, str):
            raise ValueError("an event needs a text under 'type'")
        cls = KINDS.get(kind, Event)
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        keys = _READ[cls]
        for key, value in data.items():
            entry = keys.get(key)
            if entry is None:
                extra[key] = value
                continue
            name, accepted = entry
            if accepted is not None and not isinstance(value, accepted):
                if value is not None:
                    raise ValueError(f"{kind}: {key!r} cannot be {type(value).__name__}")
                extra[key] = None  # a null that 0.1 or another writer put down
                continue
            known[name] = value
        if extra:
            known["extra"] = extra
        if kind in ("run_start", "generation"):
            check_messages(kind, known.get("messages") or extra.get("messages") or [])
        if isinstance(known.get("usage"), dict):
            known["usage"] = _read_usage(known, extra)
        try:
            return cls(**known)
        except TypeError as error:
            raise ValueError(f"{kind}: {error}") from None


def _read_usage(known: dict[str, Any], extra: dict[str, Any]) -> Usage | None:
    raw = known["usage"]
    usage = Usage.from_dict(raw)
    if usage.to_dict() == raw:
        return usage
    extra["usage"] = raw  # zeros or unknown counts: `to_dict` must give the same object back
    known["extra"] = extra
    return usage


def numbered(event: Event, seq: int, at: float | None, run_id: str | None = None) -> Event:
    """A copy of the event with its place in a run's log."""
    return replace(event, seq=seq, at=at, run_id=run_id)


def register(*classes: type[Event]) -> None:
    """Have records of these kinds read and written as what they are."""
    for cls in classes:
        KINDS[next(str(f.default) for f in fields(cls) if f.name == "type")] = cls
        _WRITTEN[cls], _READ[cls] = written_keys(cls), readable_keys(cls)


KINDS: dict[str, type[Event]] = {}
_WRITTEN = {Event: written_keys(Event)}
_READ = {Event: readable_keys(Event)}
