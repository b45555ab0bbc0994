"""A process that works on a run, for tests that kill it or look at its end.

    python worker.py ACT FOLDER [JSON options]

Acts: `run`, `resume`, `fork`, and `runs` for many short ones. It prints a line of JSON when there is
something to wait for.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from agentor import Agentor, FileStore
from agentor.engine.messages import Usage
from agentor.engine.store.access import Access
from agentor.engine.store.follow import follow
from agentor.testing import ScriptedModel, answer, call


def say(**about: Any) -> None:
    print(json.dumps(about), flush=True)


def agent(folder: str, tracer: Any, *, stuck: bool) -> Agentor:
    store = FileStore(folder)

    def fast(city: str) -> str:
        return f"fast {city}"

    async def slow(city: str) -> str:
        if stuck:
            async for event in follow(Access(store), "r", 0):
                if event.type == "tool_result":
                    break
            say(ready=True)
            await asyncio.Event().wait()
        return f"slow {city}"

    script = [
        answer(
            "I look.",
            call("fast", {"city": "A"}),
            call("slow", {"city": "B"}),
            usage=Usage(input_tokens=10, output_tokens=5),
        ),
        answer("Now again.", call("fast", {"city": "C"}), usage=Usage(input_tokens=20, output_tokens=5)),
        answer("Done.", usage=Usage(input_tokens=30, output_tokens=5)),
        answer("Other.", usage=Usage(input_tokens=40, output_tokens=5)),
    ]
    return Agentor("traveller", "Be brief.", ScriptedModel(script), [fast, slow], store=store, tracer=tracer)


def main(act: str, folder: str, options: dict[str, Any]) -> None:
    tracer = options.get("tracer", "otlp")
    worker = agent(folder, tracer, stuck=options.get("stuck", False))
    if act == "run":
        say(status=worker.run("Look at A and B.", run_id="r").status)
    elif act == "resume":
        say(status=worker.resume("r").status)
    elif act == "fork":
        say(status=worker.fork("r", "And now?", at_turn=2, fork_id="f").status)
    elif act == "runs":
        grown = []  # by how much a traced run takes longer than the untraced one before it
        for number in range(options["count"]):
            times = [time.perf_counter()]
            worker.run("Look at A and B.", run_id=f"untraced-{number}", tracing=False)
            times.append(time.perf_counter())
            worker.run("Look at A and B.", run_id=f"run-{number}")
            times.append(time.perf_counter())
            grown.append(times[2] - 2 * times[1] + times[0])
        say(grown=grown, ended=time.time())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
