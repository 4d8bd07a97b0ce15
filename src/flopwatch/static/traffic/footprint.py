"""Which elements of its tensors each program of a launch accesses, as records; light, for pictures and files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rectangle:
    """Neighbouring elements that the same programs access, as far as first, last and number tell.

    Attributes:
        row: the first one's.
        column: likewise.
        rows: how many.
        columns: likewise.
        first: the least number of a program.
        last: the greatest.
        programs: how many.
    """

    row: int
    column: int
    rows: int
    columns: int
    first: int
    last: int
    programs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One tensor, as far as it is loaded, or stored, or updated.

    What is shown are the last two axes, at the first place of every other; a vector is one row. Elements are told of
    in boxes of equal size: where a program accesses any of a box, it accesses all of it, as far as is told here.

    Attributes:
        argument: its name, or those of all that are the same tensor.
        access: "load", "store" or "atomic".
        shape: of the tensor.
        element_bytes: of an element.
        rows: that are shown.
        columns: likewise.
        box: rows and columns of a box.
        layers: the rectangles of each of `Footprint.layers`.
        strays: whether spans of bytes begin or end beside its elements.
    """

    argument: str
    access: str
    shape: tuple[int, ...]
    element_bytes: int
    rows: int
    columns: int
    box: tuple[int, int]
    layers: tuple[tuple[Rectangle, ...], ...]
    strays: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """One launch.

    Attributes:
        kernel: the name of its function.
        device: the device's key.
        config: the launch's constants, warps and stages.
        grid: programs along each axis.
        programs: all of them.
        wave: how many programs the device holds at once, at most all.
        layers: first and last program of what is told apart: all, the first wave, single ones.
        panels: in the order of the arguments; none if nothing is known.
        unknown: what is not among it, and why.
    """

    kernel: str
    device: str
    config: str
    grid: tuple[int, ...]
    programs: int
    wave: int = 0
    layers: tuple[tuple[int, int], ...] = ()
    panels: tuple[Panel, ...] = ()
    unknown: tuple[str, ...] = ()
