"""How two listings differ: git's own diff, which is quick on tens of thousands of lines where Python's is not."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import GitError
from flopwatch.explain.listing import Line, masked

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT = 3
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_DIFFER = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffLine:
    """A line of a hunk: "-" base's, "+" head's, " " both sides' as head has it."""

    sign: str
    line: Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """Neighbouring lines that differ, with what stands around them; `base_start` and `head_start` count from 1."""

    base_start: int
    head_start: int
    lines: tuple[DiffLine, ...]

    @property
    def header(self) -> str:
        """The line that a unified diff begins it with."""
        base, head = (sum(entry.sign in signs for entry in self.lines) for signs in ("- ", "+ "))
        return f"@@ -{self.base_start},{base} +{self.head_start},{head} @@"


def hunks(level: str, base: Sequence[Line], head: Sequence[Line]) -> list[Hunk]:
    """Return where two listings of a level differ; nothing where they say the same.

    Lines that differ in the numbers of values and registers alone are taken for equal, since one more instruction
    numbers all that follow anew; where nothing else differs, these do.

    Raises:
        GitError: git cannot be run.
    """
    texts = [[line.text for line in side] for side in (base, head)]
    if texts[0] == texts[1]:
        return []
    recognised = [[masked(level, text) for text in side] for side in texts]
    if recognised[0] == recognised[1]:
        recognised = texts
    return _parsed(_diff(*recognised), base, head)


def unified(found: Sequence[Hunk], *, base: str, head: str) -> str:
    """Write hunks as a unified diff between what is called `base` and `head`; "" where there are none."""
    if not found:
        return ""
    lines = [f"--- {base}", f"+++ {head}"]
    for hunk in found:
        lines += [hunk.header, *(entry.sign + entry.line.text for entry in hunk.lines)]
    return "\n".join(lines) + "\n"


def _diff(base: Sequence[str], head: Sequence[str]) -> str:
    """Return the unified diff of two texts that differ."""
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        for name, lines in (("base", base), ("head", head)):
            Path(folder, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = ["git", "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv", "--text"]
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and the user's own git
                [*command, f"--unified={CONTEXT}", "base", "head"],
                cwd=folder,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            raise GitError("git is not installed", todo="install git; flopwatch compares texts by it") from None
    if done.returncode != _DIFFER:
        raise GitError("git diff failed", why=done.stderr.decode(errors="replace").strip())
    return done.stdout.decode(errors="replace")


def _parsed(text: str, base: Sequence[Line], head: Sequence[Line]) -> list[Hunk]:
    """Read a unified diff; its lines are taken from the listings, by their numbers."""
    found: list[tuple[int, int, list[DiffLine]]] = []
    old = new = 0
    for row in text.split("\n")[:-1]:  # a listing's own form feeds and such end no line
        if start := _HUNK.match(row):
            found.append((int(start[1]), int(start[2]), []))
            old, new = int(start[1]) - 1, int(start[2]) - 1
            # Of a side without lines git names line 0; no line of it is asked for.
        elif found:
            found[-1][2].append(DiffLine(sign=row[0], line=base[old] if row[0] == "-" else head[new]))
            old += row[0] != "+"
            new += row[0] != "-"
    return [Hunk(base_start=old, head_start=new, lines=tuple(lines)) for old, new, lines in found]
