"""Every order of operations on a store, against a dictionary of lists."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from servers import s3

from agentor import FileStore, MemoryStore, ObjectStore, PostgresStore, SQLiteStore
from agentor.engine.events import Event
from agentor.errors import Conflict, Fenced, RunBusy, RunExists, RunNotFound
from agentor.testing.samples import result
from agentor.testing.settled import Settled

RUNS, FORKS = "abc", "defg"
EXAMPLES = int(os.environ.get("AGENTOR_STORE_EXAMPLES", "500"))  # of each machine; `make soak` sets more


class Machine(RuleBasedStateMachine):
    """Two workers on one place: append, repeat, reopen, fork, lease, steal, delete, repair."""

    can_expire = False
    forgets = False  # True: a new run of a deleted run's id counts its epochs anew

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="agentor-machine-"))
        self.now = 1000.0
        self.truth: dict[str, list[Event]] = {}
        self.leases: dict[str, Any] = {}  # the last one of each run
        self.old: dict[str, list[int]] = {}  # epochs that are over
        self.store = Settled(self.open())

    def open(self) -> Any:
        raise AssertionError("each machine opens its own")

    def expire(self, run: str) -> None:
        """Let the time of this run's lease be over, and of no other."""
        self.now += 31.0
        for other, lease in self.leases.items():
            if other != run:
                lease.renew()

    # --- the log --------------------------------------------------------------------------------

    @rule(run=st.sampled_from(RUNS), count=st.integers(1, 3), text=st.text(max_size=5), leased=st.booleans())
    def append(self, run: str, count: int, text: str, leased: bool) -> None:
        known = self.truth.get(run, [])
        batch = [result(len(known) + n, text) for n in range(count)]
        epoch = self.leases[run].epoch if leased and run in self.leases else None
        self.store.append_many(run, batch, epoch)
        self.truth[run] = [*known, *batch]

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def append_again(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.truth)))
        place = data.draw(st.integers(0, len(self.truth[run]) - 1))
        self.store.append(run, self.truth[run][place])

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def append_something_else(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.truth)))
        place = data.draw(st.integers(0, len(self.truth[run])))
        if place == len(self.truth[run]):
            place += 1  # a gap
        with pytest.raises((Conflict, RunExists)):
            self.store.append_many(run, [result(place, "something else")])

    @rule()
    def reopen(self) -> None:
        for run, lease in self.leases.items():
            lease.release()  # as a process's end does it
            self.old.setdefault(run, []).append(lease.epoch)
        self.leases.clear()
        self.store = Settled(self.open())

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def fork(self, data: Any) -> None:
        src = data.draw(st.sampled_from(sorted(self.truth)))
        dst = data.draw(st.sampled_from(FORKS))
        at = data.draw(st.none() | st.integers(0, len(self.truth[src]) - 1))
        if dst in self.truth:
            with pytest.raises(RunExists):
                self.store.fork(src, dst, at)
        else:
            self.store.fork(src, dst, at)
            copied = self.truth[src][: None if at is None else at + 1]
            self.truth[dst] = [*copied, self.store.load(dst)[-1]]

    # --- leases ---------------------------------------------------------------------------------

    @rule(run=st.sampled_from(RUNS))
    def lease(self, run: str) -> None:
        if run in self.leases:
            with pytest.raises(RunBusy):
                self.store.lease(run, "second", 30.0)
        else:
            self.leases[run] = self.store.lease(run, "first", 30.0)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.leases)))
        lease = self.leases.pop(run)
        lease.release()
        self.old.setdefault(run, []).append(lease.epoch)

    @precondition(lambda self: self.can_expire and self.leases)
    @rule(data=st.data())
    def steal(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.leases)))
        self.expire(run)
        late = self.leases[run]
        self.leases[run] = self.store.lease(run, "thief", 30.0)
        self.old.setdefault(run, []).append(late.epoch)
        late.release()
        with pytest.raises(Fenced):
            late.renew()

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def append_under_an_old_epoch(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.old)))
        epoch = data.draw(st.sampled_from(self.old[run]))
        with pytest.raises(Fenced):
            self.store.append_many(run, [result(len(self.truth.get(run, [])))], epoch)

    # --- removing and mending -------------------------------------------------------------------

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.truth)))
        if run in self.leases:
            with pytest.raises(RunBusy):
                self.store.delete(run)
        else:
            self.store.delete(run)
            del self.truth[run]
            if self.forgets:
                self.old.pop(run, None)
            with pytest.raises(RunNotFound):
                self.store.delete(run)

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def repair(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.truth)))
        upto = data.draw(st.integers(0, len(self.truth[run]) - 1))
        if run in self.leases:
            with pytest.raises(RunBusy):
                self.store.repair(run, upto)
        else:
            self.store.repair(run, upto)
            self.truth[run] = self.truth[run][: upto + 1]

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def the_store_holds_the_truth(self) -> None:
        assert sorted(self.store.list_runs()) == sorted(self.truth)
        for run, events in self.truth.items():
            assert self.store.load(run) == events
        described = {info.run_id: info.records for info in self.store.describe()}
        assert described == {run: len(events) for run, events in self.truth.items()}

    def teardown(self) -> None:
        for lease in self.leases.values():
            lease.release()
        shutil.rmtree(self.folder)


class FileMachine(Machine):
    forgets = True  # its lock file goes too; nobody can hold it then, so nobody wakes up with an old epoch

    def open(self) -> Any:
        return FileStore(self.folder, sync="process")

    @precondition(lambda self: self.truth)
    @rule(data=st.data(), junk=st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b))
    def crash_in_a_write(self, data: Any, junk: bytes) -> None:
        run = data.draw(st.sampled_from(sorted(self.truth)))
        with self.store.store.path(run).open("ab") as log:
            log.write(b'{"type"' + junk)


class SQLiteMachine(Machine):
    can_expire = True

    def open(self) -> Any:
        return SQLiteStore(self.folder / "runs.db", clock=lambda: self.now)


class MemoryMachine(Machine):
    def open(self) -> Any:
        self.one = getattr(self, "one", None) or MemoryStore()
        return self.one


@pytest.mark.parametrize("machine", [FileMachine, SQLiteMachine, MemoryMachine])
def test_any_order_of_operations_keeps_the_store_true(machine: type[Machine]) -> None:
    drive(machine, EXAMPLES)


def test_any_order_of_operations_keeps_postgres_true(postgres_server: Any) -> None:
    dsn = postgres_server.new_database()
    store = PostgresStore(dsn)

    class PostgresMachine(Machine):
        can_expire = True

        def open(self) -> Any:
            if not hasattr(self, "begun"):
                self.begun = True
                asyncio.run(store.list_runs())  # the tables are there
                postgres_server.sql(dsn, "TRUNCATE agentor_runs, agentor_events, agentor_damaged")
            return store  # opening another one is a matter of other tests

        def expire(self, run: str) -> None:
            ended = "UPDATE agentor_runs SET expires = clock_timestamp() WHERE run_id = %s"
            postgres_server.sql(dsn, ended, run)

    drive(PostgresMachine, EXAMPLES // 8)
    asyncio.run(store.aclose())


def test_any_order_of_operations_keeps_an_object_store_true(s3_endpoint: str) -> None:
    class ObjectMachine(Machine):
        def open(self) -> Any:
            self.url = getattr(self, "url", None) or s3.fresh_url()
            return ObjectStore(self.url, **s3.options(s3_endpoint))

    drive(ObjectMachine, EXAMPLES // 20)


def drive(machine: type[Machine], examples: int) -> None:
    checks = list(HealthCheck)
    rules = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=checks
    )
    run_state_machine_as_test(machine, settings=rules)
