"""The footprints of a case's launches; light until one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.model import Case
    from flopwatch.static.traffic.footprint import Footprint
    from flopwatch.suite import Suite


def case_footprints(suite: Suite, case: Case, device: str, programs: Sequence[int]) -> tuple[Footprint, ...]:
    """Call the case on a pretended GPU, and tell which elements each program of its launches accesses.

    Args:
        suite: of the case.
        case: at this very size; an autotuned kernel runs in the first configuration that fits.
        device: the key of the GPU.
        programs: to be told apart; see `flopwatch.static.traffic.footprints.footprints_of`.
    """
    from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - where it is needed
    from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed
    from flopwatch.static.recorder import Autotune  # noqa: PLC0415 - where it is needed
    from flopwatch.static.traffic.footprints import footprints_of  # noqa: PLC0415 - where it is needed

    with pretend_gpu(device, tensors="meta", autotune=Autotune.FIRST) as recorder:
        inputs = make_inputs(suite, case, seed=0)
        before = len(recorder.launches)  # what makes the inputs is none of the case's
        suite.run(*inputs)
    return footprints_of(recorder, programs, first=before)
