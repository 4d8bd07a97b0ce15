"""Studies: suites whose question is about a parameter, and what is to be true of its values."""

from flopwatch.study.declaration import Conclusion, Study

__all__ = ["Conclusion", "Study"]
