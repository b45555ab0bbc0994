"""A worker that waits in its second tool call: `python objects_worker.py URL ENDPOINT FOLDER LEASE_S`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import s3

from agentor import Agentor, function_tool
from agentor.engine.store.objects import ObjectStore
from agentor.testing import ScriptedModel, call

if __name__ == "__main__":
    url, endpoint, name, lease_s = sys.argv[1:]
    folder = Path(name)

    @function_tool(on_crash="retry")
    def step(n: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{n}\n")
        if n == 1:
            print("started", flush=True)
            while not (folder / "go").exists():
                threading.Event().wait(0.01)  # a file is all that two processes share here
        return f"did {n}"

    model = ScriptedModel([*(call("step", {"n": n}) for n in range(3)), "done"])
    store = ObjectStore(url, lease_s=float(lease_s), **s3.options(endpoint))
    Agentor("a", model=model, tools=[step], store=store).run("go", run_id="r")
