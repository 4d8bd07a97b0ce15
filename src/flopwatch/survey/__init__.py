"""What the compiler makes of every kernel of a tree, for several GPUs, none of which need be there."""

from flopwatch.survey.baseline import Drift
from flopwatch.survey.result import Gap, Held, LaunchWork, Survey

__all__ = ["Drift", "Gap", "Held", "LaunchWork", "Survey"]
