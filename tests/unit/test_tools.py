"""Tools: schemas from signatures, arguments checked, results as text."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import threading
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentor import Agentor, MemoryStore, Tool, ToolContext, function_tool
from agentor.engine.calls import Worker, run_tool
from agentor.engine.events import ToolResult
from agentor.engine.messages import Call
from agentor.engine.opencalls import OpenCall
from agentor.errors import ToolArgumentError, ToolDefinitionError, ToolTimeout
from agentor.testing import ScriptedModel, call
from agentor.tools import parse_arguments, resolve_tools, to_text

CTX = ToolContext(run_id="r", call_id="c", turn=1, attempt=1, idempotency_key="k")


class Line(BaseModel):
    item: str
    count: int = 1


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@function_tool
def order(
    lines: list[Line],
    size: Size,
    mode: Literal["fast", "slow"] = "fast",
    note: str | None = None,
    title: Annotated[str, "How to address the customer."] = "",
    limit: Annotated[int, Field(description="Most euros.", ge=0)] = 10,
    ctx: ToolContext | None = None,
) -> str:
    """Place an order.

    It ships today.

    Args:
        lines: What to send.
        note: A word
            for the driver.
    """
    assert ctx is CTX
    return f"{lines[0].item} x{lines[0].count} {size.name} {mode} {note} {limit}"


def test_a_signature_becomes_a_schema() -> None:
    function = order.schema["function"]
    assert function["name"] == "order"
    assert function["description"] == "Place an order.\n\nIt ships today."
    properties = function["parameters"]["properties"]
    assert list(properties) == ["lines", "size", "mode", "note", "title", "limit"]
    assert function["parameters"]["required"] == ["lines", "size"]
    assert function["parameters"]["additionalProperties"] is False
    assert properties["lines"]["description"] == "What to send."
    assert properties["note"]["description"].split() == ["A", "word", "for", "the", "driver."]
    assert properties["title"]["description"] == "How to address the customer."
    assert properties["limit"] == {
        "default": 10,
        "description": "Most euros.",
        "minimum": 0,
        "type": "integer",
    }
    assert properties["mode"] == {"default": "fast", "enum": ["fast", "slow"], "type": "string"}
    assert "title" not in properties["mode"]
    assert list(function["parameters"]["$defs"]) == ["Line", "Size"]


@pytest.mark.parametrize(
    "doc",
    [
        "Add.\n\nArgs:\n    a: First.\n    b: Second.",
        "Add.\n\nParameters\n----------\na : int\n    First.\nb : int\n    Second.",
        "Add.\n\n:param a: First.\n:param b: Second.",
    ],
)
def test_argument_descriptions_come_from_any_common_docstring(doc: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = doc
    parameters = function_tool(add).parameters["properties"]
    assert [parameters[n]["description"] for n in "ab"] == ["First.", "Second."]


async def test_arguments_arrive_as_the_types_that_the_function_names() -> None:
    text = await order.run({"lines": [{"item": "nut"}], "size": "l", "limit": 3}, CTX)
    assert text == "nut x1 LARGE fast None 3"


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({}, "lines: Field required; size: Field required"),
        ({"lines": [{"item": 3}], "size": "s"}, "lines.0.item"),
        ({"lines": [], "size": "s", "limit": -1}, "greater than or equal to 0"),
        ({"lines": [], "size": "s", "color": "red"}, "color: Extra inputs"),
        ({"lines": "x" * 100_000, "size": "s"}, "lines: Input should be a valid list"),
    ],
)
async def test_wrong_arguments_are_named_shortly(args: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ToolArgumentError) as caught:
        await order.run(args, CTX)
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "pydantic" not in str(caught.value)


def test_a_tool_stays_a_function() -> None:
    @function_tool(name_override="sum", description_override="Sums.", on_crash="retry", timeout_s=2)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert (add(1, 2), add.name, add.description, add.on_crash, add.timeout_s) == (
        3,
        "sum",
        "Sums.",
        "retry",
        2,
    )
    assert (add.__name__, add.__doc__) == ("add", "Add.")


class Shop:
    def __init__(self) -> None:
        self.sold: list[str] = []

    def sell(self, item: str) -> str:
        """Sell."""
        self.sold.append(item)
        return "sold"


async def test_functions_methods_partials_and_tools_are_all_tools() -> None:
    shop = Shop()

    async def ask(question: str) -> str:
        return question

    def raw(ctx: ToolContext, args: dict[str, Any]) -> str:
        return f"{ctx.call_id} {args}"

    schema = {"type": "object", "properties": {}}
    late = Tool(name="late", description="", parameters=schema, invoke=raw)
    plain = Tool(name="plain", description="", parameters=schema, invoke=lambda args: args)
    whole = functools.partial(shop.sell)
    whole.__name__ = "whole"  # type: ignore[attr-defined]
    tools = resolve_tools([shop.sell, ask, late, plain, whole])
    assert [t.name for t in tools] == ["sell", "ask", "late", "plain", "whole"]
    assert await tools[0].run({"item": "nut"}, CTX) == "sold"
    assert await tools[1].run({"question": "why"}, CTX) == "why"
    assert await tools[2].run({"x": 1}, CTX) == "c {'x': 1}"
    assert await tools[3].run({"x": 1}, CTX) == '{"x":1}'
    assert shop.sold == ["nut"]


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda: function_tool(lambda *a: a), ToolDefinitionError, r"\*a"),
        (lambda: function_tool(name_override="a b")(order._invoke), ToolDefinitionError, "tool name"),
        (lambda: function_tool(on_crash="maybe")(order._invoke), ToolDefinitionError, "on_crash"),
        (lambda: function_tool(timeout_s=0)(order._invoke), ToolDefinitionError, "timeout_s"),
        (lambda: resolve_tools([order, order]), ValueError, "two tools"),
        (lambda: resolve_tools([3]), TypeError, "functions, methods"),
        (
            lambda: Tool(name="x", description="", parameters={"type": "string"}, invoke=print),
            ToolDefinitionError,
            "object",
        ),
        (
            lambda: Tool(
                name="x", description="", parameters={"type": "object", "x": math.nan}, invoke=print
            ),
            ToolDefinitionError,
            "no JSON",
        ),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_reason(make: Any, error: Any, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        make()


def test_a_hint_without_a_schema_is_refused() -> None:
    def odd(x: threading.Lock) -> None: ...

    with pytest.raises(ToolDefinitionError, match="odd"):
        function_tool(odd)


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "null",
        "{",
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":' + "9" * 5000 + "}",
        '{"a":' * 100_000,
        "{'a':1}",
        '{"a":1,}',
        '{"a" 1}',
        '{"a":01}',
        '{"a":1}}',
        '{"a":"\n"}',
        "\ufeff{}",
        '{"a":.5}',
        "{" + '"x":' + "[" * 300 + "]" * 300 + "}",
    ],
)
def test_arguments_that_are_no_json_object_become_one_kind_of_error(text: str) -> None:
    with pytest.raises(ToolArgumentError):
        parse_arguments(text)


@given(st.text(max_size=200))
def test_no_text_at_all_raises_anything_else(text: str) -> None:
    try:
        assert isinstance(parse_arguments(text), dict)
    except ToolArgumentError:
        pass


@given(st.text(max_size=60))
def test_no_arguments_of_a_model_kill_a_run(text: str) -> None:
    def tool(a: int) -> int:
        return a

    script = [call("tool", text), "done"]
    store = MemoryStore()
    result = Agentor("a", model=ScriptedModel(script), tools=[tool], store=store).run("go")
    assert (result.status, result.durable) == ("completed", True)
    assert store.load(str(result.run_id)) == result.events


@dataclass
class Point:
    x: int


class Sulky:
    def __str__(self) -> str:
        raise RuntimeError("no")


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as is", "as is"),
        ("half \ud83d", "half \ufffd"),
        (None, "null"),
        ({"a": [1, True, "ü"]}, '{"a":[1,true,"ü"]}'),
        (Line(item="x"), '{"item":"x","count":1}'),
        (Point(3), '{"x":3}'),
        ({1, 2}, "[shown as text: set] {1, 2}"),
        (date(2026, 1, 2), "[shown as text: date] 2026-01-02"),
        ({"when": date(2026, 1, 2)}, '[some values shown as text] {"when":"2026-01-02"}'),
        ([math.nan], '[some values shown as text] ["nan"]'),
        (math.inf, "[shown as text: float] inf"),
        (b"\xff", "[shown as text: bytes] b'\\xff'"),
    ],
)
def test_results_are_text_json_or_marked(value: object, text: str) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize("value", [CYCLE, Sulky(), [Sulky()], {"x": object()}, "y" * 20_000_000, [[]] * 3])
def test_no_result_raises(value: object) -> None:
    assert isinstance(to_text(value), str)


async def test_a_tool_that_takes_too_long_is_an_error_for_the_model() -> None:
    never = asyncio.Event()

    @function_tool(timeout_s=0.01)
    async def wait() -> None:
        await never.wait()

    blocked = threading.Event()

    @function_tool(timeout_s=0.01)
    def block() -> None:
        blocked.wait()

    for tool in (wait, block):
        with pytest.raises(ToolTimeout, match="may still have had its effect"):
            await tool.run({}, CTX)
    blocked.set()


def test_calls_of_one_turn_run_side_by_side_on_threads_of_their_own() -> None:
    both = threading.Barrier(20, timeout=20)
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def meet(n: int) -> str:
        both.wait()  # passes only if all twenty are here at once
        return variable.get()

    variable.set("carried")
    script = [[call("meet", {"n": n}) for n in range(20)], "done"]
    result = Agentor("a", model=ScriptedModel(script), tools=[meet], store=MemoryStore()).run("go")
    assert [e.result for e in result.events if isinstance(e, ToolResult)] == ["carried"] * 20


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), StopIteration("x"), ValueError("bad")]
)
def test_whatever_a_tool_raises_is_a_result(raised: BaseException) -> None:
    def tool() -> None:
        raise raised

    result = Agentor("a", model=ScriptedModel([call("tool"), "done"]), tools=[tool]).run("go")
    assert result.status == "completed"
    (outcome,) = [e for e in result.events if isinstance(e, ToolResult)]
    assert type(raised).__name__ in str(outcome.error)


def test_an_unknown_tool_is_named_with_those_that_exist() -> None:
    model = ScriptedModel([call("nonsense"), "done"])
    result = Agentor("a", model=model, tools=[order]).run("go")
    assert "there is no tool 'nonsense'; available tools: order" in result.messages[2]["content"]


def test_a_number_that_no_double_holds_is_told_to_the_model_and_ends_no_run() -> None:
    def pay(euros: float) -> str:
        return "paid"

    result = Agentor("a", model=ScriptedModel([call("pay", '{"euros": 1e999}'), "done"]), tools=[pay]).run(
        "go"
    )
    assert result.status == "completed"
    assert "beyond the range of numbers" in result.messages[-2]["content"]


async def test_a_call_that_fails_before_its_body_has_a_result_all_the_same() -> None:
    tool = Tool.from_function(lambda euros: "paid", name_override="pay")
    c = OpenCall(call=Call(call_id="c", turn=1, index=0, name="pay", arguments="{}"))
    result = await run_tool(c, tool, {"euros": float("inf")}, Worker("r", 1, None))
    assert (result.error_type, result.result) == ("ValueError", None)
