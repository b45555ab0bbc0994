"""`PostgresStore`: runs in a PostgreSQL database, for any number of workers on any number of machines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from agentor.engine.events import Event
from agentor.engine.store.base import LEASE_S, ForkMore, Write, fork_marker
from agentor.engine.store.follow import followed
from agentor.engine.store.holder import Holder
from agentor.engine.store.names import check_run_id
from agentor.engine.store.postgreslisten import Listener
from agentor.engine.store.postgrespool import Connections, Transaction, is_about_data
from agentor.engine.store.postgresschema import Schema
from agentor.engine.store.postgreswrite import INFO, Rows, info_of
from agentor.engine.store.records import events_of, record, sound_records
from agentor.engine.store.row import kept_aside, plain
from agentor.engine.store.summary import RunInfo, advanced
from agentor.engine.store.upkeep import AsyncUpkeep
from agentor.engine.threads import in_thread
from agentor.errors import Conflict, InvalidRunId, RunExists, RunNotFound, StoreError

_MANY = 200  # records: more are decoded on a thread of their own, and stop no event loop meanwhile


class PostgresStore(AsyncUpkeep):
    """Runs in the tables `agentor_runs` and `agentor_events`, which plain SQL can ask.

    Each append is one transaction that is durable when it returns, and checks the lease in it; appends
    of concurrent runs share one. A run is held under a lease by the database's clock, which its worker
    renews; once it has run out, or its worker's process is dead, another one may take the run, and the
    store refuses the old one's writes. Works behind a pooler that gives each transaction another
    session. While the server is away an operation is tried again for `timeout_s` seconds.

    Any event loop and thread may use one store, and so may a forked child. Connections are made on
    first use; `aclose`, or `async with`, closes them.

    Args:
        dsn: A connection string or URL, as libpq takes it; no message or repr shows its password.
        lease_s: How long a worker that neither renews its lease nor is known to be dead keeps a run.
        schema: The PostgreSQL schema of the tables; None: by the connection's `search_path`.
        connections: How many this process has at most; a follower needs one more.
        timeout_s: Seconds after which an operation that finds no server, or no answer, fails.

    Raises:
        ValueError: the dsn is none. All else shows at the first use:
        UnsupportedLog: a newer agentor made the tables.
        StoreError: PostgreSQL cannot do it.
    """

    def __init__(
        self,
        dsn: str,
        *,
        lease_s: float = LEASE_S,
        schema: str | None = None,
        connections: int = 4,
        timeout_s: float = 10.0,
    ) -> None:
        self.lease_s = lease_s
        where = Schema(schema)
        self._tables, self._rows = where.tables, Rows(where.tables)
        self._database = Connections(dsn, timeout_s=timeout_s, size=connections, prepare=where.prepare)
        self._listener = Listener(self._database.connect)

    def __repr__(self) -> str:
        return f"PostgresStore({self._database.where!r})"

    async def aclose(self) -> None:
        """Close this process's connections; the next use opens others."""
        await self._database.close()

    async def __aenter__(self) -> PostgresStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- the log --------------------------------------------------------------------------------

    async def append_many(self, run_id: str, events: Sequence[Event], epoch: int | None = None) -> None:
        """Save a batch in one transaction; equal events twice are one record.

        Raises:
            RunExists: seq 0 of a run that begins otherwise.
            Conflict: another record stands at a number, or one is skipped.
            Fenced: the lease with this epoch is over.
            StoreError: PostgreSQL cannot write; the same call may be repeated.
        """
        (outcome,) = await self.append_group([Write(run_id, events, epoch)])
        if outcome is not None:
            raise outcome

    async def append_group(self, writes: Sequence[Write]) -> list[Exception | None]:
        """Save the batches of many runs in one transaction; what each one came to, in their order."""
        attempt = [Write(*write) for write in writes]
        if not attempt:
            return []

        async def work(transaction: Transaction) -> list[Exception | None]:
            nonlocal attempt
            outcomes = await self._rows.append(transaction, attempt)
            attempt = [write for write, _ in outcomes]  # a second attempt keeps the numbers of the first
            return [refused for _, refused in outcomes]

        try:
            return await self._database.write(attempt[0].run_id, work)
        except StoreError as error:
            if len(attempt) > 1 and is_about_data(error.__cause__):  # of one: the others need not suffer
                return [outcome for write in attempt for outcome in await self.append_group([write])]
            return [_of_run(write.run_id, error) for write in attempt]

    async def load_from(self, run_id: str, seq: int) -> list[Event]:
        """The events from `seq` on.

        Raises:
            CorruptLog: a record is no event, or one is missing.
        """
        if not _is_id(run_id):
            return []
        query = f"SELECT seq, record::text FROM {self._tables}agentor_events"
        query += " WHERE run_id = %s AND seq >= %s ORDER BY seq"
        rows = await self._database.read(run_id, query, [run_id, seq])
        texts = [(int(number), str(text)) for number, text in rows]
        if len(texts) < _MANY:
            return events_of(run_id, texts, seq)
        return await in_thread(events_of, run_id, texts, seq)

    async def list_runs(self) -> list[str]:
        """The ids of all runs, sorted."""
        query = f"SELECT run_id FROM {self._tables}agentor_runs WHERE records > 0 ORDER BY run_id"
        return [run_id for (run_id,) in await self._database.read(None, query, [])]

    async def describe(self, run_ids: Sequence[str] | None = None) -> list[RunInfo]:
        """Each run at a glance."""
        query = f"SELECT {INFO} FROM {self._tables}agentor_runs WHERE records > 0"
        if run_ids is None:
            return [info_of(row) for row in await self._database.read(None, f"{query} ORDER BY run_id", [])]
        query += " AND run_id = ANY(%s::text[])"
        found = await self._database.read(None, query, [[run_id for run_id in run_ids if _is_id(run_id)]])
        infos = {row[0]: info_of(row) for row in found}
        return [infos[run_id] for run_id in run_ids if run_id in infos]

    async def follow(self, run_id: str, from_seq: int = 0) -> AsyncIterator[Event]:
        """The events from a number on, then each one as it is saved, until the run has ended.

        The server tells when there are new ones. Where it cannot (behind a pooler, or while that
        connection is cut), the follower looks by itself, every second at least.

        Raises:
            RunNotFound: no such run.
        """
        ear = self._listener.ear(run_id)
        try:
            async for event in followed(self._access(), run_id, from_seq, ear.wait):
                yield event
        finally:
            await ear.close()

    async def fork(self, src: str, dst: str, at: int | None = None, more: ForkMore | None = None) -> None:
        """Copy a run up to record `at` (all of it where None), marker included, in one transaction.

        Raises:
            RunNotFound, RunExists, StoreError: as named.
        """
        check_run_id(dst)
        parent = await self.load_from(src, 0)
        if not parent:
            raise RunNotFound(src, repr(self))
        marker = fork_marker(src, parent, at, more)
        cut = marker.seq or 0
        summary, text = advanced(RunInfo(run_id=dst), [*parent[:cut], marker]), record(marker)
        copy = f"INSERT INTO {self._tables}agentor_events SELECT %s, seq, type, at, record"
        copy += f" FROM {self._tables}agentor_events WHERE run_id = %s AND seq < %s"
        tried = False

        async def work(transaction: Transaction) -> None:
            nonlocal tried
            rows = await self._rows.lock(transaction, {src, dst}, [dst])
            row, source = rows[dst], rows[src]
            if tried and row.info == summary:
                return  # the first attempt came through unheard
            if row.info.records:
                raise RunExists(dst)
            if (source.info.records or 0) < cut:
                raise Conflict(dst, cut, f"run {src!r} was cut or removed meanwhile")
            tried = True
            await transaction.execute(copy, [dst, src, cut])
            await self._rows.save(transaction, [replace(row, info=summary, stored={cut: text}, new=[marker])])

        await self._database.write(dst, work)

    # --- removing and mending -------------------------------------------------------------------

    async def delete(self, run_id: str, epoch: int | None = None) -> None:
        """Remove a run with all that was set aside of it, in one transaction.

        Raises:
            RunNotFound: no such run.
            RunBusy: somebody holds it, who is not the caller with this `epoch`.
        """
        check_run_id(run_id)
        tried = False

        async def work(transaction: Transaction) -> None:
            nonlocal tried
            row = (await self._rows.lock(transaction, [run_id]))[run_id]
            if not row.info.records and not tried:
                raise RunNotFound(run_id, repr(self))
            row.holder.check_free(run_id, row.now or 0.0, epoch)
            tried = True
            for table in ("events", "damaged", "cancels"):
                query = f"DELETE FROM {self._tables}agentor_{table} WHERE run_id = %s"
                await transaction.execute(query, [run_id])
            # The row stays, empty: epochs go on counting, so a worker that sleeps is fenced all the same.
            await self._rows.save(transaction, [replace(row, info=RunInfo(run_id=run_id))])

        await self._database.write(run_id, work)

    async def repair(self, run_id: str, upto: int | None = None) -> str:
        """Cut a log behind record `upto`; its records as they were are kept in `agentor_damaged`.

        Args:
            upto: None: the last record before the damage.

        Returns:
            Where they are kept, as a query.

        Raises:
            RunNotFound, RunBusy: as `delete`.
            ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
        """
        check_run_id(run_id)
        events, damaged = f"{self._tables}agentor_events", f"{self._tables}agentor_damaged"
        when = f"to_timestamp({time.time():.3f})"  # also tells a second attempt that the first came through

        async def work(transaction: Transaction) -> None:
            row = (await self._rows.lock(transaction, [run_id]))[run_id]
            if not row.info.records:
                raise RunNotFound(run_id, repr(self))
            row.holder.check_free(run_id, row.now or 0.0)
            done = f"SELECT 1 FROM {damaged} WHERE run_id = %s AND repaired_at = {when} LIMIT 1"
            if await transaction.fetch(done, [run_id]):
                return
            query = f"SELECT seq, record::text FROM {events} WHERE run_id = %s ORDER BY seq"
            records = await transaction.fetch(query, [run_id])
            kept = sound_records(run_id, records, upto)
            aside = f"INSERT INTO {damaged} SELECT run_id, {when}, seq, type, at, record"
            aside += f" FROM {events} WHERE run_id = %s"
            await transaction.execute(aside, [run_id])
            cut = f"DELETE FROM {events} WHERE run_id = %s AND seq >= %s"
            await transaction.execute(cut, [run_id, len(kept)])
            await self._rows.save(transaction, [replace(row, info=advanced(RunInfo(run_id=run_id), kept))])

        await self._database.write(run_id, work)
        return f"{self._database.where}: {kept_aside(damaged, run_id, when)}"

    # --- leases ---------------------------------------------------------------------------------

    async def lease(self, run_id: str, owner: str, ttl_s: float) -> PostgresLease:
        """Become the run's only writer until the lease is given back, or not renewed for `ttl_s` seconds.

        Raises:
            RunBusy: another worker holds it.
            StoreError: PostgreSQL cannot write.
        """
        check_run_id(run_id)
        mine: Holder | None = None

        async def work(transaction: Transaction) -> int:
            nonlocal mine
            row = (await self._rows.lock(transaction, [run_id], [run_id]))[run_id]
            if mine is not None and row.holder == mine:
                return mine.epoch  # the first attempt came through unheard
            row.holder.check_free(run_id, row.now or 0.0)
            mine = Holder.here(row.holder.epoch + 1, plain(owner) or "", row.now or 0.0, ttl_s)
            await self._rows.hold(transaction, run_id, mine)
            return mine.epoch

        return PostgresLease(self, run_id, await self._database.write(run_id, work), ttl_s)

    async def request_cancel(self, run_id: str, reason: str) -> None:
        """Ask whoever has the run now to stop.

        Raises:
            RunNotFound: no such run.
            StoreError: PostgreSQL cannot write.
        """
        check_run_id(run_id)
        query = f"INSERT INTO {self._tables}agentor_cancels VALUES (%s, %s, %s) ON CONFLICT (run_id)"
        query += " DO UPDATE SET epoch = excluded.epoch, reason = excluded.reason"

        async def work(transaction: Transaction) -> None:
            row = (await self._rows.lock(transaction, [run_id]))[run_id]
            if not row.info.records:
                raise RunNotFound(run_id, repr(self))
            await transaction.execute(query, [run_id, row.holder.epoch, plain(reason) or ""])

        await self._database.write(run_id, work)

    async def cancel_requested(self, run_id: str, epoch: int) -> str | None:
        """Why the holder with this epoch is asked to stop; None where it is not."""
        query = f"SELECT reason FROM {self._tables}agentor_cancels WHERE run_id = %s AND epoch = %s"
        found = await self._database.read(run_id, query, [run_id, epoch])
        return str(found[0][0]) if found else None


class PostgresLease:
    """One holder's time on a run, by the database's clock."""

    def __init__(self, store: PostgresStore, run_id: str, epoch: int, ttl_s: float) -> None:
        self._store, self._run_id = store, run_id
        self.epoch, self.ttl_s = epoch, ttl_s

    async def renew(self) -> None:
        """Another `ttl_s` seconds from now on.

        Raises:
            Fenced: the run has another holder.
            StoreError: PostgreSQL cannot write.
        """

        async def work(transaction: Transaction) -> None:
            row = (await self._store._rows.lock(transaction, [self._run_id]))[self._run_id]
            row.holder.check_held(self._run_id, self.epoch)
            longer = replace(row.holder, expires=(row.now or 0.0) + self.ttl_s)
            await self._store._rows.hold(transaction, self._run_id, longer)

        await self._store._database.write(self._run_id, work)

    async def release(self) -> None:
        """Give it back; nothing happens where it is another one's already."""

        async def work(transaction: Transaction) -> None:
            row = (await self._store._rows.lock(transaction, [self._run_id]))[self._run_id]
            if row.holder.epoch == self.epoch:
                await self._store._rows.hold(transaction, self._run_id, replace(row.holder, expires=None))

        await self._store._database.write(self._run_id, work)


def _is_id(run_id: str) -> bool:
    try:
        check_run_id(run_id)
    except InvalidRunId:
        return False
    return True


def _of_run(run_id: str, error: StoreError) -> StoreError:
    own = StoreError(run_id, error.reason)
    own.__cause__ = error.__cause__
    return own
