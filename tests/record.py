"""Record the cassettes anew: `make record`, or `python tests/record.py [part of a name]`.

Each provider is asked itself where its key is set, else its emulator; the local model where
`AGENTOR_LOCAL_MODELS` names a folder with its GGUF files and xllamacpp is installed.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from scenarios import SCENARIOS, Scenario, play  # noqa: E402  # found by the line above

from agentor import MemoryStore, RunResult  # noqa: E402
from agentor.engine.events import Generation, Retry  # noqa: E402
from agentor.testing.cassettes import cassette  # noqa: E402

TRIES = 20  # of a conversation with a model that errs by chance
STARTUP_S = 120


@contextmanager
def answering(scenario: Scenario) -> Iterator[tuple[str | None, str, str] | None]:
    """The base URL, the key and a name of who answers; None where nobody can."""
    provider = scenario.provider
    if provider.key and os.environ.get(provider.key):
        yield None, os.environ[provider.key], f"{provider.address} ({provider.model})"
    elif provider.stand_in is not None:
        with provider.stand_in() as emulator:
            yield emulator.url, "sk-recorded-with-an-emulator", "the emulator in tests/emulators"
    else:
        yield from _local(provider.model.partition("/")[2])


def _local(name: str) -> Iterator[tuple[str | None, str, str] | None]:
    folder = os.environ.get("AGENTOR_LOCAL_MODELS")
    path = Path(folder or "") / f"{name}.gguf"
    if not folder or not path.is_file():
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = os.environ.get("AGENTOR_LOCAL_PYTHON", sys.executable)
    command = [python, str(HERE / "local_model" / "serve.py"), str(path), str(port), name]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}/v1", "local", f"{name}-instruct (Q4_K_M) behind llama.cpp's server"
    finally:
        server.kill()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTUP_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(url) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the local model did not start: {url}")


async def record(scenario: Scenario, url: str | None, key: str, answered_by: str) -> str:
    """Record one conversation; returns what came of it."""
    scenario.path.parent.mkdir(parents=True, exist_ok=True)
    host = url.split("/")[2] if url else ""
    for _ in range(TRIES):
        with cassette(
            scenario.path,
            record="all",
            answered_by=answered_by,
            hosts={host: scenario.provider.address} if host else None,
        ) as tape:
            result = await play(scenario, scenario.agent(MemoryStore(), url=url, key=key))
        if fits(scenario, result):
            return f"{result.status}, {len(tape.requests)} requests"
    raise SystemExit(f"{scenario.path}: {result.status}: {result.error}, not {scenario.wanted}")


def fits(scenario: Scenario, result: RunResult) -> bool:
    """True if the conversation went as the scenario wants it."""
    retries = sum(1 for e in result.events if isinstance(e, Retry))
    calls = [c for e in result.events if isinstance(e, Generation) for c in e.calls or []]
    arguments = " ".join(c["function"]["arguments"] for c in calls)
    odd = not scenario.odd or re.search(scenario.odd, arguments) is not None
    return odd and result.status in scenario.wanted and retries == scenario.retries


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    for scenario in SCENARIOS:
        name = f"{scenario.provider.name}/{scenario.name}"
        if part not in name:
            continue
        with answering(scenario) as who:
            if who is None:
                print(f"{name}: left as it is (AGENTOR_LOCAL_MODELS has no model for it)")
            else:
                print(f"{name}: {asyncio.run(record(scenario, *who))}, answered by {who[2]}", flush=True)


if __name__ == "__main__":
    main()
