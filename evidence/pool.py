"""Processes that share the work of a replay."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

#: A decision makes and drops arrays of megabytes. By default glibc gives each back to the kernel and takes new pages
#: for the next, which made `decide` without a margin 2.6 times slower (0.21 s against 0.08 s, 2 cores, 2026-11-21).
KEPT_BYTES = 1_000_000_000


def processes() -> ProcessPoolExecutor:
    """Return a pool of new interpreters, one a core: a fork of a process with threads may hang."""
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        os.environ.setdefault(name, str(KEPT_BYTES))
    return ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))
