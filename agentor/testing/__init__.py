"""What tests of agents need: a model that answers from a script."""

from agentor.testing.scripted import ScriptedModel, answer, attempts, call, error

__all__ = ["ScriptedModel", "answer", "attempts", "call", "error"]
