"""`PostgresStore` on a real server: the conformance suite, and what it promises besides."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers.postgres import PgBouncer, PostgresServer, postgres_or_skip

from agentor import MemoryStore
from agentor.engine.store.postgres import PostgresStore
from agentor.engine.store.records import record
from agentor.errors import Conflict, Fenced, RunBusy, StoreError, UnsupportedLog
from agentor.testing.conformance import StoreConformance
from agentor.testing.samples import every_kind, result, whole_run
from agentor.testing.settled import Settled


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = postgres_or_skip(fsync="off")
    yield server
    server.close()


@pytest.fixture(scope="module")
def bouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    if shutil.which("pgbouncer") is None:
        pytest.skip("pgbouncer is not installed")
    bouncer = PgBouncer(server)
    yield bouncer
    bouncer.close()


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture
def store(dsn: str) -> Settled:
    return Settled(PostgresStore(dsn))


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def open_store(self, dsn: str) -> Callable[[], Any]:
        return functools.partial(PostgresStore, dsn)


class TestPostgresStoreBehindAPooler(StoreConformance):
    @pytest.fixture
    def open_store(self, bouncer: PgBouncer, dsn: str) -> Callable[[], Any]:
        return functools.partial(PostgresStore, bouncer.dsn(dsn.rpartition("/")[2]))


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# --- the tables ---------------------------------------------------------------------------------


def test_plain_sql_gets_each_record_as_it_was_appended(
    server: PostgresServer, dsn: str, store: Settled
) -> None:
    events = every_kind()
    store.append_many("r", events)
    texts = server.sql(dsn, "SELECT record::text FROM agentor_events WHERE run_id = 'r' ORDER BY seq")
    assert [text for (text,) in texts] == [record(event) for event in events]
    kinds = server.sql(dsn, "SELECT type, extract(epoch FROM at)::float8 FROM agentor_events ORDER BY seq")
    assert kinds == [(event.type, event.at) for event in events]
    turns = "SELECT record->'turn' FROM agentor_events WHERE seq = 5"
    assert server.sql(dsn, turns) == [(1,)]
    when = server.sql(dsn, "SELECT status, created_at = to_timestamp(1e9) FROM agentor_runs")
    assert when == [("completed", True)]


def test_sixteen_processes_that_open_an_empty_database_at_once_all_can(
    server: PostgresServer, dsn: str
) -> None:
    code = """if True:
        import asyncio, os, sys
        from agentor.engine.store.postgres import PostgresStore
        from agentor.testing.samples import result
        gate, opened = os.pipe()
        children = []
        for n in range(16):
            if (pid := os.fork()) == 0:
                os.close(opened)
                os.read(gate, 1)
                asyncio.run(PostgresStore(sys.argv[1]).append(f"r{n}", result(0)))
                os._exit(0)
            children.append(pid)
        os.close(opened)
        print([os.waitpid(pid, 0)[1] for pid in children])
    """
    assert python(code, dsn).communicate()[0] == f"{[0] * 16}\n"
    assert server.sql(dsn, "SELECT version FROM agentor_schema") == [(2,)]
    assert len(Settled(PostgresStore(dsn)).list_runs()) == 16


def test_a_role_that_may_make_no_table_works_where_they_are(server: PostgresServer, dsn: str) -> None:
    role = f"plain_{dsn.rpartition('_')[2]}"
    server.sql(dsn, f"CREATE ROLE {role} LOGIN")
    plain = dsn.replace("postgres:", f"{role}:")
    with pytest.raises(StoreError, match="permission denied for schema public"):
        Settled(PostgresStore(plain)).list_runs()
    Settled(PostgresStore(dsn)).append("r", result(0))
    server.sql(dsn, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    store = Settled(PostgresStore(plain))
    store.append("r", result(1))
    with store.leased("r", "ann") as epoch:
        store.append_many("r", [result(2)], epoch)
    assert len(store.load("r")) == 3


def test_tables_of_a_newer_version_are_refused(server: PostgresServer, dsn: str, store: Settled) -> None:
    store.append("r", result(0))
    server.sql(dsn, "UPDATE agentor_schema SET version = 99")
    with pytest.raises(UnsupportedLog, match="version 99"):
        Settled(PostgresStore(dsn)).load("r")


def test_a_schema_of_its_own_keeps_runs_apart(server: PostgresServer, dsn: str, store: Settled) -> None:
    store.append("r", result(0))
    other = Settled(PostgresStore(dsn, schema="team_b"))
    assert other.list_runs() == []
    other.append_many("r", [result(0, "theirs"), result(1)])
    assert server.sql(dsn, "SELECT count(*) FROM team_b.agentor_events") == [(2,)]
    assert len(store.load("r")) == 1
    with pytest.raises(ValueError, match="identifier"):
        PostgresStore(dsn, schema='x"; DROP')


def test_a_commit_is_durable_also_where_the_database_would_not_wait(server: PostgresServer, dsn: str) -> None:
    Settled(PostgresStore(dsn)).list_runs()
    server.sql(dsn, f"ALTER DATABASE {dsn.rpartition('/')[2]} SET synchronous_commit = off")
    server.sql(dsn, "CREATE TABLE seen (value text)")
    body = "BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END"
    server.sql(
        dsn,
        f"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS '{body.replace(chr(39), chr(39) * 2)}'",
    )
    server.sql(
        dsn, "CREATE TRIGGER note BEFORE INSERT ON agentor_events FOR EACH ROW EXECUTE FUNCTION note()"
    )
    Settled(PostgresStore(dsn)).append("r", result(0))
    assert server.sql(dsn, "SELECT value FROM seen") == [("on",)]


# --- groups and leases --------------------------------------------------------------------------


def test_a_group_is_one_transaction_and_takes_a_run_twice_in_order(
    server: PostgresServer, dsn: str, store: Settled
) -> None:
    writes: list[Any] = [(f"r{n}", [result(0), result(1)], None) for n in range(50)]
    writes += [("r7", [result(2)], None), ("r7", [result(2, "other")], None), ("r7", [result(3)], None)]
    outcomes = store.append_group(writes)
    assert [type(o) for o in outcomes if o is not None] == [Conflict]
    assert [e.result for e in store.load("r7")] == ["x"] * 4
    assert server.sql(dsn, "SELECT count(DISTINCT xmin::text), count(*) FROM agentor_events") == [(1, 102)]


def test_a_value_that_postgres_cannot_take_spoils_no_other_write_of_its_group(store: Settled) -> None:
    odd = result(0)
    object.__setattr__(odd, "at", 1e18)  # no timestamp
    outcomes = store.append_group([("a", [result(0)], None), ("b", [odd], None), ("c", [result(0)], None)])
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreError, type(None)]
    assert outcomes[1].run_id == "b"
    assert store.list_runs() == ["a", "c"]


def test_a_lease_ends_by_the_databases_clock_and_then_passes_on(
    server: PostgresServer, dsn: str, store: Settled
) -> None:
    old = store.lease("r", "ann", 30.0)
    store.append_many("r", [result(0)], old.epoch)
    with pytest.raises(RunBusy, match="held by ann") as caught:
        store.lease("r", "bob", 30.0)
    assert 29 < caught.value.expires - caught.value.since < 31
    server.sql(dsn, "UPDATE agentor_runs SET expires = clock_timestamp() - interval '1 ms'")
    store.append_many("r", [result(1)], old.epoch)  # nobody has taken it over yet
    old.renew()
    server.sql(dsn, "UPDATE agentor_runs SET expires = clock_timestamp() - interval '1 ms'")
    new = store.lease("r", "bob", 30.0)
    for act in (lambda: store.append_many("r", [result(2)], old.epoch), old.renew):
        with pytest.raises(Fenced, match=r"now bob .* has epoch 2"):
            act()
    old.release()  # it is not the old one's any more
    store.append_many("r", [result(2)], new.epoch)
    new.release()
    with pytest.raises(Fenced, match="given back"):
        store.append_many("r", [result(3)], new.epoch)
    assert len(store.load("r")) == 3


def test_the_run_of_a_killed_process_is_free_at_once(dsn: str, store: Settled) -> None:
    code = """if True:
        import asyncio, sys
        from agentor.engine.store.postgres import PostgresStore
        print(asyncio.run(PostgresStore(sys.argv[1]).lease("r", "dead", 3600.0)).epoch, flush=True)
        sys.stdin.read()
    """
    with python(code, dsn) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(RunBusy, match=f"pid {holder.pid} "):
            store.lease("r", "ann", 30.0)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert store.lease("r", "ann", 30.0).epoch == 2


# --- one store, many loops, threads and processes -----------------------------------------------


def test_threads_with_loops_of_their_own_share_one_pool(server: PostgresServer, dsn: str) -> None:
    store = PostgresStore(dsn, connections=2)

    async def work(n: int) -> None:
        for seq in range(5):
            await store.append(f"r{n}", result(seq))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {info.records for info in asyncio.run(store.describe())} == {5}
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agentor' AND datname = %s"
    assert server.sql("postgres", query, dsn.rpartition("/")[2])[0][0] <= 2


def test_a_forked_child_leaves_its_parents_connections_alone_whatever_goes_on_there(
    server: PostgresServer, dsn: str
) -> None:
    code = """if True:
        import asyncio, gc, os, psycopg, sys, threading
        from agentor.engine.store.postgres import PostgresStore
        from agentor.testing.samples import result, whole_run
        store, events = PostgresStore(sys.argv[1]), whole_run()
        asyncio.run(store.append("r", events[0]))
        seen = []
        async def follow():
            async for event in store.follow("r"):
                seen.append(event)
        def busy():
            asyncio.run(store.append_many("r", events[1:]))
        works = [threading.Thread(target=lambda: asyncio.run(follow())), threading.Thread(target=busy)]
        other = psycopg.connect(sys.argv[1])
        other.execute("SELECT FROM agentor_runs FOR UPDATE")
        for work in works:
            work.start()
        for state in ("query LIKE 'LISTEN%'", "wait_event_type = 'Lock'"):
            query = f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {state}"
            while not (waiting := other.execute(query).fetchone()):
                other.execute("SELECT pg_stat_clear_snapshot()")
        if (child := os.fork()) == 0:
            asyncio.run(store.append("c", result(0)))
            asyncio.run(store.aclose())
            del store
            for inherited in gc.get_objects():
                if isinstance(inherited, psycopg.AsyncConnection):
                    inherited.pgconn.finish()  # says goodbye to the server, as collecting it may
            sys.exit()  # with all of an interpreter's cleaning up
        assert os.waitpid(child, 0)[1] == 0
        other.close()
        for work in works:
            work.join()
        assert seen == events
        print(waiting[0])
    """
    Settled(PostgresStore(dsn)).list_runs()
    server.sql(dsn, "CREATE TABLE pids (pid int)")
    body = "BEGIN INSERT INTO pids VALUES (pg_backend_pid()); RETURN NEW; END"
    server.sql(dsn, f"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS '{body}'")
    server.sql(
        dsn, "CREATE TRIGGER note BEFORE INSERT ON agentor_events FOR EACH ROW EXECUTE FUNCTION note()"
    )
    process = python(code, dsn)
    waiting, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    first, childs, *rest = (pid for (pid,) in server.sql(dsn, "SELECT pid FROM pids"))
    assert childs != first
    assert set(rest) == {int(waiting)}  # what was under way at the fork was neither cut nor done again
    assert "Error" not in err


# --- following ----------------------------------------------------------------------------------

_LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'"


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # another process's state can only be looked at


async def test_a_follower_hears_of_an_append_at_once_and_leaves_no_connection(
    server: PostgresServer, dsn: str
) -> None:
    reader, writer, name = PostgresStore(dsn), PostgresStore(dsn), dsn.rpartition("/")[2]
    await writer.append("r", result(0))
    got: asyncio.Queue[Any] = asyncio.Queue()

    async def follow() -> None:
        async for event in reader.follow("r"):
            got.put_nowait(event)

    follower = asyncio.create_task(follow())
    await _until(lambda: server.sql("postgres", _LISTENING, name) == [(1,)])
    await got.get()
    loop, delays = asyncio.get_running_loop(), []
    for seq in range(1, 30):
        began = loop.time()
        await writer.append("r", result(seq))
        assert (await got.get()).seq == seq
        delays.append(loop.time() - began)
    assert sorted(delays)[15] < 0.05
    server.cut_connections(dsn)
    await writer.append("r", result(30))
    assert (await got.get()).seq == 30  # by looking
    await _until(lambda: server.sql("postgres", _LISTENING, name) == [(1,)])  # it listens again
    follower.cancel()
    await asyncio.wait({follower})
    await _until(lambda: server.sql("postgres", _LISTENING, name) == [(0,)])


async def test_a_follower_behind_a_pooler_looks_by_itself(
    server: PostgresServer, bouncer: PgBouncer, dsn: str
) -> None:
    name = dsn.rpartition("/")[2]
    reader, writer = PostgresStore(bouncer.dsn(name)), PostgresStore(dsn)
    events = whole_run()
    await writer.append("r", events[0])
    seen = []
    async for event in reader.follow("r"):
        seen.append(event)
        if len(seen) < len(events):
            await writer.append("r", events[len(seen)])
    assert seen == events
    assert server.sql("postgres", _LISTENING, name) == [(0,)]


# --- upkeep, errors -----------------------------------------------------------------------------


async def test_runs_go_to_files_and_other_stores_and_are_pruned(dsn: str, tmp_path: Path) -> None:
    async with PostgresStore(dsn) as store:
        await store.append_many("r", whole_run())
        await store.append("open", result(0))
        memory = MemoryStore()
        assert await store.copy_run("r", memory, "copy") == "copy"
        assert memory.load("copy") == whole_run()
        assert await store.export("r", tmp_path / "r.jsonl") == len(whole_run())
        assert await store.import_run(tmp_path / "r.jsonl", "again") == "again"
        assert (await store.verify("again")).records == len(whole_run())
        lease = await store.lease("again", "ann", 30.0)
        gone = await store.prune(older_than=timedelta(days=1), dry_run=False)
        assert [info.run_id for info in gone] == ["r"]
        await lease.release()
        assert await store.list_runs() == ["again", "open"]


async def test_no_message_shows_the_password() -> None:
    dsn = "postgresql://ann:secret-canary@127.0.0.1:1/runs"
    store = PostgresStore(dsn, timeout_s=0.2)
    with pytest.raises(StoreError, match=r"ann@127\.0\.0\.1:1/runs") as caught:
        await store.append("r", result(0))
    assert caught.value.run_id == "r"
    assert "refused" in str(caught.value)
    with pytest.raises(ValueError, match="no PostgreSQL connection string") as refused:
        PostgresStore("postgresql://ann:secret-canary%zz@127.0.0.1/runs")
    for shown in (repr(store), str(caught.value), repr(caught.value), str(refused.value)):
        assert "canary" not in shown


def test_a_missing_driver_names_the_extra() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import agentor.engine.store.postgres"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert "pip install 'agentor[postgres]'" in done.stderr
