"""Models: the protocol, and LiteLLM behind it."""

from agentor.engine.models.base import Model, ModelResponse, StreamChunk

__all__ = ["Model", "ModelResponse", "StreamChunk"]
