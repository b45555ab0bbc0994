"""A worker that is stopped in the middle of a run: `python sleeper.py FOLDER`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from agentor import Agentor, SQLiteStore, function_tool
from agentor.testing import ScriptedModel, call

LEASE_S = 1.0


def agent(folder: Path, *, waits: bool) -> Agentor:
    @function_tool(on_crash="retry")
    def first() -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write("first\n")
        if waits:
            print("started", flush=True)
            while not (folder / "go").exists():
                threading.Event().wait(0.01)  # a file is all that two processes share here
        return "1"

    @function_tool(on_crash="retry")
    def second() -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write("second\n")
        return "2"

    model = ScriptedModel([call("first"), call("second"), "done"])
    store = SQLiteStore(folder / "runs.db", lease_s=LEASE_S)
    return Agentor("a", model=model, tools=[first, second], store=store)


if __name__ == "__main__":
    agent(Path(sys.argv[1]), waits=True).run("go", run_id="r")
