"""Barriers of a cluster's programs, which Gluon has from Triton 3.7 on; before it, names to compile other code with."""

# mypy: allow-untyped-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

#: Whether there are clusters.
HAS_CLUSTERS = hasattr(hopper, "cluster") and hasattr(mbarrier, "sync_cluster_init")


@gluon.jit
def _none():
    """Stand in the place of what this Triton has not, in a branch that it does not compile."""


if HAS_CLUSTERS:
    #: Has all of a cluster see each other's barriers.
    publish = mbarrier.sync_cluster_init
    #: Says that this program has come here.
    arrive = hopper.cluster.arrive
    #: Waits until all of the cluster have said so.
    wait = hopper.cluster.wait
else:
    publish = arrive = wait = _none
