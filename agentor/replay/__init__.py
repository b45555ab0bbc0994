"""Replay: today's agent against a recorded run, without a network; and two runs side by side."""

from agentor.replay.replaying import areplay, replay
from agentor.replay.report import Difference, ReplayReport, TurnReport
from agentor.replay.rundiff import RunDiff, adiff_runs, diff_runs

__all__ = [
    "Difference",
    "ReplayReport",
    "RunDiff",
    "TurnReport",
    "adiff_runs",
    "areplay",
    "diff_runs",
    "replay",
]
