"""A worker process on a store, killed with SIGKILL wherever a test wants."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any  # a store

from agentor.testing.samples import result
from agentor.testing.settled import Settled

_WAIT_S = 120.0
_SPAWN = multiprocessing.get_context("spawn")  # a fork would take the store's threads along, half


class Killed:
    """Runs one act on the store, and says each step that is done.

    Acts: `write` appends events one by one and says each number; `hold` takes a lease of `number` seconds
    and says its epoch; `fork` says that it begins, and forks the run to `branch`.
    """

    def __init__(self, open_store: Callable[[], Any], act: str, run_id: str, number: float) -> None:
        self._mine, theirs = _SPAWN.Pipe()
        args = (open_store, act, run_id, number, theirs)
        self._process = _SPAWN.Process(target=_work, args=args, daemon=True)
        self._theirs = theirs

    def __enter__(self) -> Killed:
        """Start the worker.

        Raises:
            Exception: `open_store` cannot be handed to another process; what its own parts raise then.
        """
        self._process.start()
        self._theirs.close()
        return self

    def said(self) -> Any:
        """What the worker did last.

        Raises:
            AssertionError: it failed, or does not get on.
        """
        assert self._mine.poll(_WAIT_S), "the worker does not get on"
        said = self._mine.recv()
        assert not isinstance(said, str), said
        return said

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.close()
        self._mine.close()


def _work(open_store: Callable[[], Any], act: str, run_id: str, number: float, pipe: Connection) -> None:
    try:
        store = Settled(open_store())
        if act == "hold":
            lease = store.lease(run_id, "killed", number)
            pipe.send(lease.epoch)
        elif act == "fork":
            pipe.send(0)
            store.fork(run_id, "branch")
        else:
            for seq in range(int(number) + 20):
                store.append(run_id, result(seq, "x" * 2000))
                pipe.send(seq)
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
    pipe.poll(None)  # until the kill
