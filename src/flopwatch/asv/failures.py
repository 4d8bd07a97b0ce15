"""Why cases could not be measured: asv stores only that they were not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.model import Failure, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptFailure:
    """One line of ``.flopwatch/failures/<commit>.jsonl``.

    Attributes:
        case: the case, or the asv benchmark where a whole module could not be measured.
        metrics: what is missing of it; empty for everything.
        failure: the cause.
    """

    case: str
    metrics: tuple[str, ...]
    failure: Failure


def keep_failures(root: Path, commit: str, failures: Iterable[KeptFailure]) -> None:
    """Append to the commit's file under `root`; without a failure nothing is written."""
    lines = b"".join(to_json(failure) + b"\n" for failure in failures)
    if not lines:
        return
    folder = root / ".flopwatch" / "failures"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{commit}.jsonl").open("ab") as file:
        file.write(lines)
