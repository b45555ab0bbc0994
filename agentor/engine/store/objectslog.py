"""`Logs`: the logs of runs as objects in a bucket, each object put only where none is."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

from agentor.engine.events import Event
from agentor.engine.store.names import encoded
from agentor.engine.store.objectsbatch import End, Key, batch, is_restart, keys_of, part, path_of, read
from agentor.engine.store.objectsbucket import Bucket, together
from agentor.engine.store.summary import RunInfo
from agentor.engine.threads import in_thread
from agentor.errors import CorruptLog, StoreError

TRIES = 20  # others may be faster, but not for ever
_KNOWN_ENDS = 4096
_LARGE_BYTES = 200_000  # what is decoded away from the event loop, which it would hold up


class Logs:
    """Reads and writes logs; where each one ends is remembered as a guess, and the store decides."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._ends: OrderedDict[str, End] = OrderedDict()
        self._lock = threading.Lock()

    # --- reading --------------------------------------------------------------------------------

    async def load(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on; only the objects that hold them are read.

        Raises:
            CorruptLog: an object is damaged, or missing.
        """
        end = self.guess(run_id)
        if end is not None and seq >= end.seq and (keys := await self._new_keys(run_id, end)) is not None:
            if not keys:
                return []
            objects = await self.fetch(run_id, keys)
            with suppress(CorruptLog):  # the whole log is to say what is wrong with it
                if objects is not None:
                    events, _ = await self._read(run_id, objects, whole=False, before=end)
                    return [event for event in events if (event.seq or 0) >= seq]
        events, _ = await self._look(run_id, seq)
        return [event for event in events if (event.seq or 0) >= seq]

    async def end(self, run_id: str) -> End:
        """Where the log ends, by its last object.

        Raises:
            CorruptLog: that one is damaged.
        """
        return (await self._look(run_id, sys.maxsize))[1]

    def guess(self, run_id: str) -> End | None:
        """Where the log ended when this process last saw it."""
        with self._lock:
            return self._ends.get(run_id)

    async def is_current(self, run_id: str, end: End) -> bool:
        """True while the log ends there; one request."""
        return await self._new_keys(run_id, end) == []

    async def keys(self, run_id: str) -> list[Key]:
        """The log's objects, in order, with those that a restart made void and nobody removed yet."""
        return keys_of(run_id, await self._bucket.below(run_id, _folder(run_id)))

    async def fetch(self, run_id: str, keys: Sequence[Key]) -> list[tuple[Key, bytes]] | None:
        """Objects; None if one of them is gone: the run was just removed, or repaired."""
        found = await together(partial(self._bucket.get, run_id, key.path, key.size) for key in keys)
        objects = [(key, each.data) for key, each in zip(keys, found, strict=True) if each is not None]
        return objects if len(objects) == len(keys) else None

    async def _look(self, run_id: str, seq: int) -> tuple[list[Event], End]:
        """At least the events from `seq` on, and the log's end."""
        for _ in range(TRIES):
            keys, whole = part(await self.keys(run_id), seq)
            objects = await self.fetch(run_id, keys)
            if objects is not None:
                return await self._read(run_id, objects, whole=whole)
        raise StoreError(run_id, f"{self._bucket.name} lists objects of the run that are not there")

    async def _read(
        self, run_id: str, objects: list[tuple[Key, bytes]], *, whole: bool, before: End | None = None
    ) -> tuple[list[Event], End]:
        work = partial(read, run_id, objects, whole=whole, before=before)
        large = sum(len(data) for _, data in objects) > _LARGE_BYTES
        events, end = await in_thread(work) if large else work()
        self._remember(run_id, end)
        return events, end

    async def _new_keys(self, run_id: str, end: End) -> list[Key] | None:
        """The objects behind this end; None if the object before it is not there, or another one."""
        if end.last is None:
            return None
        listed = await self._bucket.below(run_id, _folder(run_id), end.last.path[:-1])
        keys = keys_of(run_id, listed)
        stands = keys and (keys[0].path, keys[0].tag) == (end.last.path, end.last.tag)
        return keys[1:] if stands else None

    def _remember(self, run_id: str, end: End) -> None:
        with self._lock:
            self._ends[run_id] = end
            self._ends.move_to_end(run_id)
            if len(self._ends) > _KNOWN_ENDS:
                self._ends.popitem(last=False)

    # --- writing --------------------------------------------------------------------------------

    async def put(
        self, run_id: str, end: End, events: Sequence[Event], epoch: int, *, restart: bool = False
    ) -> bool:
        """Put the next object; False if another one stands in its place.

        Args:
            restart: The log begins anew with these events.
        """
        path = path_of(_folder(run_id), end.index, end.seq)
        data, after = batch(end, events, epoch, path, restart=restart)
        version = await self._bucket.put_new(run_id, path, data)
        if version is None:
            return False
        last = Key(end.index, end.seq, path, len(data), version.get("e_tag"))
        self._remember(run_id, replace(after, last=last))
        return True

    async def restart(self, run_id: str, epoch: int, events: Sequence[Event]) -> None:
        """Begin the log anew with these events, in one write; what stood before counts no more."""
        for _ in range(TRIES):
            try:
                end = await self.end(run_id)
            except CorruptLog:
                end = await self._end_of_damaged(run_id)
            if await self.put(run_id, end, events, epoch, restart=True):
                return
        raise StoreError(run_id, f"{TRIES} other writers were faster; nothing was changed: try again")

    async def _end_of_damaged(self, run_id: str) -> End:
        """The place where a writer that does not know of the damage would go on."""
        last = (await self.keys(run_id))[-1]
        found = await self._bucket.get(run_id, last.path, last.size)
        records = last.seq + max(0, found.data.count(b"\n") - 1 if found else 0)
        return End(index=last.index + 1, info=RunInfo(run_id=run_id, records=records))

    async def sweep(self, run_id: str) -> Key | None:
        """Remove what the last restart made void; gives that restart if nothing else is left.

        Empty objects stay: each stands where a worker that lost the run would write.
        """
        keys = await self.keys(run_id)
        for place in range(len(keys) - 1, -1, -1):
            found = await self._bucket.get(run_id, keys[place].path, keys[place].size)
            if found is not None and is_restart(run_id, keys[place], found.data):
                void = [one.path for one, two in pairwise(keys[: place + 1]) if one.seq != two.seq]
                await self._bucket.remove(run_id, void)
                return keys[place] if len(keys) == len(void) + 1 else None
        return None

    def forget(self, run_id: str) -> None:
        """Where the log ends is to be asked again."""
        with self._lock:
            self._ends.pop(run_id, None)


def _folder(run_id: str) -> str:
    return f"{encoded(run_id)}/log"
