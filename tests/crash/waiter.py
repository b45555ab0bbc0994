"""A process of a run that waits for people: it runs, decides or resumes, and is gone.

    python waiter.py ACT PLACE FOLDER WORD

Acts: `run`, `decide`, `resume`, and `hang`, a run in whose tool nothing happens until it is stopped;
`child-` before one has a sub-agent pay. WORD is `approve`, `deny`, `edit` or `-`. It prints status and what waits.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from places import opened

from agentor import Agentor, Approve, Deny, ToolContext, function_tool
from agentor.errors import DecisionRefused, RunBusy
from agentor.testing import ScriptedModel, call

WORDS: dict[str, Any] = {
    "approve": Approve(by="approve"),
    "deny": Deny("no", by="deny"),
    "edit": Approve(args={"euros": 1}, by="edit"),
}


def agent(act: str, place: str, folder: Path) -> Agentor:
    @function_tool(needs_approval=True)
    def pay(ctx: ToolContext, euros: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{euros} {ctx.idempotency_key}\n")
        return f"paid {euros}"

    async def hang() -> str:
        print("hangs", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print(time.time(), flush=True)
        return "never"

    if act.startswith("child-"):  # a sub-agent pays
        clerk = Agentor("clerk", model=ScriptedModel([call("pay", {"euros": 5}), "paid"]), tools=[pay])
        asks = ScriptedModel([call("clerk", {"input": "Pay 5."}), "done"])
        return Agentor("boss", model=asks, tools=[clerk.as_tool()], store=opened(place))
    first = call("hang") if act == "hang" else call("pay", {"euros": 5})
    model = ScriptedModel([first, "done"])
    return Agentor("payer", model=model, tools=[pay, hang], store=opened(place))


def main(act: str, place: str, folder: Path, word: str) -> dict[str, Any]:
    payer = agent(act, place, folder)
    call_id = "call_1/call_1" if act.startswith("child-") else "call_1"
    act = act.removeprefix("child-")
    try:
        if act in ("run", "hang"):
            result = payer.run("go", run_id="r")
        elif act == "decide":
            return {"decided": [p.decided for p in payer.decide("r", {call_id: WORDS[word]}, wait_s=30)]}
        else:
            result = payer.resume("r", decisions={} if word == "-" else {call_id: WORDS[word]}, wait_s=30)
    except (DecisionRefused, RunBusy) as error:
        return {"error": type(error).__name__}
    return {"status": result.status, "pending": [p.call_id for p in result.pending]}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])))
