"""What is planted into the bundled kernels: regressions that a rule should name, and refactorings that none should.

Each is a few textual edits of the files at HEAD. What it replaces must be there exactly once, so that a kernel that
moves on makes these fail loudly and not fall silent.
"""

from __future__ import annotations

from evidence.refactorings import REFACTORINGS, Refactoring
from evidence.regressions import REGRESSIONS, Regression

PLANTED: dict[str, Regression | Refactoring] = {each.name: each for each in (*REGRESSIONS, *REFACTORINGS)}
