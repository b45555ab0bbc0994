"""One process of the run that a dashboard is shown: it runs, resumes or forks, traced by OTLP.

    python traveller.py run|resume|fork FOLDER

The first attempt at finding a hotel never ends: somebody has to kill the process.
"""

from __future__ import annotations

import sys
import threading

from agentor import Agentor, FileStore, ToolContext, function_tool
from agentor.engine.messages import Usage
from agentor.testing import ScriptedModel, answer, call

RUN, FORK = "weekend-in-lisbon", "weekend-in-porto"
INSTRUCTIONS = "You plan trips. Look things up, never guess."
TASK = "Plan a weekend in Lisbon: a flight and a hotel for two. Book the hotel."
OTHER_TASK = "The hotel is too dear. What would Porto cost?"
FOUND = answer(
    "I look for a flight and a hotel.",
    call("find_flight", {"to": "Lisbon", "people": 2}),
    call("find_hotel", {"city": "Lisbon", "nights": 2}),
    usage=Usage(input_tokens=412, output_tokens=58),
    delay_s=0.3,
)
SCRIPT = [
    FOUND,
    answer(
        None,
        call("book_hotel", {"hotel": "Casa do Rio", "nights": 2}),
        usage=Usage(input_tokens=571, output_tokens=31, cached_input_tokens=412),
        delay_s=0.2,
    ),
    answer(
        "Your weekend in Lisbon: flight TP 553 on Friday, 184 EUR, and two nights at Casa do Rio, 236 EUR. "
        "The hotel is booked.",
        usage=Usage(input_tokens=640, output_tokens=47, cached_input_tokens=571),
        delay_s=0.5,
    ),
]
FORK_SCRIPT = [
    FOUND,
    answer("In Porto two nights are about 150 EUR.", usage=Usage(input_tokens=598, output_tokens=19)),
]


@function_tool
def find_flight(to: str, people: int) -> dict[str, object]:
    """Find the cheapest flight of the weekend."""
    return {"flight": "TP 553", "day": "Friday", "price_eur": 92 * people}


@function_tool(on_crash="retry")
def find_hotel(city: str, nights: int, ctx: ToolContext) -> dict[str, object]:
    """Find a hotel."""
    if ctx.attempt == 1:
        threading.Event().wait()
    return {"hotel": "Casa do Rio", "city": city, "price_eur": 118 * nights}


@function_tool
def book_hotel(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return f"{hotel} is booked for {nights} nights"


def traveller(folder: str, script: list[object]) -> Agentor:
    """The agent."""
    return Agentor(
        "traveller",
        INSTRUCTIONS,
        ScriptedModel(script),
        [find_flight, find_hotel, book_hotel],
        store=FileStore(folder),
        tracer="otlp",
    )


if __name__ == "__main__":
    act, folder = sys.argv[1:]
    if act == "run":
        traveller(folder, SCRIPT).run(TASK, run_id=RUN)
    elif act == "resume":
        print(traveller(folder, SCRIPT).resume(RUN).status)
    else:
        print(traveller(folder, FORK_SCRIPT).fork(RUN, OTHER_TASK, at_turn=1, fork_id=FORK).status)
