"""What tests of replays share."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket to anywhere can be connected."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a replay went to the network: {args[1:]}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
