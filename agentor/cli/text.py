"""Text from runs on a terminal: shown as text, never obeyed."""

from __future__ import annotations

import unicodedata

_HIDDEN = (
    "Cc",
    "Cf",
    "Cs",
    "Co",
    "Cn",
    "Zl",
    "Zp",
)  # control, format (bidi marks too), half pairs, unassigned


def visible(text: str) -> str:
    """One line with every character that is not shown, or moves others, as its number: `\\x1b`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c == "\t" or unicodedata.category(c) not in _HIDDEN else _number(c) for c in text)


def _number(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
