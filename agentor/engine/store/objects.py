"""`ObjectStore`: runs in S3, GCS or Azure, where the log's own objects keep two workers apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any  # options are obstore's

from agentor.engine.events import Event
from agentor.engine.store import objectslease
from agentor.engine.store.base import LEASE_S, ForkMore, fork_marker
from agentor.engine.store.follow import Pauses, followed
from agentor.engine.store.names import check_run_id, decoded_id, encoded
from agentor.engine.store.objectsbatch import End, sound
from agentor.engine.store.objectsbucket import Bucket, together
from agentor.engine.store.objectslease import Claim, ObjectLease, claimed
from agentor.engine.store.objectslog import TRIES, Logs
from agentor.engine.store.records import fresh, record, sound_records
from agentor.engine.store.summary import RunInfo, epoch_of
from agentor.engine.store.upkeep import AsyncUpkeep
from agentor.errors import Conflict, CorruptLog, Fenced, RunExists, RunNotFound, StoreError

_UNSURE = ".unsure"  # beside a run's folder: look whether it has records before you list it


class ObjectStore(AsyncUpkeep):
    """Runs in an object store: `s3://bucket/prefix`, `gs://...`, `az://...`; `memory://` for tests.

    Each batch of events is one object that is put only where none is, so the store itself decides which of
    two writers comes next. Whoever takes over a run puts an empty object with a higher epoch first: the old
    worker finds it in its place, whenever it wakes. No clock is needed for that; one tells only when a
    silent worker's lease is over, and it is the store's own.

    Appends without an epoch are compare-and-append too; they must not meet a `delete` of the same run.
    Nothing else should stand under the prefix.

    Args:
        url: Where; a folder (`file://`) is refused, `FileStore` is for that.
        lease_s: How long a worker that neither renews its lease nor is known to be dead keeps a run.
        options: obstore's (`endpoint`, keys, `client_options` ...); what is not given comes from the
            environment. `retry_config={"retry_timeout": timedelta(...)}` bounds the repeats of one request;
            they take about ten seconds by default.

    Raises:
        ValueError: the address is one of a folder.
        StoreError: obstore refuses the address or an option.
    """

    def __init__(self, url: str, *, lease_s: float = LEASE_S, **options: Any) -> None:
        self.lease_s = lease_s
        self._bucket = Bucket(url, options)
        self._logs = Logs(self._bucket)
        self._held: dict[str, int] = {}  # epochs of leases that this object gave out

    def __repr__(self) -> str:
        return f"ObjectStore({self._bucket.name!r})"

    # --- the log --------------------------------------------------------------------------------

    async def append_many(self, run_id: str, events: Sequence[Event], epoch: int | None = None) -> None:
        """Save a batch as one object; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            Fenced: the lease with this epoch is over.
            StoreError: the store does not answer; the same call may be repeated.
        """
        check_run_id(run_id)
        if epoch is not None and self._held.get(run_id) != epoch:
            await self._check_claim(run_id, epoch)
        end = self._logs.guess(run_id)
        if epoch is None and end is not None and not await self._logs.is_current(run_id, end):
            end = None  # nobody fences a writer without a lease: it looks where the log ends
        for _ in range(TRIES):
            try:
                if await self._append(run_id, events, epoch, end or await self._logs.end(run_id)):
                    return
            except (Conflict, RunExists, Fenced):
                if end is None:
                    raise
            end = None
        raise StoreError(run_id, f"{TRIES} other writers were faster; nothing was saved: try again")

    async def _append(self, run_id: str, events: Sequence[Event], epoch: int | None, end: End) -> bool:
        """Put what is new; False if another object stands in its place."""
        if epoch is not None and end.epoch > epoch:
            await self._check_claim(run_id, epoch)
            raise Fenced(run_id, f"this worker had epoch {epoch}, its log names epoch {end.epoch}")
        repeated = [e.seq for e in events if e.seq is not None and e.seq < end.seq]
        stored = await self.load_from(run_id, min(repeated)) if repeated else []
        known = {e.seq or 0: record(e) for e in stored}
        new = [event for event, _ in fresh(run_id, events, end.seq, known)]
        named = epoch if epoch is not None else max(end.epoch, epoch_of(new))
        return not new or await self._logs.put(run_id, end, new, named)

    async def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on; only the objects that hold them are read.

        Raises:
            CorruptLog: an object is damaged, or missing.
        """
        return await self._logs.load(run_id, seq)

    def follow(self, run_id: str, from_seq: int = 0) -> AsyncIterator[Event]:
        """As `AsyncUpkeep.follow`; one request every two seconds while nothing happens."""
        return followed(self._access(), run_id, from_seq, wait=Pauses(0.25, 2.0))

    # --- many runs ------------------------------------------------------------------------------

    async def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        folders, objects = await self._bucket.top()
        runs = {name: decoded_id(name) for name in folders}
        runs = {name: run_id for name, run_id in runs.items() if encoded(run_id) == name}
        unsure = [runs[name] for name in {o.removesuffix(_UNSURE) for o in objects} if name in runs]
        hollow = await together(partial(self._is_hollow, run_id) for run_id in unsure)
        gone = {run_id for run_id, is_hollow in zip(unsure, hollow, strict=True) if is_hollow}
        return sorted(set(runs.values()) - gone)

    async def _is_hollow(self, run_id: str) -> bool:
        with suppress(CorruptLog):
            return not (await self._logs.end(run_id)).seq
        return False

    async def describe(self, run_ids: Sequence[str] | None = None) -> list[RunInfo]:
        """Each run at a glance: two requests a run."""
        wanted = await self.list_runs() if run_ids is None else run_ids
        infos = await together(partial(self._info, run_id) for run_id in wanted)
        return [info for info in infos if info.records != 0]

    async def _info(self, run_id: str) -> RunInfo:
        try:
            return (await self._logs.end(run_id)).info
        except CorruptLog:
            return RunInfo(run_id=run_id, status="corrupt", records=None)

    async def fork(self, src: str, dst: str, at: int | None = None, more: ForkMore | None = None) -> None:
        """Copy a run up to record `at` (all of it where None), marker included, as one object.

        Raises:
            RunNotFound, RunExists, StoreError: as named.
        """
        check_run_id(dst)
        parent = await self.load_from(src, 0)
        if not parent:
            raise RunNotFound(src, repr(self))
        marker = fork_marker(src, parent, at, more)
        for _ in range(TRIES):
            end = await self._logs.end(dst)
            if end.seq:
                raise RunExists(dst)
            if await self._logs.put(dst, end, [*parent[: marker.seq], marker], end.epoch):
                return
        raise StoreError(dst, f"{TRIES} other writers were faster; nothing was saved: try again")

    # --- removing and mending -------------------------------------------------------------------

    async def delete(self, run_id: str, epoch: int | None = None) -> None:
        """Remove a run with all that was set aside of it; one object's write makes it gone for everybody.

        Where a worker lost its lease on the run, a few empty objects stay: they keep it from writing.

        Raises:
            RunNotFound: no such run.
            RunBusy: somebody holds it, who is not the caller with this `epoch`.
        """
        if not await self._logs.keys(run_id):
            raise RunNotFound(run_id, repr(self))
        async with self._alone(run_id, epoch, "delete") as mine:
            gone = await self._is_hollow(run_id)
            if not gone:
                await self._mark_unsure(run_id)
                await self._logs.restart(run_id, mine, [])
            lone = await self._logs.sweep(run_id)
            logs = {key.path for key in await self._logs.keys(run_id)}
            rest = await self._bucket.below(run_id, encoded(run_id))
            await self._bucket.remove(run_id, [each.path for each in rest if each.path not in logs])
            if lone is not None:  # nobody ever lost the run: no place in it needs guarding
                await self._bucket.remove(run_id, [lone.path])
                if not await self._bucket.has_folder(run_id, encoded(run_id)):
                    await self._bucket.remove(run_id, [encoded(run_id) + _UNSURE])
            self._logs.forget(run_id)
        if gone:
            raise RunNotFound(run_id, repr(self))

    async def repair(self, run_id: str, upto: int | None = None) -> str:
        """Cut a log behind record `upto`; its objects as they were are kept in a folder beside it.

        Args:
            upto: None: the last record before the damage.

        Returns:
            Where they are kept.

        Raises:
            RunNotFound, RunBusy: as `delete`.
            ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
        """
        if await self._is_hollow(run_id):
            raise RunNotFound(run_id, repr(self))
        async with self._alone(run_id, None, "repair") as mine:
            keys = await self._logs.keys(run_id)
            objects = await self._logs.fetch(run_id, keys) or []
            events, is_sound = sound(run_id, objects)
            rows = [(event.seq or 0, record(event)) for event in events]
            kept = sound_records(run_id, rows if is_sound else [*rows, (-1, "")], upto)
            aside = f"{encoded(run_id)}/damaged-{keys[-1].index + 1:08d}"
            for key, data in objects:
                await self._bucket.put(run_id, f"{aside}/{key.path.rpartition('/')[2]}", data)
            await self._logs.restart(run_id, mine, kept)
            await self._logs.sweep(run_id)
        return f"{self._bucket.name}/{aside}"

    async def _mark_unsure(self, run_id: str) -> None:
        """Before its folder can be one without records."""
        await self._bucket.put(run_id, encoded(run_id) + _UNSURE, b"")

    # --- leases ---------------------------------------------------------------------------------

    async def lease(self, run_id: str, owner: str, ttl_s: float) -> ObjectLease:
        """Become the run's only writer until the lease is given back, or not renewed for `ttl_s` seconds.

        Raises:
            RunBusy: another worker holds it.
        """
        check_run_id(run_id)
        for _ in range(TRIES):
            before = await objectslease.look(self._bucket, run_id)
            await self._check_free(run_id, before)
            try:
                end = await self._logs.end(run_id)
            except CorruptLog:
                end = None
            epoch = max(before.holder.epoch, end.epoch if end else 0) + 1
            claim = replace(claimed(epoch, owner, ttl_s), version=before.version)
            mine = await objectslease.store(self._bucket, run_id, claim)
            if mine is not None:
                if end is not None:  # a damaged log takes nothing from anybody
                    await self._fence(run_id, before, end, mine)
                self._held[run_id] = epoch
                return ObjectLease(self._bucket, run_id, mine, partial(self._over, run_id, epoch))
        raise StoreError(run_id, f"{TRIES} other workers were faster; nothing was changed: try again")

    async def request_cancel(self, run_id: str, reason: str) -> None:
        """Ask whoever has the run now to stop.

        Raises:
            RunNotFound: no such run.
            StoreError: the store does not answer.
        """
        if await self._is_hollow(run_id):
            raise RunNotFound(run_id, repr(self))
        claim = await objectslease.look(self._bucket, run_id)
        await objectslease.request(self._bucket, run_id, claim.holder.epoch, reason)

    async def cancel_requested(self, run_id: str, epoch: int) -> str | None:
        """Why the holder with this epoch is asked to stop; None where it is not. One request."""
        return await objectslease.requested(self._bucket, run_id, epoch)

    async def _check_free(self, run_id: str, claim: Claim) -> None:
        holder = claim.holder
        if holder.expires is None or holder.is_dead():
            return
        holder.check_free(run_id, await self._bucket.now(run_id))

    async def _fence(self, run_id: str, before: Claim, end: End, mine: Claim) -> None:
        """Put an empty object where the worker before would write, unless it gave its lease back."""
        epoch = mine.holder.epoch
        if before.holder.expires is None and (before.version is not None or not end.epoch):
            return
        try:
            if not end.seq:
                await self._mark_unsure(run_id)
            while not await self._logs.put(run_id, end, [], epoch):
                end = await self._logs.end(run_id)  # the old worker was faster, or a newer one
                if end.epoch > epoch:
                    raise (await objectslease.look(self._bucket, run_id)).holder.busy(run_id)
        except StoreError:
            with suppress(StoreError):  # over, and not given back: the next one has to put that object
                over = replace(mine, ttl_s=-objectslease.RESOLUTION_S)
                await objectslease.store(self._bucket, run_id, over)
            raise

    async def _check_claim(self, run_id: str, epoch: int) -> None:
        holder = (await objectslease.look(self._bucket, run_id)).holder
        holder.check_held(run_id, epoch)

    def _over(self, run_id: str, epoch: int) -> None:
        if self._held.get(run_id) == epoch:
            del self._held[run_id]

    @asynccontextmanager
    async def _alone(self, run_id: str, epoch: int | None, owner: str) -> AsyncIterator[int]:
        """The caller's lease, or one of our own."""
        holder = (await objectslease.look(self._bucket, run_id)).holder
        if epoch is not None and holder.epoch == epoch and holder.expires is not None:
            yield epoch
            return
        lease = await self.lease(run_id, owner, self.lease_s)
        try:
            yield lease.epoch
        finally:
            await lease.release()
