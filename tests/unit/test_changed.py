"""A run that another agent wrote: what differs is said in words, and refused where it must be."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentor import Agentor, Approve, MemoryStore, Tool, function_tool
from agentor.errors import AgentChanged, AgentChangedWarning
from agentor.testing import ScriptedModel, call


def agent(store: Any, tools: list[Any], instructions: str = "Be brief.", **more: Any) -> Agentor:
    model = ScriptedModel([call("refund", {"amount": 5}), "done", "more"])
    return Agentor("a", instructions, model, tools, store=store, **more)


def before() -> MemoryStore:
    """A run that waits for an approval of its refund."""

    @function_tool(needs_approval=True)
    def refund(amount: float, note: str = "", way: Literal["card", "cash"] = "card") -> str:
        """Give back."""
        return "refunded"

    store = MemoryStore()
    assert agent(store, [refund]).run("go", run_id="r").status == "paused"
    return store


@function_tool
def refund(amount: str, note: str, tags: list[int] | None = None) -> str:
    """Give back."""
    return "refunded"


WORDS = (
    "tool 'refund': argument 'way' is gone, "
    "argument 'tags' is new: array of integer or null with the default null, "
    "argument 'amount' was number, is string, argument 'note' was string with the default \"\", is string"
)


def test_a_changed_tool_is_told_argument_by_argument() -> None:
    with pytest.warns(AgentChangedWarning) as warned:
        agent(before(), [refund], "Be long.").resume(
            "r", decisions={"call_1": Approve(args={"amount": "5", "note": ""})}
        )
    assert f"its instructions; {WORDS}" in str(warned[0].message)


def test_a_tool_whose_description_alone_changed_says_so() -> None:
    @function_tool(needs_approval=True)
    def refund(amount: float, note: str = "", way: Literal["card", "cash"] = "card") -> str:
        """Pay back."""
        return "refunded"

    with pytest.warns(AgentChangedWarning, match="tool 'refund': its description"):
        agent(before(), [refund]).resume("r", decisions={"call_1": Approve()})


@pytest.mark.parametrize("act", ["resume", "continue", "fork"])
def test_a_changed_agent_can_be_refused_before_anything_is_written(act: str) -> None:
    store = before()
    if act == "continue":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            agent(store, [refund]).resume(
                "r", decisions={"call_1": Approve(args={"amount": "5", "note": ""})}
            )
    length, runs = len(store.load("r")), store.list_runs()
    other = agent(store, [refund], "Be long." if act == "continue" else "Be brief.", on_change="refuse")
    acts = {
        "resume": lambda: other.resume("r", decisions={"call_1": Approve()}),
        "continue": lambda: other.continue_run("r", "more"),
        "fork": lambda: other.fork("r", "more", fork_id="f"),
    }
    with pytest.raises(
        AgentChanged, match=r"run 'r': it was written by another agent: .*use the agent that wrote it"
    ):
        acts[act]()
    assert (len(store.load("r")), store.list_runs()) == (length, runs)


def test_a_changed_agent_can_be_accepted_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = agent(before(), [refund], on_change="accept")
        words = {"call_1": Approve(args={"amount": "5", "note": "x"})}
        assert other.resume("r", decisions=words).status == "completed"


@pytest.mark.parametrize("on_change", ["warn", "accept", "refuse"])
def test_an_open_call_whose_tool_is_gone_is_an_error_that_says_what_to_do(on_change: Any) -> None:
    store = before()
    length = len(store.load("r"))
    other = agent(store, [], on_change=on_change)
    with pytest.raises(
        AgentChanged, match=r"open calls need the tool.* refund, .*fork the run with a new message"
    ):
        other.resume("r", decisions={"call_1": Approve()})
    assert len(store.load("r")) == length


def test_a_fork_with_a_new_message_needs_no_tool_of_the_calls_that_it_puts_aside() -> None:
    with pytest.warns(AgentChangedWarning, match="tool 'refund' is gone"):
        assert agent(before(), []).fork("r", "Forget it.").final_output == "done"


def test_what_on_change_can_be_is_said() -> None:
    with pytest.raises(ValueError, match="on_change must be 'warn' or 'refuse' or 'accept', not 'maybe'"):
        agent(None, [], on_change="maybe")


def test_a_renamed_tool_is_told_as_one_and_white_space_is_no_change() -> None:
    def pay(amount: float) -> str:
        """Give
        back."""
        return "paid"

    store, plain = MemoryStore(), Tool.from_function(pay)
    agent(store, [plain]).run("go", run_id="r")
    wide = {**plain.parameters, "required": ["amount"], "title": "pay"}
    reworded = Tool(name="pay", description="Give  back.", parameters=plain.parameters, invoke=pay)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent(store, [reworded]).continue_run("r", "more")
    renamed = Tool(name="payout", description="Give back.", parameters=plain.parameters, invoke=pay)
    with pytest.warns(AgentChangedWarning, match="tool 'pay' is now called 'payout'"):
        agent(store, [renamed]).continue_run("r", "more")
    other = Tool(name="payout", description="Give back.", parameters=wide, invoke=pay)
    with pytest.warns(AgentChangedWarning, match="tool 'payout': its schema"):
        agent(store, [other]).continue_run("r", "more")


def test_definitions_and_the_outputs_schema_are_in_the_log_once() -> None:
    class Sum(BaseModel):
        total: int

    @function_tool
    def refund(amount: float) -> str:
        """Give back."""
        return "refunded"

    store = MemoryStore()
    model = ScriptedModel([call("refund", {"amount": 5}), '{"total": 5}', '{"total": 6}'])
    one = Agentor("a", "Be brief.", model, [refund], store=store, output_type=Sum)
    one.run("go", run_id="r")
    one.continue_run("r", "again")
    first, second = (e.to_dict() for e in store.load("r") if e.type == "run_start")
    assert first["tools"]["refund"]["description"] == "Give back."
    assert first["tools"]["refund"]["parameters"]["properties"]["amount"]["type"] == "number"
    assert first["output"]["json_schema"]["schema"]["properties"]["total"]["type"] == "integer"
    assert not {"tools", "output"} & set(second)
    with pytest.warns(AgentChangedWarning, match="its output type"):
        agent(store, [refund]).continue_run("r", "go")
