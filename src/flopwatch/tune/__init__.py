"""Search a kernel's configurations: prune by what the compiler says, time in turns, choose, and estimate afresh."""

from flopwatch.tune.result import Candidate, Regret, TunedCase, TuneResult
from flopwatch.tune.run import TuneOptions, run_tune

__all__ = ["Candidate", "Regret", "TuneOptions", "TuneResult", "TunedCase", "run_tune"]
