"""Requests to stop a run, as small files beside its log."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from agentor.engine.store.runlog import SUFFIX, Folder
from agentor.errors import RunNotFound

if TYPE_CHECKING:
    from agentor.engine.store.disk import Disk

CANCEL = ".cancel"


class FileCancels:
    """For `FileStore`: `<run>.cancel` names the epoch that is asked to stop, and why."""

    _folder: Folder
    _disk: Disk

    def _name(self, run_id: str) -> str:
        raise NotImplementedError

    def _exists(self, file_name: str) -> bool:
        raise NotImplementedError

    def _written(self, run_id: str, name: str, data: bytes) -> str:
        raise NotImplementedError

    def request_cancel(self, run_id: str, reason: str) -> None:
        """Ask whoever has the run now to stop.

        Raises:
            RunNotFound: no such run.
            StoreError: the system refused.
        """
        name = self._name(run_id)
        if not self._exists(name + SUFFIX):
            raise RunNotFound(run_id, repr(self))
        asked = {"epoch": self._content(run_id, name + ".lock").get("epoch"), "reason": reason}
        temporary = self._written(run_id, name + CANCEL, json.dumps(asked).encode())
        try:
            self._disk.replace(temporary, name + CANCEL, self._folder.fd)
        except OSError as error:
            raise self._folder.refused(run_id, "write", name + CANCEL, error) from error

    def cancel_requested(self, run_id: str, epoch: int) -> str | None:
        """Why the holder with this epoch is asked to stop; None where it is not."""
        asked = self._content(run_id, self._name(run_id) + CANCEL)
        return str(asked.get("reason")) if asked.get("epoch") == epoch else None

    def _content(self, run_id: str, name: str) -> dict[str, object]:
        """A small JSON file; empty where there is none, or no whole one."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            fd = self._folder.open(run_id, name, os.O_RDONLY)
            try:
                content = json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
            finally:
                os.close(fd)
            return content if isinstance(content, dict) else {}
        return {}
