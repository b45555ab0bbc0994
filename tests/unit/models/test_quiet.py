"""A normal run says nothing, warns of nothing, and connects to its model's address only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
SCRIPT = """
import asyncio, json, sys
connected = []
sys.addaudithook(lambda event, args: connected.append(args[1]) if event == "socket.connect" else None)
from contextlib import ExitStack
from scenarios import ANTHROPIC, CHAT, DEEPSEEK, GEMINI, MISTRAL, OPENROUTER, RESPONSES, SCENARIOS, play
from agentor import MemoryStore

async def main(ports):
    for s in SCENARIOS:
        if s.provider.stand_in is None:
            continue
        with s.provider.stand_in() as emulator:
            ports.add(emulator._http.server_address[1])
            await play(s, s.agent(MemoryStore(), url=emulator.url, key="k"))

ports = set()
asyncio.run(main(ports))
strangers = [a for a in connected if not (a[0] == "127.0.0.1" and a[1] in ports)]
assert connected and not strangers, strangers
imports = [name for name in sys.modules if name == "litellm"]
assert imports == ["litellm"]
"""


@pytest.mark.parametrize("warnings", ["error", "default"])
def test_runs_with_every_provider_are_silent_and_stay_at_home(warnings: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-W", "ignore::ResourceWarning", "-c", SCRIPT],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
