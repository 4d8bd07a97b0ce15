"""Make both sides of a pair tune alike where their kernels are alike."""

from __future__ import annotations

import functools
from typing import Any

from triton.runtime.jit import JITFunction


def ignore_line_numbers() -> None:
    """Take the line on which a kernel starts out of Triton's keys, for kernels defined from now on.

    Triton keeps the choice of its autotuner on disk (``TRITON_CACHE_AUTOTUNING``) under a key that includes the line
    number. A comment above a kernel would make head tune anew while base keeps its old choice, and a near tie would
    look like a change of speed. Only debug information depends on the line.
    """
    original = JITFunction.__init__

    @functools.wraps(original)
    def initialise(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - Triton's own arguments
        original(self, *arguments, **options)
        self.starting_line_number = 1

    JITFunction.__init__ = initialise
