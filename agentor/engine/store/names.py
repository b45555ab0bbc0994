"""Run ids: which ones can name a log, and the file name of each."""

from __future__ import annotations

import base64
import re
import unicodedata

from agentor.errors import InvalidRunId

_ENCODED = "x--"
_LITERAL = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_DEVICES = {"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10)}
MAX_ID_BYTES = 60  # of an id that must be encoded: its file name has 8/5 of them and a prefix


def is_literal(run_id: str) -> bool:
    """True for ids that any store and file system can take as they are."""
    return _LITERAL.fullmatch(run_id) is not None and run_id not in _DEVICES


def check_run_id(run_id: str) -> None:
    """Refuse an id that cannot name a log on every store; ids that only need encoding pass.

    Raises:
        InvalidRunId: empty, a path, hidden, a device's name, control or invisible characters, or
            too long.
    """
    if not isinstance(run_id, str):
        raise InvalidRunId(str(run_id), "it is no text")
    if is_literal(run_id):
        return
    reason = None
    if not run_id:
        reason = "it is empty"
    elif any(char in "/\\:" for char in run_id) or run_id.startswith("."):
        reason = "it reads as a path or a hidden file"
    elif run_id.split(".")[0].lower() in _DEVICES:
        reason = "it is the name of a device"
    elif any(unicodedata.category(char)[0] == "C" for char in run_id):
        reason = "it has control or invisible characters"
    elif run_id[-1] in ". " or run_id[0] == " ":
        reason = "it begins or ends with a space, or ends with a dot"
    elif len(run_id.encode()) > MAX_ID_BYTES:
        reason = f"it needs encoding and has more than {MAX_ID_BYTES} bytes, or more than 100 characters"
    if reason:
        raise InvalidRunId(run_id, reason)


def encoded(run_id: str) -> str:
    """A name of the literal form for any id that `check_run_id` lets pass; injective."""
    if is_literal(run_id) and not run_id.startswith(_ENCODED):
        return run_id
    return _ENCODED + base64.b32encode(run_id.encode()).decode().rstrip("=").lower()


def decoded_id(name: str) -> str:
    """The run id behind a file's name."""
    if not name.startswith(_ENCODED):
        return name
    code = name.removeprefix(_ENCODED).upper()
    try:
        return base64.b32decode(code + "=" * (-len(code) % 8)).decode()
    except ValueError:
        return name  # somebody else's file
