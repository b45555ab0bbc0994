"""`Budget`: what a run may spend, counted over all its segments, since the log is what counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal  # Any: JSON

from agentor.engine.events import Child
from agentor.engine.messages import Spent, Usage
from agentor.engine.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run; what is None has none. Resumes and retries go on counting, and count nothing twice.

    A run that would go over one ends with status `budget`, before the next model call or tool;
    `resume(run_id, budget=...)` with a higher one goes on.

    Attributes:
        turns: Answers of models.
        input_tokens, output_tokens: As providers counted them. A call whose request is known to be
            too large (it holds at least what the last one held, and its answer) is not made.
        usd: By LiteLLM's prices; calls without a known price cost nothing here.
        tool_calls: Starts of tools.
        seconds_active: Time in which a process worked on the run; waiting for a person is free.
        deadline: A time of day that ends the run, with a time zone.
        forks: "count": a fork counts what its parent spent before it; "from_zero": it does not.

    Raises:
        ValueError: a limit that is no number above 0, or a deadline without a time zone.
        TypeError: a deadline that is no datetime.
    """

    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    tool_calls: int | None = None
    seconds_active: float | None = None
    deadline: datetime | None = None
    forks: Literal["count", "from_zero"] = "count"

    def __post_init__(self) -> None:
        for name in _COUNTED:
            value = getattr(self, name)
            if value is None:
                continue
            numbers = (int, float) if name in _FRACTIONS else (int,)
            if isinstance(value, bool) or not isinstance(value, numbers) or not 0 < value < math.inf:
                kind = "a number" if name in _FRACTIONS else "a whole number"
                raise ValueError(f"budget: {name} must be {kind} above 0, not {value!r}")
        if self.deadline is not None and not isinstance(self.deadline, datetime):
            raise TypeError(f"budget: the deadline must be a datetime, not {self.deadline!r}")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise ValueError("budget: the deadline needs a time zone, such as datetime.now(UTC) has")
        if self.forks not in ("count", "from_zero"):
            raise ValueError(f"budget: forks must be 'count' or 'from_zero', not {self.forks!r}")

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the log: what is set."""
        known = {name: getattr(self, name) for name in _COUNTED}
        known["deadline"] = None if self.deadline is None else self.deadline.timestamp()
        known["forks"] = None if self.forks == "count" else self.forks
        return {name: value for name, value in known.items() if value is not None}


_FRACTIONS = ("usd", "seconds_active")
_COUNTED = tuple(f.name for f in fields(Budget) if f.name not in ("deadline", "forks"))


def left(t: Transcript, now: float) -> dict[str, float]:
    """What a run may still spend, by the names of `Budget`; of the deadline, the seconds until then."""
    if not t.budget:
        return {}
    spent = _spent(t)
    remaining = {name: t.budget[name] - getattr(spent, name) for name in _COUNTED if name in t.budget}
    if "deadline" in t.budget:
        remaining["deadline"] = t.budget["deadline"] - now
    return {name: round(value, 6) for name, value in remaining.items()}


def over(t: Transcript, now: float) -> str | None:
    """Why the run must not take its next step, in words; None where it may, or has its answer."""
    asks = t.last is None or t.last.error is not None
    if not asks and not t.calls:
        return None
    starts = sum(c.attempt == 0 for c in t.open_calls)
    needed = {"turns": int(asks), "tool_calls": starts, "input_tokens": (t.asked or 0) if asks else 0}
    reasons = []
    for name, remaining in left(t, now).items():
        need = needed.get(name, 0)
        used_up = remaining < 0 if name in ("turns", "tool_calls") else remaining <= 0
        if used_up or remaining < need:
            reasons.append(_reason(t, name, need))
    return "; ".join(reasons) or None


def for_child(t: Transcript, child: str, place: int, share: int, own: Budget | None) -> dict[str, Any] | None:
    """What a sub-agent's run may spend in all: its share of what is left, and what it has spent already.

    Args:
        child: Its run.
        place, share: Which one it is (from 0) of how many at work at once: what is left is divided
            equally, what does not divide among the first ones. A share can be nothing.
        own: A limit of its own.

    Returns: As a budget stands in the log; None where nothing limits it.
    """
    limits = {} if own is None else own.to_dict()
    before = _spent_by(t.children.get(child))
    for name, remaining in left(t, 0.0).items():
        if name == "deadline":
            limit = remaining  # from the epoch on
        elif name in _FRACTIONS:
            limit = getattr(before, name) + max(remaining, 0.0) / share
        else:
            part, rest = divmod(max(int(remaining), 0), share)
            limit = getattr(before, name) + part + (place < rest)
        limits[name] = min(limit, limits.get(name, limit))
    return limits or None


def _spent_by(child: Child | None) -> Spent:
    if child is None:
        return Spent()
    usage = child.usage or Usage()
    return Spent(
        turns=child.turns,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        usd=child.cost or 0.0,
        tool_calls=child.tool_calls,
        seconds_active=child.active_s,
    )


def _reason(t: Transcript, name: str, need: float) -> str:
    assert t.budget is not None
    if name == "deadline":
        return f"deadline: {datetime.fromtimestamp(t.budget[name], UTC).isoformat()} is over"
    spent, limit = getattr(_spent(t), name), t.budget[name]
    more = f", and the next step needs at least {need:g}" if need else ""
    return f"{name}: {round(spent, 4):g} of {limit:g} spent{more}"


def _spent(t: Transcript) -> Spent:
    return t.spent - t.spent_before
