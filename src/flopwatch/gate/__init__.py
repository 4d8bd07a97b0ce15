"""The gate: base against head, by static facts, by numbers, and, where there is a GPU, by time in pairs."""

from flopwatch.gate.result import CaseKernels, CaseVerdict, GateResult, PairLog, Uncovered

__all__ = ["CaseKernels", "CaseVerdict", "GateResult", "PairLog", "Uncovered"]
