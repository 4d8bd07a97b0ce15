"""A folder of suites like any other: each extends a bundled one by the points of `evidence.peer_shapes` and by peers.

Neither gate nor history looks here: they discover ``benchmarks``.
"""

from __future__ import annotations

from pathlib import Path

from flopwatch.suite import discover

#: By name. Discovering them puts the checkout on the path, where `evidence.peer_shapes` is found.
BUNDLED = discover(Path(__file__).parents[3] / "benchmarks").suites
