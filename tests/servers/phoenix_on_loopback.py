"""Run by the Python that has Arize Phoenix: its server, on loopback only.

Phoenix's setting for the host counts for HTTP; its gRPC server binds to every address of the machine.
"""

from __future__ import annotations

import sys
from typing import Any

from grpc.aio import _server
from phoenix.server.main import main

_bind = _server.Server.add_insecure_port


def _bind_to_loopback(server: Any, address: str) -> int:
    return int(_bind(server, f"127.0.0.1:{address.rpartition(':')[2]}"))


_server.Server.add_insecure_port = _bind_to_loopback
sys.argv = ["phoenix", "serve"]
main()
