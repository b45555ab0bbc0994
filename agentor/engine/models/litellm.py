"""`LiteLLMModel`: any provider through LiteLLM; the only file that imports it."""

from __future__ import annotations

class LiteLLMModel:
    def __init__(self, model: str, *, api_key=None, base_url=None, settings=None): ...
    def preload(self): ...
