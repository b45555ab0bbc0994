"""A real Arize Phoenix in a virtual environment of its own, and what it says of the spans it was sent."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
import pytest

from servers.process import free_ports, started

PYTHON = "AGENTOR_PHOENIX"  # environment variable: the Python that has Phoenix
READY_S = 120.0
ARRIVED_S = 30.0
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 in the kernel's words, and in IPv6
T = TypeVar("T")


def python_or_skip() -> str:
    """The Python that has Phoenix; skips where there is none."""
    python = os.environ.get(PYTHON)
    if not python:
        pytest.skip(f"{PYTHON} names no Python with arize-phoenix; `make phoenix` makes one")
    return python


class Phoenix:
    """One server on free ports of 127.0.0.1, with its data in `folder`; it ends with this process."""

    def __init__(self, python: str, folder: Path) -> None:
        http, grpc = free_ports(2)
        self.url = f"http://127.0.0.1:{http}"
        self._log = folder / "log"
        settings = {
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(http),
            "PHOENIX_GRPC_PORT": str(grpc),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
            "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        }
        script = Path(__file__).with_name("phoenix_on_loopback.py")
        # -P: the script's folder has a module `phoenix` as well, which is this one.
        command = ["env", *(f"{name}={value}" for name, value in settings.items()), python, "-P", str(script)]
        self._process = started(command, folder, None)
        self._client = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        try:
            self._wait_until_it_answers()
            assert _listeners(http, grpc) <= LOOPBACK, "Phoenix listens to other machines"
        except BaseException:
            self.close()
            raise

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + READY_S
        while True:
            try:
                if self._client.get("/healthz").is_success:
                    return
            except httpx.TransportError:
                pass
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.1)  # it says nothing when it becomes ready

    def spans(self, project: str) -> list[dict[str, Any]]:
        """The spans of a project, at most a thousand; none where nothing has arrived."""
        answer = self._client.get(f"/v1/projects/{project}/spans", params={"limit": 1000})
        if answer.status_code == 404:
            return []
        found: list[dict[str, Any]] = answer.raise_for_status().json()["data"]
        return found

    def traces(self, project: str) -> list[dict[str, Any]]:
        """The traces of a project, with the tokens that Phoenix counted."""
        answer = self._client.get(f"/v1/projects/{project}/traces").raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def page_of(self, project: str, span: dict[str, Any]) -> str:
        """The address of the page on which this span's trace is shown, with the span selected."""
        found = self._client.get(f"/v1/projects/{project}").raise_for_status().json()["data"]
        trace = f"{self.url}/projects/{found['id']}/traces/{span['context']['trace_id']}"
        return f"{trace}?selectedSpanNodeId={span['id']}"

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """An answer of the interface that its own pages use, GraphQL."""
        answer = self._client.post("/graphql", json={"query": query, "variables": variables})
        body = answer.raise_for_status().json()
        assert "errors" not in body, body["errors"]
        data: dict[str, Any] = body["data"]
        return data

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(30.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if hasattr(self, "_client"):
            self._client.close()

    def __enter__(self) -> Phoenix:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _listeners(*ports: int) -> set[str]:
    """The addresses on which somebody listens at these ports; none where the system does not say."""
    tables = [table for name in ("tcp", "tcp6") if (table := Path("/proc/net", name)).exists()]
    lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    listening = [line[1].split(":") for line in lines if line[3] == "0A"]
    return {address for address, port in listening if int(port, 16) in ports}


def once(look: Callable[[], T], enough: Callable[[T], bool], timeout_s: float = ARRIVED_S) -> T:
    """What `look` gives as soon as it is enough.

    Raises:
        AssertionError: it does not come to that; what was seen last.
    """
    until = time.monotonic() + timeout_s
    while not enough(seen := look()):
        assert time.monotonic() < until, seen
        time.sleep(0.05)  # neither a file nor Phoenix says when it changes
    return seen
