"""The profile of both sides of a case, where this machine can make one; an explanation stands without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.gate.sides import Arm
from flopwatch.measure.nvml import require_gpu
from flopwatch.profile.pair import profile_pair
from flopwatch.profile.process import in_a_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flopwatch.explain.opening import Opened
    from flopwatch.gate.pairs import Observer
    from flopwatch.measure.protocol import DeclaredCase
    from flopwatch.model import Choice
    from flopwatch.profile.result import ProfiledPair


def profiled(
    sides: Opened, declared: DeclaredCase, pins: Mapping[Arm, tuple[Choice, ...]], observer: Observer
) -> tuple[ProfiledPair | None, str]:
    """Return the profile of a case, or None and why there is none, in a line.

    Args:
        sides: that are checked out.
        declared: the case.
        pins: what its autotuned kernels are to run in, where that is known.
        observer: is told how far this is.
    """
    try:
        require_gpu(_no_gpu)
        return profile_pair(declared, sides.codes, {arm: pins.get(arm, ()) for arm in Arm}, observer=observer), ""
    except FlopwatchError as error:
        return None, f"no profile: {in_a_line(error)}"
    except OSError as error:
        return None, f"no profile: {error}; see flopwatch doctor"


def _no_gpu(why: str) -> MachineError:
    return MachineError(
        "there is no GPU",
        why=why,
        todo="where one is, this also shows what each kernel and a launch take on both sides, and the GPU's counters",
    )
