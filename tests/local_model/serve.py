"""Serve a GGUF model of one's own over OpenAI's chat completions: `python serve.py MODEL.gguf PORT NAME`.

Needs `pip install xllamacpp` (llama.cpp's own server). The tests never run this; `make record` does.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import xllamacpp

path, port, name = sys.argv[1:4]
params = xllamacpp.CommonParams()
params.model.path = path
params.hostnames, params.port, params.model_alias = ["127.0.0.1"], int(port), [name]
params.n_ctx, params.n_parallel, params.use_jinja = 4096, 1, True
params.chat_template = (Path(__file__).parent / "chat.jinja").read_text()
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
