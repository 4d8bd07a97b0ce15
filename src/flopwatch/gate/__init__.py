"""The gate: base against head, by static facts, by numbers, and, where there is a GPU, by time in pairs."""

from flopwatch.gate.result import CaseVerdict, GateResult, PairLog, Uncovered
from flopwatch.gate.run import GateOptions, run_gate

__all__ = ["CaseVerdict", "GateOptions", "GateResult", "PairLog", "Uncovered", "run_gate"]
