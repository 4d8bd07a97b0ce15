"""Read the tree that Proton writes: ``NAME.hatchet``, a JSON literal of the library hatchet.

The file is a list: the root's frame, then the devices. A frame has a name, metrics and children (Triton's
``proton/csrc/lib/Data/TreeData.cpp``). Kernels have ``time (ns)`` and ``count``; scopes have the work that whoever
entered them declared, ``flops`` or ``flops8`` to ``flops64``, and ``bytes``. All of them belong to the frame alone:
what a scope took is the sum over its kernels.

hatchet itself, by which proton-viewer reads these files, brings pandas, matplotlib, pydot and four more packages along
for that sum; here it is a recursion, and a test holds both against each other.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Proton keeps what it launches to evaluate a kernel's own metadata under frames whose names begin so.
_METADATA = "__proton_launch_metadata"
#: Of a metric: sums of such numbers are finite.
_LARGEST = 1e30
#: Of frames in each other; scopes and kernels need 3, Python's call stacks some 50.
MAX_DEPTH = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A scope or a kernel.

    Attributes:
        name: of the scope or of the kernel.
        time_ns: that its own launches took on the GPU.
        count: of them.
        flops: that were declared of it.
        bytes_moved: likewise.
        children: in the order in which they were entered first.
    """

    name: str
    time_ns: float = 0.0
    count: int = 0
    flops: float = 0.0
    bytes_moved: float = 0.0
    children: tuple[Frame, ...] = ()

    @property
    def seconds(self) -> float:
        """Of it and all below it."""
        return math.fsum(frame.time_ns for _, frame in self.walk()) / 1e9

    @property
    def launches(self) -> int:
        """Of it and all below it."""
        return self.count + sum(child.launches for child in self.children)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Frame]]:
        """Yield it and all below it, each with its depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def read_hatchet(path: Path) -> Frame:
    """Read the root of a tree; frames without times or work are left out, as in proton-viewer.

    Raises:
        UsageError: it is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from None
    return parse_hatchet(text, path)


def parse_hatchet(text: str, path: Path) -> Frame:
    """Read the root of a tree from the text of a file; `path` is what errors name."""
    try:
        database = json.loads(text)
        if not isinstance(database, list) or not database:
            raise _unreadable(path, "it is no list of frames")
        root = _frame(database[0], 0)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from None
    return root or Frame(name="ROOT")


def _frame(node: Any, depth: int) -> Frame | None:  # noqa: ANN401 - JSON
    """Return a frame, and None for what has neither times nor work.

    Raises:
        ValueError: it is no frame.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"frames are more than {MAX_DEPTH} deep")
    try:
        name, metrics, children = node["frame"]["name"], node["metrics"], node["children"]
    except (KeyError, TypeError):
        raise ValueError("a frame lacks its name, metrics or children") from None
    if not isinstance(name, str) or not isinstance(metrics, dict) or not isinstance(children, list):
        raise ValueError("a frame's name, metrics or children are of another type")  # noqa: TRY004 - one error for all
    if name.startswith(_METADATA):
        return None
    numbers = {key.lower(): value for key, value in metrics.items() if _is_number(value)}
    kept = tuple(frame for child in children if (frame := _frame(child, depth + 1)) is not None)
    frame = Frame(
        name=name,
        time_ns=float(numbers.get("time (ns)", 0.0)),
        count=int(numbers.get("count", 0)),
        flops=math.fsum(value for key, value in numbers.items() if key.startswith("flops")),
        bytes_moved=float(numbers.get("bytes", 0.0)),
        children=kept,
    )
    is_empty = not (kept or frame.time_ns or frame.count or frame.flops or frame.bytes_moved)
    return None if is_empty else frame


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is no tree of Proton's",
        why=why,
        todo="name the file that ends in .hatchet, of flopwatch profile --out or of proton.finalize()",
    )
