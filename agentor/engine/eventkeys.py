"""Which keys of a record belong to which fields of an event's class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any  # a field's default is of any type

_NAMES = {"rest": "message", "edited_args": "args"}  # where a field's key in the log differs
_COMMON = {"type", "run_id", "extra", "seq", "at", "request", "arguments"}
_ACCEPTED: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "float": (int, float),
    "list": (list,),
    "dict": (dict,),
    "Usage": (dict,),
}


def written_keys(cls: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    """(field, key, default) for each field that a record has only where it is not at its default."""
    return tuple((f.name, _NAMES.get(f.name, f.name), _default(f)) for f in _own(cls))


def readable_keys(cls: type[Any]) -> dict[str, tuple[str, tuple[type, ...] | None]]:
    """By key: the field, and the types that its value may have (None: any)."""
    common: dict[str, tuple[str, tuple[type, ...] | None]] = {
        "type": ("type", (str,)),
        "seq": ("seq", (int,)),
        "at": ("at", (int, float)),
    }
    return common | {_NAMES.get(f.name, f.name): (f.name, _accepted(str(f.type))) for f in _own(cls)}


def _own(cls: type[Any]) -> list[Field[Any]]:
    return [f for f in fields(cls) if f.name not in _COMMON]


def _accepted(annotation: str) -> tuple[type, ...] | None:
    return _ACCEPTED.get(annotation.split(" |")[0].split("[")[0])


def _default(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return item.default


def time_in(extra: Mapping[str, Any], key: str) -> float | None:
    """A time that a log of agentor 0.1 gives; None where it gives none."""
    value = extra.get(key)
    return float(value) if isinstance(value, int | float) else None


def check_messages(kind: str, said: object) -> None:
    """That these are messages.

    Raises:
        ValueError: they are not.
    """
    if not isinstance(said, list) or not all(isinstance(message, dict) for message in said):
        raise ValueError(f"{kind}: 'messages' must be a list of objects")
