"""A store as the engine uses it: async, in batches, with each optional capability looked up once."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any  # a store's method may be sync or async
from weakref import WeakKeyDictionary

from agentor.engine import codec
from agentor.engine.events import Event
from agentor.engine.store.base import LEASE_S, ForkMore, Lease, Store, Write, fork_marker
from agentor.engine.store.group import Group
from agentor.engine.store.summary import RunInfo, advanced
from agentor.engine.threads import Worker
from agentor.engine.transcript import Transcript, hydrate
from agentor.errors import CorruptLog, RunExists, RunNotFound, StoreWarning

_CAPABILITIES = (
    "append",
    "append_many",
    "append_group",
    "load",
    "load_from",
    "fork",
    "lease",
    "describe",
    "delete",
    "follow",
    "request_cancel",
    "cancel_requested",
)


class _Shared:
    """What all agents on one store share: its thread, and the writes that wait for each other."""

    def __init__(self) -> None:
        self.worker, self.group = Worker(), Group()


_SHARED: WeakKeyDictionary[Any, _Shared] = WeakKeyDictionary()


def _shared(store: Store) -> _Shared:
    try:
        return _SHARED.setdefault(store, _Shared())
    except TypeError:  # no weak reference, or not hashable: two agents have a thread each then
        return _Shared()


class Access:
    """Async calls to one store. Sync methods run on one thread of the store's own, in order."""

    def __init__(self, store: Store) -> None:
        for method in ("append", "load", "list_runs"):
            if not callable(getattr(store, method, None)):
                raise TypeError(f"store= needs append, load and list_runs; {store!r} has no {method}")
        self.store = store
        self._methods: dict[str, Callable[..., Any]] = {
            name: getattr(store, name)
            for name in (*_CAPABILITIES, "list_runs")
            if callable(getattr(store, name, None)) and not _is_outdated(store, name)
        }
        self.name = type(store).__name__
        self.where = self.name if type(store).__repr__ is object.__repr__ else repr(store)
        self._fork_takes_at = "fork" in self._methods and _takes(store.fork, "src", "dst", 0)  # type: ignore[attr-defined]  # it has one
        self._fork_takes_more = self._fork_takes_at and _takes(store.fork, "src", "dst", 0, {})  # type: ignore[attr-defined]  # it has one
        many = self._methods.get("append_many")
        self._fences = many is not None and _takes(many, "run", [], 1)
        self._lease_s = float(getattr(store, "lease_s", LEASE_S))
        shared = _shared(store)
        self._worker, self._group = shared.worker, shared.group
        self._warned: set[str] = set()

    def method(self, capability: str) -> Callable[..., Any] | None:
        """The store's own method of this name; None where it has none."""
        return self._methods.get(capability)

    async def call(self, function: Callable[..., Any], *args: object) -> Any:
        """A method of the store, or of one of its leases, sync or async; sync ones on the store's thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        outcome = await self._worker.call(function, *args)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _call(self, method: str, *args: object) -> Any:
        return await self.call(self._methods[method], *args)

    def _warn_once(self, capability: str, meaning: str) -> None:
        if capability not in self._warned:
            self._warned.add(capability)
            warnings.warn(f"{self.name} has no {capability}: {meaning}", StoreWarning, stacklevel=2)

    async def append(self, run_id: str, events: Sequence[Event], epoch: int | None = None) -> int:
        """Save the first of these events, or all; returns how many are now durable.

        Raises:
            Fenced: the lease with this epoch is over.
        """
        if "append_group" in self._methods:
            await self._group.add(Write(run_id, list(events), epoch), self._append_group)
            return len(events)
        if "append_many" in self._methods:
            fence = (epoch,) if epoch is not None and self._fences else ()
            await self._call("append_many", run_id, list(events), *fence)
            return len(events)
        await self._call("append", run_id, events[0])
        return 1

    async def _append_group(self, writes: Sequence[Write]) -> Sequence[Exception | None]:
        outcomes: Sequence[Exception | None] = await self._call("append_group", writes)
        return outcomes

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

    async def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on, as they are stored."""
        if "load_from" in self._methods:
            events: list[Event] = await self._call("load_from", run_id, seq)
            return events
        return codec.sequence(run_id, await self._call("load", run_id))[seq:]

    async def list_runs(self) -> list[str]:
        return sorted(await self._call("list_runs"))

    async def describe(self, run_ids: Sequence[str] | None = None) -> list[RunInfo]:
        """As `SupportsDescribe`, on any store."""
        if "describe" in self._methods:
            known: list[RunInfo] = await self._call("describe", run_ids)
            return known
        infos = []
        for run_id in await self.list_runs() if run_ids is None else run_ids:
            try:
                events = codec.sequence(run_id, await self._call("load", run_id))
            except CorruptLog as error:
                infos.append(RunInfo(run_id=run_id, status="corrupt", records=error.record))
                continue
            if events:
                infos.append(advanced(RunInfo(run_id=run_id), events))
        return infos

    async def delete(self, run_id: str, epoch: int | None = None) -> None:
        """As `SupportsDelete`.

        Raises:
            TypeError: the store cannot.
        """
        if "delete" not in self._methods:
            raise TypeError(f"{self.name} has no method 'delete'")
        await self._call("delete", run_id, epoch)

    async def request_cancel(self, run_id: str, reason: str) -> None:
        """As `SupportsCancel`.

        Raises:
            TypeError: the store cannot.
        """
        if "request_cancel" not in self._methods:
            raise TypeError(
                f"{self.name} has no method 'request_cancel', so another process cannot be asked to stop; "
                "cancel the task that awaits the run"
            )
        await self._call("request_cancel", run_id, reason)

    async def fork(
        self, src: str, dst: str, at: int | None, parent: list[Event], more: ForkMore | None = None
    ) -> None:
        """Copy a run up to `at` under a new id, marker included.

        Raises:
            RunNotFound, RunExists: as named.
        """
        if self._fork_takes_more if more else self._fork_takes_at:
            given = (at, more) if more else () if at is None else (at,)
            await self._call("fork", src, dst, *given)
            return
        self._warn_once("atomic fork", "a crash in the middle of a fork leaves a part of it")
        if not parent:
            raise RunNotFound(src, self.where)
        if await self.exists(dst):
            raise RunExists(dst)
        marker = fork_marker(src, parent, at, more)
        if at is None and "fork" in self._methods:
            await self._call("fork", src, dst)
        else:
            for event in parent[: marker.seq]:
                await self._call("append", dst, event)
        await self._call("append", dst, marker)


def _read(run_id: str, events: list[Event]) -> tuple[list[Event], Transcript]:
    return hydrate(run_id, codec.sequence(run_id, events))


_BASES = {  # what a capability does more of, or faster
    "append_many": ("append",),
    "append_group": ("append_many", "append"),
    "load_from": ("load",),
    "describe": ("load",),
}


def _is_outdated(store: Any, name: str) -> bool:
    """True for a capability whose basic method a subclass has changed: that one counts then."""
    return any(_overrides(store, basic, name) for basic in _BASES.get(name, ()))


def _overrides(store: Any, basic: str, name: str) -> bool:
    own = getattr(store, "__dict__", {})
    if basic in own:
        return name not in own
    owner = next((c for c in type(store).__mro__ if basic in vars(c) or name in vars(c)), None)
    return owner is not None and name not in vars(owner)


def _takes(method: Callable[..., Any], *args: object) -> bool:
    try:
        inspect.signature(method).bind(*args)
    except TypeError:
        return False
    return True
