"""The commit that made a case slower, found between a good one and a bad one, by pairs or by what is compiled."""

from flopwatch.bisect.result import Bisection, Commit, Effect, Outcome, Step
from flopwatch.bisect.run import BisectOptions, run_bisect

__all__ = ["BisectOptions", "Bisection", "Commit", "Effect", "Outcome", "Step", "run_bisect"]
