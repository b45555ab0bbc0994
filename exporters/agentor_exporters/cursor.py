"""What of a run's trace was delivered, in a small file beside its log; without it spans may be sent twice."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentor.engine import strictjson
from agentor.engine.events import Event
from agentor.engine.lineage import split_fork
from agentor.engine.store import FileStore, SQLiteStore
from agentor.engine.store.base import Store
from agentor.engine.store.names import encoded

SUFFIX = ".trace.json"


class Cursor:
    """How many of a run's spans, in the order in which they end, one place has.

    Losing the file loses nothing: spans are sent again then, under the same ids.

    Args:
        path: The file; None remembers nothing.
        identity: Names the place, and is written down as a digest; None remembers nothing either.
    """

    def __init__(self, path: Path | None, identity: str | None) -> None:
        self.path = None if identity is None else path
        self._key = hashlib.sha256((identity or "").encode("utf-8", "replace")).hexdigest()[:16]

    def read(self, began: float | None) -> int:
        """The count, 0 where nothing is known of this run.

        Args:
            began: See `began`; another run may have had the same id.
        """
        return max(int(self._load(began).get(self._key, 0)), 0)

    def write(self, began: float | None, count: int) -> None:
        """Remember the count; a folder that cannot be written to is no error."""
        if self.path is None:
            return
        known = {**self._load(began), self._key: count}
        text = strictjson.dumps({"began": began, "delivered": known})
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self.path)

    def _load(self, began: float | None) -> dict[str, int]:
        if self.path is None or not self.path.is_file():  # a pipe with its name would be waited for
            return {}
        try:
            stored = strictjson.loads(self.path.read_text(encoding="utf-8"))
            if stored["began"] == began and all(isinstance(n, int) for n in stored["delivered"].values()):
                return dict(stored["delivered"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # none, or a torn one: sending twice is harmless
        return {}


def beside(store: Store | None, run_id: str, folder: Path | None = None) -> Path | None:
    """Where the cursor of a run is; None where its store has no folder of its own.

    Args:
        folder: For such a store.
    """
    if isinstance(store, FileStore):
        return store.path(run_id).with_suffix(SUFFIX)
    if isinstance(store, SQLiteStore):
        return store.path.with_name(f"{store.path.name}.traces") / f"{encoded(run_id)}{SUFFIX}"
    return None if folder is None else folder / f"{encoded(run_id)}{SUFFIX}"


def cursor_of(store: Store | None, run_id: str, folder: Path | str | None, identity: str | None) -> Cursor:
    """The cursor of a run for one place; `folder` is for stores that have none of their own."""
    return Cursor(beside(store, run_id, None if folder is None else Path(folder)), identity)


def began(events: Sequence[Event]) -> float | None:
    """What tells a run from another one with its id: when its own first record was written."""
    copied, own = split_fork(events)
    first = copied[-1] if copied else own[0] if own else None
    return None if first is None else first.at
