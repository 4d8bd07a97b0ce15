"""Recording: commits of a range, measured once each and kept as asv keeps its own results.

Needs asv, of ``flopwatch[history]``.
"""

from flopwatch.record.result import RecordedCommit, Recording, RecordOptions
from flopwatch.record.run import run_record

__all__ = ["RecordOptions", "RecordedCommit", "Recording", "run_record"]
