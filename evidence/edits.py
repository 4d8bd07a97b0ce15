"""Changes of the files of a checkout, by what they replace: a file that has moved on makes them fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = "src/flopwatch/kernels"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A change of one place in a file: `old` is there once, and `new` instead of it afterwards."""

    path: str
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Edit the file of a checkout.

        Raises:
            UsageError: there is nothing to edit, or it is not clear where.
        """
        file = tree / self.path
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if (count := text.count(self.old)) != 1:
            raise UsageError(
                f"{self.path} has {count} places to edit",
                why=f"{self.old.strip()!r} is looked for, and is to be there once",
                todo="name what the file has now where the edit is made",
            )
        file.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A file that gets another name."""

    path: str
    to: str

    def apply(self, tree: Path) -> None:
        """Move the file of a checkout.

        Raises:
            UsageError: there is none, or the place is taken.
        """
        if not (tree / self.path).is_file() or (tree / self.to).exists():
            raise UsageError(
                f"{self.path} cannot become {self.to}", todo="name files that exist where the move is made"
            )
        (tree / self.path).rename(tree / self.to)


Change: TypeAlias = Edit | Move


def edit(path: str, old: str, new: str) -> Edit:
    """Return the edit of a file."""
    return Edit(path=path, old=old, new=new)
