"""The tables of `PostgresStore`: made and migrated by whoever opens the database first."""

from __future__ import annotations

from agentor.engine.store.postgrespool import Connection
from agentor.errors import UnsupportedLog

_LOCK = 0x6167656E746F72  # "agentor": whoever migrates holds it to the end of the transaction

# Each step makes the next version out of the one before; a step that was released never changes.
_STEPS = (
    (
        """CREATE TABLE {tables}agentor_runs (
            run_id text COLLATE "C" PRIMARY KEY,
            agent text, model text, status text NOT NULL DEFAULT 'running',
            created_at timestamptz, updated_at timestamptz,
            records bigint NOT NULL DEFAULT 0, turns bigint NOT NULL DEFAULT 0, cost double precision,
            epoch bigint NOT NULL DEFAULT 0,
            owner text, host text, pid bigint, machine text, since timestamptz, expires timestamptz
        ) WITH (fillfactor = 50)""",  # each append updates a row: in place, while its page has room
        """CREATE TABLE {tables}agentor_events (
            run_id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
            type text NOT NULL, at timestamptz, record json NOT NULL,
            PRIMARY KEY (run_id, seq)
        )""",
        """CREATE TABLE {tables}agentor_damaged (
            run_id text COLLATE "C" NOT NULL, repaired_at timestamptz NOT NULL,
            seq bigint NOT NULL, type text NOT NULL, at timestamptz, record json NOT NULL
        )""",
        """COMMENT ON COLUMN {tables}agentor_events.record IS
            'one event as JSON, byte for byte as it was appended; PostgreSQL extracts nothing from one that
            holds the character \\u0000, so its type and time have columns'""",
        """COMMENT ON COLUMN {tables}agentor_runs.expires IS
            'when the lease ends unless it is renewed; null: nobody holds the run'""",
    ),
    (
        """CREATE TABLE {tables}agentor_cancels (
            run_id text COLLATE "C" PRIMARY KEY, epoch bigint NOT NULL, reason text NOT NULL
        )""",
    ),
)


class Schema:
    """Where the tables are.

    Args:
        name: A PostgreSQL schema, made where it does not exist; None: the first one of the connection's
            `search_path` that has them, or may have them.
    """

    def __init__(self, name: str | None) -> None:
        if name is not None and not name.isidentifier():
            raise ValueError(f"schema= must be a plain identifier, not {name!r}")
        self._name = name
        self.tables = "" if name is None else f'"{name}".'

    async def prepare(self, connection: Connection) -> None:
        """Make or migrate the tables; nothing is done, and no right to do it needed, where they are there.

        Raises:
            UnsupportedLog: a newer agentor made them.
        """
        if await self._version(connection) == len(_STEPS):
            return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            version = await self._version(connection)  # another process may have been faster
            if version == 0:
                await self._begin(connection)
            for statement in (s for step in _STEPS[version:] for s in step):
                await connection.execute(statement.format(tables=self.tables))
            await connection.execute(f"UPDATE {self.tables}agentor_schema SET version = %s", [len(_STEPS)])

    async def _begin(self, connection: Connection) -> None:
        query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        if self._name is not None and not await _number(connection, query, [self._name]):
            await connection.execute(f'CREATE SCHEMA "{self._name}"')
        await connection.execute(f"CREATE TABLE {self.tables}agentor_schema (version integer NOT NULL)")
        await connection.execute(f"INSERT INTO {self.tables}agentor_schema VALUES (0)")

    async def _version(self, connection: Connection) -> int:
        # Asked of the catalog itself: `to_regclass` may remember that there was no such table.
        query = """SELECT count(*) FROM pg_class JOIN pg_namespace space ON space.oid = relnamespace
            WHERE relname = 'agentor_schema'
            AND CASE WHEN %s::text IS NULL THEN pg_table_is_visible(pg_class.oid) ELSE nspname = %s END"""
        if not await _number(connection, query, [self._name, self._name]):
            return 0
        table = f"{self.tables}agentor_schema"
        version = await _number(connection, f"SELECT max(version) FROM {table}", [])
        if version > len(_STEPS):
            raise UnsupportedLog(None, f"{table} is of version {version}, known is {len(_STEPS)}")
        return version


async def _number(connection: Connection, query: str, parameters: list[str | None]) -> int:
    row = await (await connection.execute(query, parameters)).fetchone()
    return int(row[0] or 0) if row else 0
