"""Stream-K: a product whose tiles do not fill whole waves of the GPU, in equal shares all the same.

A tile of C is a sum over `steps` steps along K. Tiles that are left over from whole waves are *shared*: the steps of
all of them, one after the other, are dealt out to the programs in equal, contiguous ranges (Osama et al., *Stream-K*,
2023). A program that does not have the last steps of a tile leaves its part in a workspace; the one that has them adds
the parts, in the order of the programs, and stores the tile. So a result never depends on who was faster.

A program takes its range from the end: the tile of which it lacks the last steps comes first, the one to which others
contributed last. So nobody waits who has still a part to write, and those who are waited for have lower numbers, which
a GPU schedules no later. There is no deadlock, whatever the number of multiprocessors, and no need for a cooperative
launch. The whole tiles come after the shared ones.

Who has which steps is arithmetic of integers (`flopwatch.kernels.tiles`), and `flopwatch.kernels.hopper_matmul` the
kernel on it. Of small products all tiles may be shared (`flopwatch.kernels.thin_matmul`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

#: Products of these numbers are computed in 32 bits on the GPU.
_INT32 = 2**31


class Balance(enum.Enum):
    """Which tiles are shared by programs."""

    #: None.
    WHOLE = "whole"
    #: What is left over from whole waves, by all programs.
    REST = "rest"
    #: That and one wave more, so that no tile of a product of a wave or more has more than two programs.
    WAVE = "wave"
    #: All, each by as many programs as fit on the GPU at once: split-K.
    SPLIT = "split"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How a product is dealt out.

    Attributes:
        programs: that are launched.
        shared: tiles that programs share.
    """

    programs: int
    shared: int

    @classmethod
    def of(cls, tiles: int, steps: int, *, slots: int, balance: Balance) -> Schedule:
        """Deal out tiles.

        Args:
            tiles: of C, at least one.
            steps: along K of each, at least one.
            slots: programs that run at once: multiprocessors, times the programs that fit one.
            balance: which tiles are shared.

        Raises:
            ValueError: there are too many for 32-bit arithmetic.

        >>> Schedule.of(144, 24, slots=132, balance=Balance.WHOLE)
        Schedule(programs=132, shared=0)
        >>> Schedule.of(144, 24, slots=132, balance=Balance.WAVE)
        Schedule(programs=132, shared=144)
        >>> Schedule.of(60, 24, slots=132, balance=Balance.SPLIT)
        Schedule(programs=120, shared=60)
        """
        rest = tiles % slots
        programs = min(tiles, slots)
        match balance:
            case Balance.WHOLE:
                shared = 0
            case Balance.REST:
                shared = rest
            case Balance.WAVE:
                shared = min(tiles, rest + slots) if rest else 0
            case Balance.SPLIT:
                shared = tiles if tiles < slots else 0
        if shared and balance is Balance.SPLIT:
            programs = tiles * min(steps, slots // tiles)
        elif shared == tiles or shared * steps >= slots:
            programs = min(slots, shared * steps)
        else:  # fewer steps to share than there are programs
            shared = 0
        if (programs + 1) * shared * steps >= _INT32:
            raise ValueError(
                f"{shared} shared tiles of {steps} steps are too many for {programs} programs\n"
                "  why: the shares are computed in 32 bits\n"
                "  do:  share fewer tiles, or take larger ones"
            )
        return cls(programs=programs, shared=shared)
