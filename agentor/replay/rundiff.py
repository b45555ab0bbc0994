"""`diff_runs`: two runs side by side, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any  # JSON

from agentor.engine import strictjson
from agentor.engine.events import Context, Event, Generation, Rewind, RunStart, ToolCall, ToolResult
from agentor.engine.messages import Message, parsed_arguments, raw_calls
from agentor.engine.store.base import Store
from agentor.engine.threads import background
from agentor.engine.transcript import fold
from agentor.replay.compare import text_of
from agentor.replay.report import Difference
from agentor.replay.source import Recording, events_of

_ROWS = ("status", "turns", "tool_calls", "input_tokens", "output_tokens", "cost", "seconds")


@dataclass(slots=True)
class _Step:
    """An answer of a model with what came before it and what its calls gave."""

    given: list[str] = field(default_factory=list)  # what the run was told since the answer before
    model: str | None = None
    text: str = ""
    calls: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """How two runs compare.

    Attributes:
        same_turns: How many turns, from the first on, are equal in input, calls, results and text.
        turns: By turn number, what differs; only turns that differ. Ids of calls do not count.
        totals: Of each run: status, turns, tool_calls, input_tokens, output_tokens, cost (US dollars, None
            where no price is known) and seconds (in which a process was at work on it).
    """

    runs: tuple[str, str]
    same_turns: int
    turns: dict[int, tuple[Difference, ...]]
    totals: tuple[dict[str, Any], dict[str, Any]]

    @property
    def parts_at(self) -> int | None:
        """The first turn that differs; None where none does."""
        return min(self.turns, default=None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        turns = [{"turn": n, "differences": [d.to_dict() for d in found]} for n, found in self.turns.items()]
        names = {"runs": list(self.runs), "parts_at": self.parts_at, "same_turns": self.same_turns}
        return {**names, "turns": turns, "totals": list(self.totals)}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """For people: where they part, what differs there and behind, and a table of totals."""
        a, b = self.runs
        first = f"{self.same_turns} turn{'' if self.same_turns == 1 else 's'}"
        where = "do not part" if self.parts_at is None else f"part at turn {self.parts_at}"
        out = [f"runs {a!r} (-) and {b!r} (+) {where}; {first} from the start on are the same"]
        for turn, found in self.turns.items():
            out.append(f"  turn {turn}")
            for difference in found:
                out += [f"    {difference.what}", *(f"      {line}" for line in difference.diff)]
        rows = [("", a, b), *((name.replace("_", " "), *map(_shown, self._row(name))) for name in _ROWS)]
        widths = [max(len(row[n]) for row in rows) for n in range(3)]
        out += [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=True)).rstrip()
            for r in rows
        ]
        return out

    def _row(self, name: str) -> tuple[Any, Any]:
        return self.totals[0][name], self.totals[1][name]


async def adiff_runs(a: Recording, b: Recording, *, store: Store | None = None) -> RunDiff:
    """Compare two runs turn by turn: what they were told, called, got and said, and what they cost.

    Args:
        a, b: Ids of runs in `store`, paths of logs (`*.jsonl`), results, or events.

    Raises:
        RunNotFound, CorruptLog, UnsupportedLog: as named.
    """
    (name_a, old), (name_b, new) = await events_of(a, store), await events_of(b, store)
    before, after = _steps(old), _steps(new)
    turns: dict[int, tuple[Difference, ...]] = {}
    for place in range(max(len(before), len(after))):
        one, other = (s[place] if place < len(s) else None for s in (before, after))
        if found := _differences(one, other):
            turns[place + 1] = tuple(found)
    same = min(turns, default=len(before) + 1) - 1
    return RunDiff(runs=(name_a, name_b), same_turns=same, turns=turns, totals=(_totals(old), _totals(new)))


def diff_runs(a: Recording, b: Recording, *, store: Store | None = None) -> RunDiff:
    """`adiff_runs` for callers that are not async."""
    return background.run(adiff_runs(a, b, store=store), method="diff_runs", instead="adiff_runs")


def _steps(events: Sequence[Event]) -> list[_Step]:
    steps: list[_Step] = []
    given: list[str] = []
    for event in events:
        if isinstance(event, RunStart):
            system: list[Message] = (
                [] if event.system is None else [{"role": "system", "content": event.system}]
            )
            given += map(text_of, [*system, *event.messages])
        elif isinstance(event, Context):
            given.append("context: " + "\n".join(map(text_of, event.messages)))
        elif isinstance(event, Generation) and event.error is None:
            calls = raw_calls(event.message)
            step = _Step(given, event.model, event.answer, [_call(c) for c in calls])
            steps.append(step)
            given = []
        elif isinstance(event, Rewind) and steps:
            given = steps.pop().given  # the same request is sent again
        elif isinstance(event, ToolCall) and steps and event.call_id not in steps[-1].ids:
            steps[-1].ids.append(event.call_id)
        elif isinstance(event, ToolResult) and steps:
            step = steps[-1]
            if event.call_id not in step.ids:  # one that never started
                step.ids.append(event.call_id)
            step.results[event.call_id] = f"{event.name}: {event.content}"
    return steps


def _differences(a: _Step | None, b: _Step | None) -> list[Difference]:
    if a is None or b is None:
        step = a or b
        assert step is not None
        said = "\n".join([step.text, *step.calls]).strip()
        what = "only the second run has it" if a is None else "only the first run has it"
        return [Difference("answer", what, None if a is None else said, None if b is None else said)]
    results = ["\n".join(sorted(s.results.values())) for s in (a, b)]
    pairs = [
        ("message", "what it was told", "\n".join(a.given), "\n".join(b.given)),
        ("model", "the model", a.model or "", b.model or ""),
        ("call", "the calls", "\n".join(a.calls), "\n".join(b.calls)),
        ("result", "the results", *results),
        ("answer", "the text", a.text, b.text),
    ]
    return [Difference(kind, what, old, new) for kind, what, old, new in pairs if old != new]


def _call(call: dict[str, Any]) -> str:
    function = call.get("function") or {}
    given = function.get("arguments") or "{}"
    args = parsed_arguments(given) if isinstance(given, str) else given
    return f"{function.get('name')}({strictjson.canonical(args).decode()})"


def _totals(events: Sequence[Event]) -> dict[str, Any]:
    t = fold(events)
    usage = t.whole_usage
    return {
        "status": t.status,
        "turns": t.answers,
        "tool_calls": t.tool_starts,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": t.whole_cost,
        "seconds": round(t.spent.seconds_active, 3),
    }


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)
