"""Tools: functions that a model may call, and what the engine may do with them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload  # Any: arguments and results are the user's own

from agentor.engine import strictjson
from agentor.engine.messages import digest
from agentor.engine.threads import in_thread
from agentor.errors import ToolArgumentError, ToolDefinitionError, ToolTimeout
from agentor.schema import signature_of, to_jsonable

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
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ToolDefinitionError(f"tool name {name!r}: use 1 to 64 of a-z, A-Z, 0-9, '_' and '-'")
        if on_crash not in _POLICIES:
            raise ToolDefinitionError(f"tool {name!r}: on_crash must be one of {_POLICIES}, not {on_crash!r}")
        if timeout_s is not None and not timeout_s > 0:
            raise ToolDefinitionError(f"tool {name!r}: timeout_s must be above 0, not {timeout_s!r}")
        if not callable(invoke):
            raise ToolDefinitionError(f"tool {name!r}: invoke must be callable")
        self.name, self.description = name, description
        self.parameters = _object_schema(name, parameters)
        self.on_crash, self.timeout_s = on_crash, timeout_s
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
        on_crash: OnCrash = "rewind",
        timeout_s: float | None = None,
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
            on_crash=on_crash,
            timeout_s=timeout_s,
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

    async def _outcome(self, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.is_async:
            return await self._invoke(*positional, **keywords)
        outcome = await in_thread(lambda: self._invoke(*positional, **keywords))
        return await outcome if inspect.isawaitable(outcome) else outcome


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
    on_crash: OnCrash = "rewind",
    timeout_s: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def function_tool(
    function: Callable[..., Any] | None = None,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    on_crash: OnCrash = "rewind",
    timeout_s: float | None = None,
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
            on_crash=on_crash,
            timeout_s=timeout_s,
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


def to_text(value: Any) -> str:
    """A tool's result as the text that a model is shown: text as it is, the rest as JSON.

    What has no JSON form is shown as text, and the result says so.
    """
    if isinstance(value, str):
        return _encodable(value)
    try:
        return _encodable(strictjson.dumps(_plain(value)))
    except (TypeError, ValueError):
        pass
    if isinstance(value, dict | list | tuple):
        try:
            shown = strictjson.dumps(_shown(value, depth=0))
        except (TypeError, ValueError):
            shown = _safe_text(value)
        return _encodable(f"[some values shown as text] {shown}")
    return _encodable(f"[shown as text: {type(value).__name__}] {_safe_text(value)}")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | dict | list | tuple):
        return value
    if dataclasses.is_dataclass(value) or hasattr(value, "model_dump"):
        return to_jsonable(value)
    raise TypeError(type(value).__name__)


def _shown(value: Any, depth: int) -> Any:
    if depth > 50:
        return "..."
    if isinstance(value, dict):
        return {str(key): _shown(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item, depth + 1) for item in value]
    try:
        plain = _plain(value) if not isinstance(value, str) else value
        strictjson.dumps(plain)
    except (TypeError, ValueError):
        return _safe_text(value)
    return plain


def _safe_text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # whatever a user's __str__ raises
        return f"<{type(value).__name__}: its text failed with {type(error).__name__}>"


def _encodable(text: str) -> str:
    """With U+FFFD for unpaired surrogates: no provider can be sent those."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
