"""JSON schemas of Python signatures and types, and the values back: the only file that knows pydantic."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any  # schemas are JSON; values are whatever the hints say

import docstring_parser
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo

from agentor.errors import ToolArgumentError, ToolDefinitionError

_SHOWN_ERRORS = 8
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A function as a model sees it, and the way back from JSON arguments to Python values."""

    description: str
    parameters: dict[str, Any]
    context_parameter: str | None
    _arguments: type[BaseModel]
    _names: dict[str, str]  # field of the pydantic model -> parameter

    def bind(self, args: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function.

        Raises:
            ToolArgumentError: wrong, missing or unknown arguments; says which, for the model.
        """
        try:
            model = self._arguments.model_validate(args)
        except ValidationError as error:
            raise ToolArgumentError(_explain(error)) from None
        except RecursionError:
            raise ToolArgumentError("arguments are nested too deeply") from None
        return {parameter: getattr(model, name) for name, parameter in self._names.items()}


def signature_of(function: Callable[..., Any], context_type: type) -> Signature:
    """Read a function's hints and docstring (Google, NumPy or Sphinx style).

    Args:
        context_type: A parameter of this type is left out of the schema.

    Raises:
        ToolDefinitionError: `*args`, `**kwargs`, or a hint that has no JSON schema.
    """
    name = getattr(function, "__name__", type(function).__name__)
    doc = docstring_parser.parse(inspect.getdoc(function) or "")
    described = {p.arg_name.split(":")[0].strip(): p.description or "" for p in doc.params}
    hints = _hints(function)
    context_parameter: str | None = None
    model_fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolDefinitionError(
                f"tool {name!r}: *{parameter.name} has no JSON schema; name each argument"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(f"tool {name!r}: {parameter.name!r} is positional-only")
        hint = hints.get(parameter.name, Any)
        if _is_context(hint, context_type):
            context_parameter = parameter.name
            continue
        # pydantic keeps names with a leading underscore, and those of its own methods, to itself
        field_name = f"arg_{len(names)}"
        names[field_name] = parameter.name
        model_fields[field_name] = (hint, _field(parameter, described.get(parameter.name), hint))
    arguments, parameters = _build(name, model_fields)
    return Signature(
        description=_description(doc),
        parameters=parameters,
        context_parameter=context_parameter,
        _arguments=arguments,
        _names=names,
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError):
        # A hint that cannot be resolved is only a problem where it is needed: below, by name.
        raw = dict(getattr(target, "__annotations__", {}))
        return {name: hint for name, hint in raw.items() if not isinstance(hint, str)}


def _is_context(hint: Any, context_type: type) -> bool:
    candidates = (hint, *typing.get_args(hint))
    return any(c is context_type or typing.get_origin(c) is context_type for c in candidates)


def _field(parameter: inspect.Parameter, described: str | None, hint: Any) -> FieldInfo:
    default = ... if parameter.default is parameter.empty else parameter.default
    extra: dict[str, Any] = {}
    own = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, str | FieldInfo)]
    text = next((m if isinstance(m, str) else m.description for m in own if m), None) or described
    if text:
        extra["description"] = text
    if isinstance(default, FieldInfo):
        return default
    field: FieldInfo = Field(default, alias=parameter.name, **extra)
    return field


def _build(name: str, model_fields: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        arguments = create_model(
            "Arguments", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **model_fields
        )
        parameters = arguments.model_json_schema(by_alias=True)
    except (
        PydanticSchemaGenerationError,
        PydanticInvalidForJsonSchema,
        PydanticUserError,
    ) as error:
        reason = str(error).splitlines()[0]
        raise ToolDefinitionError(f"tool {name!r}: an argument has no JSON schema: {reason}") from None
    parameters.setdefault("properties", {})
    parameters["additionalProperties"] = False
    return arguments, _untitled(parameters)


def _description(doc: docstring_parser.Docstring) -> str:
    parts = [doc.short_description, doc.long_description]
    return "\n\n".join(part.strip() for part in parts if part)


def _untitled(node: Any) -> Any:
    """Without the titles that pydantic makes from names: they only cost tokens."""
    if isinstance(node, list):
        return [_untitled(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for key, value in node.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs") and isinstance(value, dict):
            out[key] = {name: _untitled(item) for name, item in value.items()}  # names, not titles
        elif key in ("default", "enum", "const", "examples"):
            out[key] = value
        else:
            out[key] = _untitled(value)
    return out


def _explain(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    lines = []
    for problem in problems[:_SHOWN_ERRORS]:
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        given = ""
        if problem["type"] not in ("missing", "extra_forbidden"):
            given = f" (got {repr(problem['input'])[:_SHOWN_CHARS]})"
        lines.append(f"{where}: {problem['msg']}{given}")
    if len(problems) > _SHOWN_ERRORS:
        lines.append(f"and {len(problems) - _SHOWN_ERRORS} more")
    return "wrong arguments: " + "; ".join(lines)


def output_schema(output_type: type[Any]) -> dict[str, Any]:
    """OpenAI's strict `response_format` for a pydantic model.

    Raises:
        TypeError: not a pydantic model, or one with an open mapping, which strict schemas lack.
    """
    if not (isinstance(output_type, type) and issubclass(output_type, BaseModel)):
        raise TypeError(f"output_type must be a pydantic model, not {output_type!r}")
    schema = _strict(_untitled(output_type.model_json_schema()), output_type.__name__)
    return {
        "type": "json_schema",
        "json_schema": {"name": output_type.__name__, "schema": schema, "strict": True},
    }


def _strict(node: Any, name: str) -> Any:
    if isinstance(node, list):
        return [_strict(item, name) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _strict(value, name) for key, value in node.items()}
    if "properties" in node and isinstance(node["properties"], dict):
        return {**node, "additionalProperties": False, "required": list(node["properties"])}
    if node.get("type") == "object" and node.get("additionalProperties"):
        raise TypeError(
            f"output_type {name}: a field is an open mapping, which strict output cannot express; "
            "use a list of objects with a key and a value"
        )
    return node


def output_parser(output_type: type[Any]) -> Callable[[str], Any]:
    """A function from an answer's text to an object of `output_type`.

    It raises ValueError, with what does not fit, for any other text.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(output_type)

    def parse(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            reason = _explain(error).removeprefix("wrong arguments: ")
            raise ValueError(f"the answer is no {output_type.__name__}: {reason}") from None

    return parse


def to_jsonable(value: Any) -> Any:
    """A pydantic model or a dataclass as JSON values; anything else raises.

    Raises:
        TypeError, ValueError: no such value, or a part of it has no JSON form.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return TypeAdapter(type(value)).dump_python(value, mode="json")
