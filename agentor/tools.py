"""Tools: functions that a model may call, and what the engine may do with them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload  # Any: arguments and results are the user's own

from agentor.engine import strictjson
from agentor.engine.messages import digest
from agentor.engine.threads import in_thread
from agentor.errors import ToolArgumentError, ToolDefinitionError, ToolTimeout
from agentor.schema import signature_of
from agentor.tooltext import to_text

OnCrash = Literal["rewind", "retry", "ask", "fail"]
MAX_ARGUMENT_CHARS = 10_000_000

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what OpenAI accepts, the strictest of the providers
_POLICIES = ("rewind", "retry", "ask", "fail")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of the call that it serves: annotate a parameter with this type.

    `idempotency_key` is equal over retry, crash and resume of the same call, and different for
    other arguments and in a fork: give it to the outside system. `attempt` counts from 1.
    `fencing_token` grows with each worker that goes on with the run: an outside system that keeps the
    highest one it has seen can refuse a worker that was overtaken.
    """

    run_id: str
    call_id: str
    turn: int
    attempt: int
    idempotency_key: str
    fencing_token: int = 0
    context: Any = None


class ToolOptions(TypedDict, total=False):
    """What the engine may do with a tool; see `Tool`."""

    on_crash: OnCrash
    timeout_s: float | None
    needs_approval: bool | Callable[[ToolContext, dict[str, Any]], Any]
    reconcile: Callable[[ToolContext, dict[str, Any]], Any] | None


class Tool:
    """A tool that is known only at run time; for a function, use `function_tool`.

    Args:
        name: At most 64 of a-z, A-Z, 0-9, '_' and '-'.
        description: What it does, for the model.
        parameters: The JSON schema of its arguments, an object.
        invoke: Called as `invoke(args)`, or `invoke(context, args)` where its first parameter is
            annotated `ToolContext`; sync or async. `args` is the model's JSON object.
        on_crash: What a resume does with a call that started and has no result: `"rewind"` lets the
            model decide again, `"retry"` runs it again (for idempotent tools), `"ask"` waits for a
            person, `"fail"` never runs it again.
        timeout_s: Seconds after which the model is told that the call timed out.
        needs_approval: True, or a function (sync or async) of the context and the arguments that says
            whether this call needs one: False, True, or a text with the reason. If it raises, the call
            needs one. The run pauses until somebody decides (`Approve`, `Deny`).
        reconcile: A function (sync or async) of the context and the arguments that asks the outside
            world about a call in doubt, before `on_crash` counts: it returns `Happened(result)`,
            `NotHappened()` (the call runs again) or `Unknown()`.

    Raises:
        ToolDefinitionError: any of these cannot work.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: dict[str, Any],
        invoke: Callable[..., Any],
        on_crash: OnCrash = "rewind",
        timeout_s: float | None = None,
        needs_approval: bool | Callable[[ToolContext, dict[str, Any]], Any] = False,
        reconcile: Callable[[ToolContext, dict[str, Any]], Any] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ToolDefinitionError(f"tool name {name!r}: use 1 to 64 of a-z, A-Z, 0-9, '_' and '-'")
        if on_crash not in _POLICIES:
            raise ToolDefinitionError(f"tool {name!r}: on_crash must be one of {_POLICIES}, not {on_crash!r}")
        if timeout_s is not None and not timeout_s > 0:
            raise ToolDefinitionError(f"tool {name!r}: timeout_s must be above 0, not {timeout_s!r}")
        if not callable(invoke):
            raise ToolDefinitionError(f"tool {name!r}: invoke must be callable")
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            raise ToolDefinitionError(f"tool {name!r}: needs_approval must be True, False or a function")
        if reconcile is not None and not callable(reconcile):
            raise ToolDefinitionError(f"tool {name!r}: reconcile must be a function")
        self.name, self.description = name, description
        self.parameters = _object_schema(name, parameters)
        self.on_crash, self.timeout_s = on_crash, timeout_s
        self.needs_approval, self.reconcile = needs_approval, reconcile
        self.is_async = _is_async(invoke)
        self._invoke = invoke
        self._arrange = _arrange_raw(invoke)
        function = {"name": name, "description": description, "parameters": parameters}
        self.schema: dict[str, Any] = {"type": "function", "function": function}
        self.fingerprint = digest(self.schema)
        self.__name__ = name

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name_override: str | None = None,
        description_override: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """A tool from a function's hints and docstring."""
        own_name = str(getattr(function, "__name__", type(function).__name__))
        name = name_override or own_name
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise ToolDefinitionError(f"tool {name!r}: a generator has no one result; return a list")
        signature = signature_of(function, ToolContext)
        tool = cls(
            name=name,
            description=signature.description if description_override is None else description_override,
            parameters=signature.parameters,
            invoke=function,
            **options,
        )

        def arrange(args: dict[str, Any], context: ToolContext) -> tuple[tuple[Any, ...], dict[str, Any]]:
            keywords = signature.bind(args)
            if signature.context_parameter is not None:
                keywords[signature.context_parameter] = context
            return (), keywords

        tool._arrange = arrange
        tool.__name__ = own_name
        tool.__doc__ = function.__doc__
        return tool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, called directly."""
        return self._invoke(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def run(self, args: dict[str, Any], context: ToolContext) -> str:
        """Call the tool; a sync one on a thread of its own.

        Returns: The text that the model is shown.

        Raises:
            ToolArgumentError: the arguments do not fit.
            ToolTimeout: it took longer than `timeout_s`.
            Exception: whatever the tool raises.
        """
        positional, keywords = self._arrange(args, context)
        if self.timeout_s is None:
            return to_text(await self._outcome(positional, keywords))
        try:
            async with asyncio.timeout(self.timeout_s) as limit:
                return to_text(await self._outcome(positional, keywords))
        except TimeoutError:
            if not limit.expired():
                raise  # the tool's own
            raise ToolTimeout(
                f"no result after {self.timeout_s:g} s; it may still have had its effect"
            ) from None

    def check(self, args: dict[str, Any], context: ToolContext) -> None:
        """Nothing, where a call with these arguments would reach the function.

        Raises:
            ToolArgumentError: they do not fit.
        """
        self._arrange(args, context)

    async def approval_reason(self, args: dict[str, Any], context: ToolContext) -> str | None:
        """Why a person must agree before this call starts; None where nobody must."""
        if isinstance(self.needs_approval, bool):
            return f"{self.name} needs an approval" if self.needs_approval else None
        try:
            answer = await _asked(self.needs_approval, context, args)
        except Exception as error:  # the user's own: what it cannot judge does not start
            return f"needs_approval failed: {type(error).__name__}: {error}"
        return (answer if isinstance(answer, str) else f"{self.name} needs an approval") if answer else None

    async def reconciled(self, args: dict[str, Any], context: ToolContext) -> Any:
        """What `reconcile` says of a call in doubt; None without one.

        Raises:
            Exception: whatever it raises.
        """
        return None if self.reconcile is None else await _asked(self.reconcile, context, args)

    async def _outcome(self, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.is_async:
            return await self._invoke(*positional, **keywords)
        outcome = await in_thread(lambda: self._invoke(*positional, **keywords))
        return await outcome if inspect.isawaitable(outcome) else outcome


async def _asked(function: Callable[..., Any], *args: object) -> Any:
    """The answer of a user's function, sync (on a thread of its own) or async."""
    if _is_async(function):
        return await function(*args)
    answer = await in_thread(function, *args)
    return await answer if inspect.isawaitable(answer) else answer


Arrange = Callable[[dict[str, Any], ToolContext], tuple[tuple[Any, ...], dict[str, Any]]]


def _arrange_raw(invoke: Callable[..., Any]) -> Arrange:
    try:
        first = next(iter(inspect.signature(invoke).parameters.values()), None)
    except (TypeError, ValueError):
        first = None  # a builtin without a signature
    annotation = None if first is None else first.annotation
    if annotation is ToolContext or str(annotation).split(".")[-1] == "ToolContext":
        return lambda args, context: ((context, args), {})
    return lambda args, context: ((args,), {})


def _object_schema(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise ToolDefinitionError(f"tool {name!r}: parameters must be a JSON schema of type 'object'")
    try:
        strictjson.dumps(parameters)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"tool {name!r}: parameters are no JSON: {error}") from None
    return parameters


def _is_async(function: Callable[..., Any]) -> bool:
    target = getattr(function, "func", function)  # functools.partial
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004  # an object with an async __call__
    )


@overload
def function_tool(function: Callable[..., Any]) -> Tool: ...


@overload
def function_tool(
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., Any]], Tool]: ...


def function_tool(
    function: Callable[..., Any] | None = None,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a sync or async function; it stays callable as before.

    The schema comes from the type hints, the descriptions from the docstring (Google, NumPy or
    Sphinx style). A parameter annotated `ToolContext` is not shown to the model. The options are
    those of `Tool`.

    Raises:
        ToolDefinitionError: a signature that has no JSON schema, or an option that cannot work.
    """

    def make(target: Callable[..., Any]) -> Tool:
        return Tool.from_function(
            target,
            name_override=name_override,
            description_override=description_override,
            **options,
        )

    return make if function is None else make(function)


def resolve_tools(items: Sequence[Any]) -> tuple[Tool, ...]:
    """Functions, bound methods and tools as tools.

    Raises:
        TypeError: an item that is neither.
        ValueError: two tools of one name.
    """
    tools = []
    for item in items:
        if not isinstance(item, Tool) and not callable(item):
            raise TypeError(f"tools= takes functions, methods and Tool objects, not {item!r}")
        tools.append(item if isinstance(item, Tool) else Tool.from_function(item))
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two tools are named {', '.join(map(repr, twice))}; use name_override")
    return tuple(tools)


def parse_arguments(text: str) -> dict[str, Any]:
    """The model's arguments as an object; an empty text is an empty object.

    Raises:
        ToolArgumentError: not a JSON object, or beyond the limits of size, depth and digits.
    """
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ToolArgumentError(f"the arguments have more than {MAX_ARGUMENT_CHARS} characters")
    try:
        parsed = strictjson.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ToolArgumentError(f"the arguments are no valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ToolArgumentError("the arguments must be one JSON object")
    return parsed
