"""Which program computes which tile of a product, and which steps of it, in which order.

Arithmetic of integers, which Python runs, Triton compiles and Gluon compiles. What shared tiles are, `stream_k` tells.
"""

from __future__ import annotations

import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it in the module of what it runs


def tile_position(tile: int, tiles_m: int, tiles_n: int, GROUP_M: int) -> tuple[int, int]:
    """Return row and column of a tile; GROUP_M rows of tiles are numbered together, to share panels in L2.

    >>> [tile_position(tile, 3, 2, 2) for tile in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + tile % per_group % rows, tile % per_group // rows


def visits(program: int, programs: int, tiles: int, shared: int, steps: int) -> int:
    """Return how many tiles a program works on.

    >>> [visits(program, 3, 5, 2, 4) for program in range(3)]
    [2, 3, 2]
    """
    begin = program * (shared * steps) // programs
    end = (program + 1) * (shared * steps) // programs
    whole = (tiles - shared - program + programs - 1) // programs
    return (end + steps - 1) // steps - begin // steps + whole


def visit(index: int, program: int, programs: int, shared: int, steps: int) -> tuple[int, int, int]:
    """Return the tile of a program's visit, and of which steps along K: the first, and the one after the last.

    >>> [visit(index, 1, 3, 2, 4) for index in range(3)]
    [(1, 0, 1), (0, 2, 4), (3, 0, 4)]
    """
    lowest = program * (shared * steps) // programs
    beyond = (program + 1) * (shared * steps) // programs
    touched = (beyond + steps - 1) // steps - lowest // steps
    tile = shared + program + (index - touched) * programs
    begin = 0
    end = steps
    if index < touched:
        tile = (beyond - 1) // steps - index
        begin = max(lowest - tile * steps, 0)
        end = min(beyond - tile * steps, steps)
    return tile, begin, end


def first_contributor(tile: int, programs: int, shared: int, steps: int) -> int:
    """Return the program with the first step of a shared tile; all from there to the tile's last one have a part.

    >>> first_contributor(1, 3, 2, 4)
    1
    """
    return ((tile * steps + 1) * programs - 1) // (shared * steps)
