"""A worker that stops itself (SIGSTOP) at one point of a run, until somebody wakes it.

    python sleeper.py FOLDER PLACE POINT

The points are numbered as they come: before and after each append, and in each tool's body. Prints the
number of points where POINT is 0, so that a run without a stop tells how many there are.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from places import opened

from agentor import Agentor, function_tool
from agentor.testing import ScriptedModel, call

LEASE_S = 1.0


class Points:
    """Counts, and stops the process at one of them."""

    def __init__(self, stop_at: int) -> None:
        self.count, self._stop_at = 0, stop_at

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._stop_at:
            # To this thread: it stops before its next instruction. Sent to the process, another thread may
            # take the signal, and this one goes on for a moment.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Watched:
    """A store whose appends are points."""

    def __init__(self, store: Any, point: Points) -> None:
        self._store, self._point = store, point

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("append_many", "append_group"):
            return method

        async def watched(*args: Any) -> Any:
            self._point()
            outcome = method(*args)
            outcome = await outcome if hasattr(outcome, "__await__") else outcome
            self._point()
            return outcome

        return watched


def agent(folder: Path, place: str, point: Points) -> Agentor:
    def tool(name: str) -> Any:
        def body() -> str:
            with (folder / "ledger").open("a") as ledger:
                ledger.write(f"{name}\n")
            point()
            return "ok"

        body.__name__ = name
        return function_tool(on_crash="retry")(body)

    model = ScriptedModel([call("first"), call("second"), "done"])
    store = Watched(opened(place, lease_s=LEASE_S), point)
    return Agentor("a", model=model, tools=[tool("first"), tool("second")], store=store)


if __name__ == "__main__":
    points = Points(int(sys.argv[3]))
    agent(Path(sys.argv[1]), sys.argv[2], points).run("go", run_id="r")
    print(points.count)
