"""Comparisons without a verdict: two commits, two environments, or two providers of the same results."""

from flopwatch.compare.result import ComparedCase, Comparison, Contender, Kind, Speed
from flopwatch.compare.run import CompareOptions, run_compare

__all__ = ["CompareOptions", "ComparedCase", "Comparison", "Contender", "Kind", "Speed", "run_compare"]
