"""What an agent was when it wrote a segment, and what has changed since, in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any  # JSON schemas

from agentor.engine import strictjson
from agentor.engine.calls import AgentSpec
from agentor.engine.messages import digest
from agentor.engine.transcript import Transcript
from agentor.errors import AgentChanged, AgentChangedWarning


def fingerprint_of(spec: AgentSpec) -> dict[str, Any]:
    """Digests of the instructions, of each tool's schema and of the output's, where there is one."""
    tools = {name: tool.fingerprint[:16] for name, tool in sorted(spec.tools.items())}
    known: dict[str, Any] = {"instructions": digest(spec.instructions)[:16], "tools": tools}
    if spec.response_format is not None:
        known["output"] = digest(spec.response_format)[:16]
    return known


def definitions_of(spec: AgentSpec) -> dict[str, dict[str, Any]]:
    """What the model is told of each tool: its `description` and `parameters`, by its name."""
    return {name: told(tool.schema) for name, tool in sorted(spec.tools.items())}


def told(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's definition without its name."""
    return {key: value for key, value in schema["function"].items() if key != "name"}


def new_definitions(spec: AgentSpec, t: Transcript) -> dict[str, dict[str, Any]]:
    """The definitions that the log does not hold yet."""
    hashes = _hashes(t)
    return {
        name: definition
        for name, definition in definitions_of(spec).items()
        if name not in t.definitions or hashes.get(name) != spec.tools[name].fingerprint[:16]
    }


def new_output(spec: AgentSpec, t: Transcript) -> dict[str, Any] | None:
    """The output's schema, where the log does not hold it yet."""
    known = (t.fingerprint or {}).get("output")
    is_new = spec.response_format is not None and known != digest(spec.response_format)[:16]
    return spec.response_format if is_new else None


def changes(spec: AgentSpec, t: Transcript) -> list[str]:
    """How this agent differs from the one that wrote the run, for people."""
    if not t.fingerprint:
        return []
    now, then = fingerprint_of(spec), t.fingerprint
    found = ["its instructions"] if now["instructions"] != then.get("instructions") else []
    found += [words for _, words in tool_changes(spec, t)]
    if now.get("output") != then.get("output") and same(spec.response_format) != same(t.output):
        found.append("its output type")
    if t.model is not None and t.model not in spec.model_names:
        found.append(f"model {t.model!r} -> {spec.model_name!r}")
    return found


def tool_changes(spec: AgentSpec, t: Transcript) -> list[tuple[str, str]]:
    """How this agent's tools differ from those that the log tells of: the name, and words for people."""
    then = _hashes(t)
    old, new = t.definitions, definitions_of(spec)
    gone, come = [name for name in then if name not in new], [name for name in new if name not in then]
    found = []
    for name in list(gone):  # the same tool under another name
        twin = next((n for n in come if name in old and same(old[name]) == same(new[n])), None)
        if twin is not None:
            found.append((name, f"tool {name!r} is now called {twin!r}"))
            gone.remove(name)
            come.remove(twin)
    found += [(name, f"tool {name!r} is gone") for name in gone]
    found += [(name, f"tool {name!r} is new") for name in come]
    for name in new:
        if name in then and then[name] != spec.tools[name].fingerprint[:16]:
            difference = _difference(old.get(name), new[name])
            if difference is not None:
                found.append((name, f"tool {name!r}{difference}"))
    return found


def refuse_change(spec: AgentSpec, run_id: str, t: Transcript, *, goes_on: bool) -> None:
    """Nothing, where this agent may go on with the run.

    Args:
        goes_on: Open calls go on; a new message would put them aside.

    Raises:
        AgentChanged: its tools lack one that an open call needs; or by `on_change="refuse"`.
    """
    had = _hashes(t)
    missing = sorted({c.call.name for c in t.open_calls if c.call.name in had} - set(spec.tools))
    if goes_on and missing:
        what = f"open calls need the tool(s) {', '.join(missing)}, which this agent has not"
        raise AgentChanged(run_id, what, "give it the tool(s), or fork the run with a new message")
    if spec.on_change == "refuse" and (found := changes(spec, t)):
        how = "use the agent that wrote it, or on_change='warn'"
        raise AgentChanged(run_id, f"it was written by another agent: {'; '.join(found)}", how)


def warn_of_change(spec: AgentSpec, run_id: str, t: Transcript) -> None:
    """Say what differs, by `on_change="warn"`."""
    if spec.on_change == "warn" and (found := changes(spec, t)):
        text = f"run {run_id!r} goes on under a changed agent: {'; '.join(found)}"
        warnings.warn(text, AgentChangedWarning, stacklevel=3)


def _hashes(t: Transcript) -> Mapping[str, Any]:
    """By tool, the digest in the log; what somebody else wrote there counts as nothing."""
    tools = (t.fingerprint or {}).get("tools")
    return tools if isinstance(tools, Mapping) else {}


def same(schema: Any, *, ordered: bool = True) -> Any:
    """A schema without what cannot matter: runs of white space in its texts, the order of required names."""
    if isinstance(schema, Mapping):
        return {key: same(value, ordered=key != "required") for key, value in schema.items()}
    if isinstance(schema, list):
        items = [same(item) for item in schema]
        return items if ordered else sorted(items, key=str)
    return " ".join(schema.split()) if isinstance(schema, str) else schema


def _difference(old: Any, new: Mapping[str, Any]) -> str | None:
    """What differs, in words; None where nothing that matters."""
    if not isinstance(old, Mapping):
        return " has changed"  # the log does not say how
    if same(old) == same(new):
        return None
    before, now = _arguments(old), _arguments(new)
    said = [f"argument {name!r} is gone" for name in before if name not in now]
    said += [f"argument {name!r} is new: {now[name][0]}" for name in now if name not in before]
    for name in now:
        if name in before and before[name] != now[name]:
            (kind, was), (kind_now, now_is) = before[name], now[name]
            if kind != kind_now:
                said.append(f"argument {name!r} was {kind}, is {kind_now}")
            elif _described(was) != _described(now_is):
                said.append(f"argument {name!r}: its description")
            else:
                said.append(f"argument {name!r}: its schema")
    if same(old.get("description")) != same(new.get("description")):
        said.append("its description")
    return ": " + ", ".join(said or ["its schema"])


def _arguments(definition: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """By name, an argument's kind in words, and its schema."""
    parameters = definition.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    required, properties = parameters.get("required"), parameters.get("properties")
    required = required if isinstance(required, list) else []
    return {
        name: (_kind(schema) + _default(schema, name in required), same(schema))
        for name, schema in (properties if isinstance(properties, Mapping) else {}).items()
    }


def _described(schema: Any) -> Any:
    return schema.get("description") if isinstance(schema, Mapping) else None


def _default(schema: Any, required: bool) -> str:
    if isinstance(schema, Mapping) and "default" in schema:
        return f" with the default {strictjson.dumps(schema['default'])}"
    return "" if required else ", optional"


def _kind(schema: Any) -> str:
    """A schema in a word or two: enough to see what changed."""
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    for choice in ("anyOf", "oneOf"):
        if isinstance(schema.get(choice), list):
            return " or ".join(_kind(one) for one in schema[choice])
    kind = schema.get("type") or ("object" if "$ref" in schema or "properties" in schema else "anything")
    kind = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    return f"array of {_kind(schema['items'])}" if kind == "array" and "items" in schema else kind
