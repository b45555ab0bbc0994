"""The agent whose logs are kept in `tests/logs`, and how the logs of a release are written.

python tests/history.py 0.2      # once for each released format; old ones are never written again
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentor import Agentor, Approve, Budget, Deny, FileStore, function_tool
from agentor.engine.messages import Usage
from agentor.testing import ScriptedModel, answer, call

LOGS = Path(__file__).resolve().parent / "logs"
USED = Usage(input_tokens=40, output_tokens=8)
STEPS: list[Any] = [
    answer("I look.", call("look", {"page": 1}), call("look", {"page": 2}), usage=USED, cost=0.25),
    answer(
        None, call("pay", {"euros": 5}), call("pay", {"euros": 7}), reasoning_content="It is due.", usage=USED
    ),
    answer(None, call("look", {"page": 3}), usage=USED),
    answer("All is paid. ✓", usage=USED),
]


class Paging(ScriptedModel):
    """Gives one step for each answer so far, however short the conversation was made; has settings."""

    def __init__(self) -> None:
        self.params = {"temperature": 0.2}
        super().__init__(
            lambda messages, tools: STEPS[min(self.answers(messages), len(STEPS) - 1)], name="paging"
        )

    @staticmethod
    def answers(messages: Any) -> int:
        short = any("Two pages were read." in str(m.get("content")) for m in messages)
        return short + sum(m["role"] == "assistant" for m in messages)


@function_tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}: Zürich"


def shorter(messages: Any, tokens: int | None) -> Any:
    """The first turn as a note, once there is more than it."""
    done = sum(m["role"] == "assistant" for m in messages)
    note = {"role": "user", "content": "Pay what is due. Two pages were read."}
    return [messages[0], note] if tokens and done == 1 and note not in messages else None


def agent(store: Any = None, *, gated: bool = False, short: bool = False, **more: Any) -> Agentor:
    """As it was when the logs were written."""

    @function_tool(needs_approval=gated)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    return Agentor(
        "clerk",
        "Be exact.",
        Paging(),
        [look, pay],
        store=store,
        compaction=shorter if short else None,
        **more,
    )


def _completed(store: FileStore, name: str) -> None:
    agent(store).run("Pay what is due.", run_id=name)
    agent(store).continue_run(name, "Thank you. Is it all paid?")


def _crashed(store: FileStore, name: str, lines: int = 4) -> None:
    agent(store).run("Pay what is due.", run_id=name)
    path = store.path(name)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def _rewound(store: FileStore, name: str) -> None:
    _crashed(store, name)
    agent(store).resume(name)


def _resumed(store: FileStore, name: str) -> None:
    _crashed(store, name, lines=5)  # one of two results is there
    agent(store).resume(name)


def _approved(store: FileStore, name: str) -> None:
    one = agent(store, gated=True)
    first, second = (p.call_id for p in one.run("Pay what is due.", run_id=name).pending)
    one.decide(name, {first: Approve(args={"euros": 4}, by="ann", reason="less")})
    one.resume(name, decisions={second: Deny("too much", by="bob")})


def _forked(store: FileStore, name: str) -> None:
    one = agent(store)
    one.run("Pay what is due.", run_id=f"{name}-parent")
    one.fork(f"{name}-parent", fork_id=name, edit={5: "page 2: Bern"}, tools="recorded")
    one.continue_run(name, "Thank you.")


def _compacted(store: FileStore, name: str) -> None:
    agent(store, short=True).run("Pay what is due.", run_id=name)


def _budget(store: FileStore, name: str) -> None:
    one = agent(store)
    one.run("Pay what is due.", run_id=name, budget=Budget(turns=2))
    one.resume(name, budget=Budget(turns=9))


KINDS: dict[str, Callable[[FileStore, str], None]] = {
    "completed": _completed,
    "crashed": _crashed,
    "rewound": _rewound,
    "resumed": _resumed,
    "approved": _approved,
    "forked": _forked,
    "compacted": _compacted,
    "budget": _budget,
}


def write(release: str, folder: Path) -> list[Path]:
    """The logs of a release, one of each kind."""
    written = []
    with tempfile.TemporaryDirectory() as runs:
        store = FileStore(runs)
        for kind, make in KINDS.items():
            name = f"{release}-{kind}"
            make(store, name)
            written.append(folder / f"{name}.jsonl")
            written[-1].write_bytes(store.path(name).read_bytes())
    return written


if __name__ == "__main__":
    if list(LOGS.glob(f"{sys.argv[1]}-*.jsonl")):
        sys.exit(f"{LOGS} has logs of {sys.argv[1]} already; a released format does not change")
    print(*write(sys.argv[1], LOGS), sep="\n")
