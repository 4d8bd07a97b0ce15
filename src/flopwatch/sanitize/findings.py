"""What a sanitizer found: one record for all that a line of a kernel does wrong in the same way."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(enum.Enum):
    """What is wrong.

    OUT_OF_BOUNDS: an access outside the allocation that the kernel was given, or outside any.
    OUTSIDE_VIEW: an access inside the allocation, to no element of the tensor that the kernel was given.
    MISALIGNED: an access at an address that is no multiple of its width.
    UNINITIALISED: a read of what nobody has written.
    NEVER_WRITTEN: an element of the result that nobody has written.
    RACE: two programs, threads or lanes, at one address, one of them writing another value, in no order.
    BARRIER: threads that do not meet at a barrier, or one that is misused.
    OTHER: whatever else a tool reports; `Finding.what` has its words.
    """

    OUT_OF_BOUNDS = "out of bounds"
    OUTSIDE_VIEW = "outside the view"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised"
    NEVER_WRITTEN = "never written"
    RACE = "race"
    BARRIER = "barrier"
    OTHER = "other"


class Access(enum.Enum):
    """What the kernel did there."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault, at one line of one kernel; what is not known is empty or None.

    Attributes:
        kind: what is wrong.
        what: a sentence about its first occurrence.
        kernel: the function that was launched.
        file: of the source, from the top of the repository where it lies there.
        line: in that file; 0 is not known.
        access: read, write or atomic.
        argument: the name of the kernel's argument that the address was made of.
        element_bytes: that one lane, or one thread, moves.
        address: as the tool has it, such as "0x7f3c7ec000fc"; in the interpreter, bytes from the argument's first.
        block: of the first occurrence: the program's place in the grid.
        thread: likewise its place in the block; None in the interpreter, which has no threads.
        count: how often: elements in the interpreter, threads on a GPU, hazards of bytes of a race there.
        own: whether it is in the code of a kernel of Triton's that the case launches; others are torch's and its
            libraries', and what a compiler adds.
    """

    kind: Kind
    what: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    access: Access | None = None
    argument: str = ""
    element_bytes: int | None = None
    address: str = ""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    count: int = 1
    own: bool = True

    @property
    def place(self) -> tuple[object, ...]:
        """What two occurrences of the same fault have in common."""
        return (self.kind, self.kernel, self.file, self.line, self.access, self.argument, self.own)

    @property
    def launched(self) -> str:
        """The kernel's name, without the arguments that a tool may tell.

        >>> Finding(kind=Kind.RACE, what="", kernel="add_kernel(float *)").launched
        'add_kernel'
        """
        return self.kernel.partition("(")[0]

    @property
    def source(self) -> str:
        """The file and the line.

        >>> Finding(kind=Kind.RACE, what="", file="kernels/add.py", line=12).source
        'kernels/add.py:12'
        """
        return f"{self.file}:{self.line}" if self.line else self.file


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each fault once, with its first occurrence and the number of all.

    >>> fault = Finding(kind=Kind.RACE, what="first", line=3, count=2)
    >>> [(each.what, each.count) for each in merged([fault, Finding(kind=Kind.RACE, what="second", line=3)])]
    [('first', 3)]
    """
    found: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        before = found.get(finding.place)
        found[finding.place] = finding if before is None else replace(before, count=before.count + finding.count)
    return tuple(found.values())
