"""Faults of memory in kernels: found by compute-sanitizer on a GPU, by the guarded interpreter without one."""

from flopwatch.sanitize.findings import Finding, Kind
from flopwatch.sanitize.result import CaseReport, Sanitized
from flopwatch.sanitize.tools import Tool

__all__ = ["CaseReport", "Finding", "Kind", "Sanitized", "Tool"]
