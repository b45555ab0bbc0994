"""Replay: today's agent against a recorded run, without a network; and two runs side by side."""

from agentor.replay.replaying import areplay, replay
from agentor.replay.report import Difference, ReplayReport, TurnReport

__all__ = ["Difference", "ReplayReport", "TurnReport", "areplay", "replay"]
