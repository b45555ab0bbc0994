"""`PostgresStore` when the server goes away: what was acknowledged stays, no tool runs twice, and it heals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from servers.postgres import PostgresServer, postgres_or_skip
from servers.proxy import LossyProxy

from agentor import Agentor, function_tool
from agentor.engine.store.postgres import PostgresStore
from agentor.errors import StoreError
from agentor.testing import ScriptedModel, call
from agentor.testing.samples import result
from agentor.testing.settled import Settled, settle

TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = postgres_or_skip()
    yield server
    server.close()


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    return server.new_database()


class Charge:
    """An agent of three turns, whose second tool call meets with `accident`."""

    def __init__(self, dsn: str, accident: Callable[[], object], durability: Any, timeout_s: float) -> None:
        self.ran: list[int] = []

        @function_tool(on_crash="retry")
        def charge(n: int) -> str:
            self.ran.append(n)
            if n == 1:
                accident()
            return f"charged {n}"

        self.store = PostgresStore(dsn, timeout_s=timeout_s)
        model = ScriptedModel([*(call("charge", {"n": n}) for n in range(3)), "done"])
        self.agent = Agentor("a", model=model, tools=[charge], store=self.store, durability=durability)


@pytest.mark.parametrize("durability", ["strict", "best_effort"])
def test_a_run_goes_on_over_connections_that_are_cut(
    server: PostgresServer, dsn: str, durability: str
) -> None:
    charge = Charge(dsn, lambda: server.cut_connections(dsn), durability, 10.0)
    outcome = charge.agent.run("go", run_id="r")
    assert (outcome.status, outcome.durable, charge.ran) == ("completed", True, [0, 1, 2])
    assert settle(charge.store.load("r")) == outcome.events


@pytest.mark.parametrize("durability", ["strict", "best_effort"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_run_waits_for_a_server_that_restarts(
    server: PostgresServer, dsn: str, durability: str, how: int
) -> None:
    stopped, outcomes = threading.Event(), []

    def stop() -> None:
        server.stop(how)
        stopped.set()

    charge = Charge(dsn, stop, durability, 30.0)
    worker = threading.Thread(target=lambda: outcomes.append(charge.agent.run("go", run_id="r")))
    worker.start()
    assert stopped.wait(60)
    server.start()  # on this thread: the server ends with the thread that started it
    worker.join()
    (outcome,) = outcomes
    assert (outcome.status, outcome.durable, charge.ran) == ("completed", True, [0, 1, 2])
    assert settle(charge.store.load("r")) == outcome.events


def test_a_strict_run_stops_when_the_server_stays_away_and_resumes_later(
    server: PostgresServer, dsn: str
) -> None:
    charge = Charge(dsn, server.stop, "strict", TIMEOUT_S)
    try:
        with pytest.raises(StoreError, match=r"run 'r': PostgreSQL at .*; what was being saved") as caught:
            charge.agent.run("go", run_id="r")
    finally:
        server.start()
    assert "secret" not in str(caught.value)
    assert [e.type for e in settle(charge.store.load("r"))][-2:] == ["generation", "tool_call"]
    late = Charge(dsn, lambda: None, "strict", 10.0)
    server.sql(dsn, "UPDATE agentor_runs SET expires = clock_timestamp()")  # this process is not dead
    outcome = late.agent.resume("r")
    assert (outcome.status, outcome.final_output) == ("completed", "done")
    assert (charge.ran, late.ran) == ([0, 1], [1, 2])  # 1 had no saved result; 0 had, and runs no more


def test_a_best_effort_run_ends_without_its_server_and_its_log_is_a_prefix(
    server: PostgresServer, dsn: str
) -> None:
    charge = Charge(dsn, server.stop, "best_effort", TIMEOUT_S)
    began = time.monotonic()
    try:
        outcome = charge.agent.run("go", run_id="r")
    finally:
        server.start()
    assert (outcome.status, outcome.durable, charge.ran) == ("completed", False, [0, 1, 2])
    assert time.monotonic() - began < 30
    assert "PostgreSQL at" in outcome.store_errors[0]
    kept = settle(charge.store.load("r"))
    assert 0 < len(kept) < len(outcome.events)
    assert kept == outcome.events[: len(kept)]


def test_a_store_answers_again_as_soon_as_its_server_does(server: PostgresServer, dsn: str) -> None:
    store = Settled(PostgresStore(dsn, timeout_s=TIMEOUT_S))
    store.append("r", result(0))
    server.stop()
    for _ in range(3):
        with pytest.raises(StoreError):
            store.append("r", result(1))
    server.start()
    began = time.monotonic()
    store.append("r", result(1))
    assert time.monotonic() - began < 1.0
    assert len(store.load("r")) == 2


def test_a_server_that_hangs_fails_the_append_in_time(server: PostgresServer, dsn: str) -> None:
    store = Settled(PostgresStore(dsn, timeout_s=TIMEOUT_S))
    store.append("r", result(0))
    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'agentor'"
    backends = [pid for (pid,) in server.sql("postgres", query, dsn.rpartition("/")[2])]
    for pid in backends:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(StoreError, match="no answer within"):
            store.append("r", result(1))
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began < TIMEOUT_S + 3
    store.append("r", result(1))
    assert len(store.load("r")) == 2


def test_a_row_that_somebody_keeps_locked_fails_the_append_in_time(server: PostgresServer, dsn: str) -> None:
    store = Settled(PostgresStore(dsn, timeout_s=TIMEOUT_S))
    store.append("r", result(0))
    with psycopg.connect(dsn) as other:
        other.execute("SELECT * FROM agentor_runs FOR UPDATE")
        with pytest.raises(StoreError, match="timeout"):
            store.append("r", result(1))
    store.append("r", result(1))


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[LossyProxy]:
    proxy = LossyProxy(server.port)
    yield proxy
    proxy.close()


@pytest.mark.parametrize(
    "act", ["append", "append without a number", "lease", "renew", "fork", "delete", "repair"]
)
def test_what_was_committed_unheard_is_done_once(
    proxy: LossyProxy, server: PostgresServer, dsn: str, act: str
) -> None:
    store = Settled(PostgresStore(dsn.replace(f":{server.port}/", f":{proxy.port}/")))
    store.append_many("r", [result(0), result(1), result(2)])
    held = store.lease("held", "ann", 30.0)
    proxy.lose_next_commit()
    {
        "append": lambda: store.append("r", result(3)),
        "append without a number": lambda: store.append("r", result(None)),
        "lease": lambda: store.lease("r", "ann", 30.0),
        "renew": held.renew,
        "fork": lambda: store.fork("r", "branch", 1),
        "delete": lambda: store.delete("r"),
        "repair": lambda: store.repair("r", 1),
    }[act]()
    assert proxy.lost == 1
    lengths = {run_id: len(store.load(run_id)) for run_id in store.list_runs()}
    expected = {"fork": {"branch": 3, "r": 3}, "delete": {}, "repair": {"r": 2}}
    assert lengths == expected.get(act, {"r": 4 if "append" in act else 3})
    assert server.sql(dsn, "SELECT count(*) FROM agentor_damaged") == [(3 if act == "repair" else 0,)]
    epochs = server.sql(dsn, "SELECT epoch FROM agentor_runs WHERE run_id = 'r'")
    assert epochs == [(1 if act == "lease" else 0,)]


# --- workers that are stopped, as a paused machine would be ---------------------------------------


def stopped_worker(code: str, dsn: str) -> subprocess.Popen[str]:
    """A process that runs this, until it has stopped itself."""
    head = """if True:
        import asyncio, os, signal, sys, threading
        from agentor import Agentor, function_tool
        from agentor.engine.store.postgres import PostgresStore
        from agentor.testing import ScriptedModel, call
    """
    process = subprocess.Popen([sys.executable, "-c", head + code, dsn], stderr=subprocess.PIPE, text=True)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return process


def test_a_worker_that_is_stopped_past_its_lease_writes_and_starts_nothing_more(
    server: PostgresServer, dsn: str
) -> None:
    code = """
        @function_tool(on_crash="retry")
        def charge(n: int) -> str:
            if n == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            elif n == 2:
                print("two ran", file=sys.stderr)
            return "late"
        model = ScriptedModel([*(call("charge", {"n": n}) for n in range(3)), "done"])
        Agentor("a", model=model, tools=[charge], store=PostgresStore(sys.argv[1], lease_s=0.5)).run("go", run_id="r")
    """
    worker = stopped_worker(code, dsn)
    mine = Charge(dsn, lambda: None, "strict", 10.0)
    outcome = mine.agent.resume("r", wait_s=10)
    assert (outcome.status, mine.ran) == ("completed", [1, 2])
    log = [e.to_json() for e in settle(mine.store.load("r"))]
    worker.send_signal(signal.SIGCONT)
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert "no longer" in err
    assert "two ran" not in err
    assert [e.to_json() for e in settle(mine.store.load("r"))] == log


def test_a_worker_that_is_stopped_in_a_transaction_keeps_nobody_waiting_for_long(
    server: PostgresServer, dsn: str
) -> None:
    store = Settled(PostgresStore(dsn))
    store.append("r", result(0))
    code = f"""
        store = PostgresStore(sys.argv[1], timeout_s={TIMEOUT_S})
        async def work(transaction):
            await store._rows.lock(transaction, ["r"])
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()  # this thread may run on for a moment
        asyncio.run(store._database.write("r", work))
    """
    worker = stopped_worker(code, dsn)
    try:
        began = time.monotonic()
        store.append("r", result(1))
        assert TIMEOUT_S / 4 < time.monotonic() - began < TIMEOUT_S + 1
    finally:
        worker.kill()
        worker.communicate()
