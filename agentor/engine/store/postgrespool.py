"""Work on one PostgreSQL database: one pool per process, healed, bounded in time, safe over fork."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar  # Any: a query's parameters, a row's columns
from weakref import WeakSet, finalize

from agentor.engine.threads import background
from agentor.errors import MissingExtra, StoreError

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
    from psycopg_pool import AsyncConnectionPool, PoolTimeout
except ImportError:
    raise MissingExtra("psycopg", "postgres") from None

T = TypeVar("T")
Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
DatabaseError = psycopg.Error

_SLICE_S = 1.0  # how long one look for a connection takes: each one begins a new attempt to connect
_PROBE_S = 2  # to find out why there is no connection
_PAUSES_S = (0.02, 1.0)  # between two attempts: the first, the longest
_LATE_S = 1.0  # the server's own timeout comes first: it leaves the connection usable

# A commit is on the medium when it returns, also where the database's default is otherwise. A worker that
# is stopped in the middle of a transaction must not keep its rows locked.
_GUARD = """
    SELECT set_config('statement_timeout', %s, true),
           set_config('idle_in_transaction_session_timeout', %s, true),
           CASE WHEN current_setting('synchronous_commit') = 'off'
                THEN set_config('synchronous_commit', 'on', true) END
"""

# A forked child inherits connections, and coroutines in the middle of work on them. Whatever collects
# those would speak on the parent's sockets (a rollback, a goodbye), and take them out of the parent's
# event loop. So the child's copies of the sockets become the null device, at once.
_open: WeakSet[Connection] = WeakSet()
_inherited: list[object] = []  # kept, so that nothing is collected before the child ends


def _let_go() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in list(_open):
        with suppress(psycopg.Error, OSError):
            os.dup2(null, connection.pgconn.socket, inheritable=False)
        _inherited.append(connection)
    os.close(null)
    _open.clear()


os.register_at_fork(after_in_child=_let_go)


class _Pool:
    """The connections of this process."""

    def __init__(self, dsn: str, size: int, settings: dict[str, Any]) -> None:
        self.pid, self.loop = os.getpid(), asyncio.get_running_loop()
        self.gate, self.is_ready = asyncio.Lock(), False
        self.connections: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            kwargs=settings,
            min_size=0,
            max_size=size,
            open=False,
            name="agentor",
            configure=_configure,
            reconnect_timeout=0.0,  # an attempt per request: its pauses would outlast the outage
        )


class Transaction:
    """Statements of one transaction, sent without waiting for the ones before."""

    def __init__(self, connection: Connection, pipeline: psycopg.AsyncPipeline) -> None:
        self._connection, self._pipeline = connection, pipeline

    async def execute(self, query: str, parameters: Sequence[object]) -> None:
        """Send a statement; if it fails, so does what waits next."""
        await self._connection.execute(query, parameters)

    async def fetch(self, query: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows of a query, waited for."""
        cursor = await self._connection.execute(query, parameters)
        # Not a flush, which the fetch would send: after one the server does not count how long the
        # transaction is idle, and a worker that is stopped here would keep its rows for ever.
        await self._pipeline.sync()
        return await cursor.fetchall()


class Connections:
    """Transactions on one database, all of them on agentor's own event loop.

    Each one is tried again on a fresh connection while the server is away, for `timeout_s` seconds in
    all. So work must bear to be done twice: its first commit may have come through unheard.

    Args:
        dsn: A connection string or URL, as libpq takes it.
        prepare: Called with the first connection, before any other work.
    """

    def __init__(
        self, dsn: str, *, timeout_s: float, size: int, prepare: Callable[[Connection], Awaitable[None]]
    ) -> None:
        self._dsn, self._timeout_s, self._size, self._prepare = dsn, timeout_s, size, prepare
        about = _parsed(dsn)
        self._password = str(about.get("password") or "")
        where = [str(about.get(name) or "") for name in ("user", "host", "port", "dbname")]
        self.where = "{}@{}:{}/{}".format(*where)
        self._settings: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": None,  # a pooler may give each transaction another session
            "client_encoding": "UTF8",
            "connect_timeout": about.get("connect_timeout") or max(2, round(timeout_s / 2)),
            "application_name": about.get("application_name") or "agentor",
        }
        self._pool: _Pool | None = None
        self._end: finalize[Any, Any] | None = None
        self._answers = True  # False: the last work found no server; the next waits less for it

    # --- work -----------------------------------------------------------------------------------

    async def read(
        self, run_id: str | None, query: str, parameters: Sequence[object]
    ) -> list[tuple[Any, ...]]:
        """The rows of one query.

        Raises:
            StoreError: the server cannot.
        """

        async def rows(connection: Connection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(query, parameters)).fetchall()

        return await background.call(self._run(run_id, rows))

    async def write(self, run_id: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """What `work` returns, in one transaction, whole or not at all.

        Raises:
            StoreError: the server cannot.
        """

        async def transaction(connection: Connection) -> T:
            limits = [f"{round(1000 * s)}" for s in (self._timeout_s, self._timeout_s / 2)]
            async with connection.pipeline() as pipeline, connection.transaction():
                await connection.execute(_GUARD, limits)
                return await work(Transaction(connection, pipeline))

        return await background.call(self._run(run_id, transaction))

    async def _run(self, run_id: str | None, work: Callable[[Connection], Awaitable[T]]) -> T:
        started = time.monotonic()
        until = started + (self._timeout_s if self._answers else min(_SLICE_S, self._timeout_s))
        pause_s, attempt = _PAUSES_S[0], 0
        while True:
            try:
                async with self._borrowed(until) as connection:
                    result = await work(connection)
                self._answers = True
                return result
            except psycopg.Error as error:
                self._answers = not _is_outage(error)
                is_over = time.monotonic() + pause_s >= until
                if is_over or not (_is_outage(error) or _may_pass(error, attempt)):
                    raise await self._failure(run_id, error, time.monotonic() - started) from error
            await asyncio.sleep(pause_s)
            pause_s, attempt = min(2 * pause_s, _PAUSES_S[1]), attempt + 1

    @asynccontextmanager
    async def _borrowed(self, until: float) -> AsyncIterator[Connection]:
        pool = await self._opened()
        while True:
            remaining_s = max(0.01, until - time.monotonic())
            connection = await pool.connections.getconn(min(_SLICE_S, remaining_s))
            if _is_alive(connection):
                break
            await _returned(pool, connection)
        late = pool.loop.call_later(until - time.monotonic() + _LATE_S, _cut, connection)
        try:
            if not pool.is_ready:
                async with pool.gate:
                    if not pool.is_ready:
                        await self._prepare(connection)
                        pool.is_ready = True
            yield connection
        finally:
            late.cancel()
            await _returned(pool, connection)

    async def _failure(self, run_id: str | None, error: psycopg.Error, after_s: float) -> StoreError:
        if isinstance(error, PoolTimeout):
            try:
                await (await self.connect(_PROBE_S)).close()
                text = f"all {self._size} connections of this process were in use for {after_s:.1f} s"
            except psycopg.Error as cause:
                text = str(cause)
        elif after_s >= self._timeout_s:
            text = f"no answer within {after_s:.1f} s ({error})"
        else:
            text = str(error)
        text = " ".join(text.split())
        if self._password:
            text = text.replace(self._password, "***")
        return StoreError(
            run_id,
            f"PostgreSQL at {self.where}: {text}; what was being saved may or may not be, and doing it again "
            "is safe: see to the server, then resume the run",
        )

    # --- connections ----------------------------------------------------------------------------

    async def connect(self, timeout_s: int | None = None) -> Connection:
        """A connection of one's own, outside the pool.

        Raises:
            DatabaseError: the server cannot.
        """
        settings = {**self._settings, **({} if timeout_s is None else {"connect_timeout": timeout_s})}
        connection = await psycopg.AsyncConnection.connect(self._dsn, **settings)
        _open.add(connection)
        return connection

    async def _opened(self) -> _Pool:
        pool = self._pool
        if pool is not None and pool.pid != os.getpid():
            _inherited.append(pool)
            pool = self._pool = None
        if pool is None:
            pool = self._pool = _Pool(self._dsn, self._size, self._settings)
            # It also keeps the pool's tasks, which nothing else refers to, from being collected.
            self._end = finalize(self, _abandon, pool)
            await pool.connections.open()
        return pool

    async def close(self) -> None:
        """Close this process's connections; the next work opens others."""
        await background.call(self._close())

    async def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._end is not None:
            self._end.detach()
            if pool.pid == os.getpid():
                await pool.connections.close()
            else:
                _inherited.append(pool)


def _abandon(pool: _Pool) -> None:
    """Close the connections of a store that is gone; whoever did that may be on any thread."""
    if pool.pid != os.getpid():
        _inherited.append(pool)
        return
    with suppress(RuntimeError):  # the loop is closed, and they with it
        pool.loop.call_soon_threadsafe(lambda: pool.loop.create_task(pool.connections.close()))


async def _configure(connection: Connection) -> None:
    _open.add(connection)
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)


def _parsed(dsn: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq's own words repeat what it could not read, which may be the password
        raise ValueError(
            "dsn= is no PostgreSQL connection string or URL (not shown: it may hold a password)"
        ) from None


def _is_outage(error: psycopg.Error) -> bool:
    """True if the server, or the way to it, is gone or not there yet."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "53300", "25P03")


def is_about_data(error: BaseException | None) -> bool:
    """True if PostgreSQL refused a value, or the size of all of them."""
    return isinstance(error, psycopg.Error) and (
        isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith("54")
    )


def _may_pass(error: psycopg.Error, attempt: int) -> bool:
    """True if the same transaction may well succeed now: others were in its way."""
    return error.sqlstate in ("40001", "40P01") or (error.sqlstate == "23505" and attempt == 0)


def _is_alive(connection: Connection) -> bool:
    """False if the server has ended this idle connection; without asking it.

    Such a connection has the server's last words waiting to be read, and its end behind them.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    try:
        while poll.poll(0):
            connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return True


async def _returned(pool: _Pool, connection: Connection) -> None:
    """Give a connection back, closed where it is in the middle of something."""
    status = connection.pgconn.transaction_status
    with suppress(psycopg.Error):
        if status == TransactionStatus.INERROR:
            await connection.rollback()
        elif status != TransactionStatus.IDLE:
            await connection.close()
    await pool.connections.putconn(connection)


def _cut(connection: Connection) -> None:
    """End a connection whose server does not answer, so that whoever waits for it fails."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as wire:
        wire.shutdown(socket.SHUT_RDWR)
