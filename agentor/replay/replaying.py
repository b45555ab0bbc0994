"""`replay`: what today's agent would send, against what a recorded run has sent."""

from __future__ import annotations

from agentor.agent import Agentor
from agentor.engine.threads import background
from agentor.inputs import one_of
from agentor.replay.driver import Driver, Model, Tools
from agentor.replay.report import ReplayReport
from agentor.replay.source import Recording, events_of


async def areplay(
    agent: Agentor,
    run: Recording,
    *,
    tools: Tools = "recorded",
    model: Model = "recorded",
    strict: bool = True,
) -> ReplayReport:
    """Drive an agent through a recorded run, and compare each request with the recorded one.

    The answers of the model and the results of tools come from the recording, so nothing is paid for and no
    network is needed. What is compared is what matters to a model: messages, the definitions of tools,
    settings, the model's name, the output type; and whether each recorded call would run. The order
    of keys and white space in definitions do not count.

    Args:
        run: The id of a run in the agent's store, the path of a log (`*.jsonl`), a `RunResult`, or events.
        tools: "recorded" runs no tool, but asks `needs_approval`; "live" runs each tool and compares its
            result; "deny" runs nothing of a tool.
        model: "live" asks the agent's model, and compares its calls and its answer.
        strict: False: differences are reported and pass; only leaving the recording (a call that would not
            run, an answer that no longer fits) counts, and the replay goes on behind it.

    Raises:
        RunNotFound, CorruptLog, UnsupportedLog: as named.
    """
    one_of("tools", tools, ("recorded", "live", "deny"))
    one_of("model", model, ("recorded", "live"))
    run_id, events = await events_of(run, agent.store)
    return await Driver(agent.spec, run_id, events, tools, model, strict).drive()


def replay(
    agent: Agentor,
    run: Recording,
    *,
    tools: Tools = "recorded",
    model: Model = "recorded",
    strict: bool = True,
) -> ReplayReport:
    """`areplay` for callers that are not async."""
    work = areplay(agent, run, tools=tools, model=model, strict=strict)
    return background.run(work, method="replay", instead="areplay")
