"""What a replay found: per turn, and in words."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Literal  # Any: JSON

from agentor.errors import ReplayDrift

Status = Literal["same", "changed", "recorded", "left"]
_COMPARED, _SHOWN = 2000, 60  # lines of a text
_LINE, _BEFORE = 300, 60  # characters of a line that are shown, and of them in front of a difference
WORDS = {
    "same": "same",
    "changed": "changed",
    "recorded": "answered by the recording",
    "left": "left the recording",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was.

    Attributes:
        kind: instructions, tool, settings, model, output, message, result, call, answer, compaction, end
            or log.
        what: In words.
        before, after: The recorded text and the present one, where there are two.
    """

    kind: str
    what: str
    before: str | None = None
    after: str | None = None

    @property
    def diff(self) -> list[str]:
        """The lines that differ, each after "- " or "+ ", with a line around them; empty without texts.

        Of long lines the part that differs, of many the first; `before` and `after` have it all.
        """
        if self.before is None and self.after is None:
            return []
        old, new = (self.before or "").splitlines(), (self.after or "").splitlines()
        first = next(
            (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
        )
        start = max(first - 1, 0)  # what is the same in front costs nothing
        old, new = old[start : start + _COMPARED], new[start : start + _COMPARED]
        found = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
        lines = [(line[:1], line[1:]) for line in found if not line.startswith("@@")]
        if [mark for mark, _ in lines if mark != " "] == ["-", "+"]:
            lines = _around(lines)
        shown = [f"{mark} {_clipped(line)}" for mark, line in lines[:_SHOWN]]
        return shown if len(lines) <= _SHOWN else [*shown, f"… {len(lines) - _SHOWN} more lines"]

    def repeats(self, other: Difference) -> bool:
        """True if it is the same one, perhaps at another place, or as the consequence of it."""
        if self.kind != "message" or other.kind not in ("message", "compaction"):
            return self == other
        return (self.before, self.after) == (other.before, other.after)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        texts = {"before": self.before, "after": self.after}
        return {"kind": self.kind, "what": self.what, **{k: v for k, v in texts.items() if v is not None}}


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One request of the recording, against the one that would be sent now.

    Attributes:
        turn: Its number; a turn that was asked twice, as after a crash, stands here twice.
        seq: The recorded generation.
        status: "same"; "changed": it has a difference that no turn before has; "recorded": nothing new
            differs in it, but what came before does, so the answer is that of another request; "left":
            from here on the recording says nothing about what would happen.
        differences: What is new in this turn.
    """

    turn: int
    seq: int
    status: Status
    differences: tuple[Difference, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found = [d.to_dict() for d in self.differences]
        return {"turn": self.turn, "seq": self.seq, "status": self.status, "differences": found}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplayReport:
    """How an agent does on a recorded run.

    Attributes:
        turns: In the order of the recording; where it was left, the last ones may be missing.
        recorded_turns: The recording's.
        notes: What could not be compared, and why.
    """

    run_id: str
    agent: str
    turns: tuple[TurnReport, ...]
    recorded_turns: int
    strict: bool = True
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """No turn differs; with `strict=False`, none has left the recording."""
        if self.strict:
            return all(turn.status == "same" for turn in self.turns)
        return all(turn.status != "left" for turn in self.turns)

    @property
    def differences(self) -> list[tuple[int, Difference]]:
        """All of them, with the number of the turn."""
        return [(turn.turn, difference) for turn in self.turns for difference in turn.differences]

    def check(self) -> None:
        """Nothing, where the replay is `ok`.

        Raises:
            ReplayDrift: an `AssertionError` with the report as its text.
        """
        __tracebackhide__ = True
        if not self.ok:
            raise ReplayDrift(str(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run_id": self.run_id,
            "agent": self.agent,
            "ok": self.ok,
            "strict": self.strict,
            "recorded_turns": self.recorded_turns,
            "turns": [turn.to_dict() for turn in self.turns],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<{self.lines()[0]}>"

    def lines(self) -> list[str]:
        """The report for people: what is the same in one line, what differs with its diff."""
        counts = {status: sum(t.status == status for t in self.turns) for status in WORDS}
        said = ", ".join(f"{n} {WORDS[status]}" for status, n in counts.items() if n) or "no turn"
        missing = self.recorded_turns - len(self.turns)
        said += f", {missing} not reached" if missing else ""
        out = [f"replay of run {self.run_id!r} by agent {self.agent!r}: {said}"]
        for first, last, turn in _runs(self.turns):
            place = f"turn {first}" if first == last else f"turns {first} to {last}"
            out.append(f"  {place}: {WORDS[turn.status]}")
            for difference in turn.differences:
                out.append(f"    {difference.what}")
                out += [f"      {line}" for line in difference.diff]
        return [*out, *(f"  note: {note}" for note in self.notes)]


def _around(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """One long line against another: the place where they part, with a few words around it."""
    old, new = (next(line for mark, line in lines if mark == wanted) for wanted in "-+")
    if max(len(old), len(new)) <= _LINE:
        return lines
    same = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    start = max(same - _BEFORE, 0)
    return [(m, f"…{line[start:]}" if m != " " and start else line) for m, line in lines]


def _clipped(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}… ({len(line) - _LINE} more characters)"


def _runs(turns: tuple[TurnReport, ...]) -> list[tuple[int, int, TurnReport]]:
    """Neighbours with one status and no differences, as one line: first and last number."""
    found: list[tuple[int, int, TurnReport]] = []
    for turn in turns:
        if found and not turn.differences and not found[-1][2].differences:
            first, last, before = found[-1]
            if before.status == turn.status and turn.turn in (last, last + 1):
                found[-1] = (first, turn.turn, before)
                continue
        found.append((turn.turn, turn.turn, turn))
    return found
