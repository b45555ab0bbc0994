"""Strict JSON both ways, with limits: the only JSON that enters or leaves a log or a tool call."""

from __future__ import annotations

import json
from typing import Any  # a JSON value has no narrower static type

MAX_DEPTH = 200  # json.loads recurses in C; deeper values would die later, in a dump at another stack depth


def dumps(value: Any) -> str:
    """Compact strict JSON text (no NaN, no Infinity), keys in their own order.

    Raises:
        ValueError: NaN or infinity, a cycle, or nesting that is too deep.
        TypeError: a value that JSON does not have.
    """
    try:
        return _ENCODER(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dump_bytes(value: Any) -> bytes:
    """`dumps` as UTF-8. A text with unpaired surrogates, which UTF-8 lacks, goes out in ASCII escapes."""
    text = dumps(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def canonical(value: Any) -> bytes:
    """One byte string per JSON value: sorted keys, no spaces, ASCII. For digests.

    Raises: as `dumps`.
    """
    try:
        return _CANONICAL(value).encode("ascii")
    except RecursionError:
        raise ValueError("nested too deeply") from None


def loads(text: str | bytes) -> Any:
    """Parse one strict JSON text.

    Raises:
        ValueError: not JSON, NaN or Infinity, a number beyond a double, an integer beyond Python's
            digit limit, nesting deeper than `MAX_DEPTH`, or bytes that are not UTF-8.
            No other exception escapes.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        # Only a text with this many brackets can be that deep; counting is far cheaper than parsing.
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _refuse_depth(text)
        return _DECODER(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_depth(text: str) -> None:
    depth, inside, escaped = 0, False, False
    for char in text:
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
        elif char in "]}":
            depth -= 1


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):  # valid JSON, and no number that could be written again
        raise ValueError(f"{text[:40]} is beyond the range of numbers")
    return number


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_CANONICAL = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode
