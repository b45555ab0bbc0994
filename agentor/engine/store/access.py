"""A store as the engine uses it: async, in batches, with each optional capability looked up once."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any  # a store's method may be sync or async
from weakref import WeakKeyDictionary

from agentor.engine import codec
from agentor.engine.events import Event, numbered
from agentor.engine.store.base import Lease, Store, fork_marker
from agentor.engine.threads import Worker
from agentor.engine.transcript import Transcript, hydrate
from agentor.errors import RunExists, RunNotFound, StoreWarning

_WORKERS: WeakKeyDictionary[Any, Worker] = WeakKeyDictionary()  # one thread a store, however many agents


def _worker(store: Store) -> Worker:
    try:
        return _WORKERS.setdefault(store, Worker())
    except TypeError:  # no weak reference, or not hashable: two agents have a thread each then
        return Worker()


class Access:
    """Async calls to one store. Sync methods run on one thread of the store's own, in order."""

    def __init__(self, store: Store) -> None:
        for method in ("append", "load", "list_runs"):
            if not callable(getattr(store, method, None)):
                raise TypeError(f"store= needs append, load and list_runs; {store!r} has no {method}")
        self._methods: dict[str, Callable[..., Any]] = {
            name: getattr(store, name)
            for name in ("append", "append_many", "load", "load_from", "fork", "lease")
            if callable(getattr(store, name, None)) and not _is_outdated(store, name)
        }
        self.name = type(store).__name__
        directory = getattr(store, "directory", None)
        self.where = self.name if directory is None else f"{self.name}({str(directory)!r})"
        self._fork_takes_at = "fork" in self._methods and _takes_three(store)
        self._lease_s = float(getattr(store, "lease_s", 30.0))
        self._worker = _worker(store)
        self._warned: set[str] = set()

    async def _call(self, method: str, *args: object) -> Any:
        function = self._methods[method]
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        outcome = await self._worker.call(function, *args)
        return await outcome if inspect.isawaitable(outcome) else outcome

    def _warn_once(self, capability: str, meaning: str) -> None:
        if capability not in self._warned:
            self._warned.add(capability)
            warnings.warn(f"{self.name} has no {capability}: {meaning}", StoreWarning, stacklevel=2)

    async def append(self, run_id: str, events: Sequence[Event]) -> int:
        """Save the first of these events, or all; returns how many are now durable."""
        if "append_many" in self._methods:
            await self._call("append_many", run_id, list(events))
            return len(events)
        await self._call("append", run_id, events[0])
        return 1

    async def load(self, run_id: str) -> tuple[list[Event], Transcript]:
        """A run's events, checked and hydrated, and their fold; empty for an unknown run.

        Raises:
            CorruptLog, UnsupportedLog: the log cannot be trusted, or not be understood.
        """
        load = self._methods["load"]
        if inspect.iscoroutinefunction(load):
            return await self._worker.call(_read, run_id, await load(run_id))
        return await self._worker.call(lambda: _read(run_id, load(run_id)))

    async def is_current(self, run_id: str, length: int) -> bool:
        """False if the run may have more events than the `length` that were loaded."""
        if "load_from" not in self._methods:
            return False
        return not await self._call("load_from", run_id, length)

    async def exists(self, run_id: str) -> bool:
        return bool((await self.load(run_id))[0])

    async def lease(self, run_id: str, owner: str) -> Lease | None:
        """Become the run's only writer; None where the store cannot say.

        Raises:
            RunBusy: another writer holds it.
        """
        if "lease" not in self._methods:
            self._warn_once("lease", "do not resume one run from two workers")
            return None
        lease: Lease = await self._call("lease", run_id, owner, self._lease_s)
        return lease

    async def call_own(self, method: Callable[..., Any], *args: object) -> Any:
        """A method of one of this store's objects, sync or async, on the store's own thread."""
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        return await self._worker.call(method, *args)

    async def fork(self, src: str, dst: str, at: int | None, parent: list[Event]) -> None:
        """Copy a run up to `at` under a new id, marker included.

        Raises:
            RunNotFound, RunExists: as named.
        """
        if self._fork_takes_at:
            await self._call("fork", src, dst, *(() if at is None else (at,)))
            return
        self._warn_once("atomic fork", "a crash in the middle of a fork leaves a part of it")
        if not parent:
            raise RunNotFound(src, self.where)
        if await self.exists(dst):
            raise RunExists(dst)
        copied = parent if at is None else parent[: at + 1]
        marker = fork_marker(src, parent, at)
        if at is None and "fork" in self._methods:
            await self._call("fork", src, dst)
        else:
            for event in copied:
                await self._call("append", dst, event)
        await self._call("append", dst, numbered(marker, len(copied), copied[-1].at, dst))


def _read(run_id: str, events: list[Event]) -> tuple[list[Event], Transcript]:
    return hydrate(run_id, codec.sequence(run_id, events))


_BASE_OF = {"append_many": "append", "load_from": "load"}


def _is_outdated(store: Any, name: str) -> bool:
    """True for a capability whose basic method a subclass has changed: that one counts then."""
    basic = _BASE_OF.get(name)
    if basic is None:
        return False
    if basic in getattr(store, "__dict__", {}):
        return name not in store.__dict__
    owner = next((c for c in type(store).__mro__ if basic in vars(c) or name in vars(c)), None)
    return owner is not None and name not in vars(owner)


def _takes_three(store: Any) -> bool:
    try:
        inspect.signature(store.fork).bind("src", "dst", 0)
    except TypeError:
        return False
    return True
