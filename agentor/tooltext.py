"""A tool's result as the text that a model is shown."""

from __future__ import annotations

import dataclasses
from typing import Any  # results are the user's own

from agentor.engine import strictjson
from agentor.schema import to_jsonable


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
