"""An object of the user's own, named on the command line."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any  # whatever it is

import typer


def named(name: str) -> Any:
    """What `module:name` is, with the current folder first among those that modules come from.

    Raises:
        typer.BadParameter: there is none.
    """
    module, _, attributes = name.partition(":")
    if not module or not attributes:
        raise typer.BadParameter(f"{name!r} is no module:name")
    if sys.path[:1] != [""]:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        found = import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except Exception as error:  # the edge: the user's own module may raise anything
        raise typer.BadParameter(f"{name!r}: {type(error).__name__}: {error}") from None
    return found
