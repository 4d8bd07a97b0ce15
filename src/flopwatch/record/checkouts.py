"""The checkouts of a commit and of the anchor, both under the suites of the working tree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.gate.sides import Arm, Sides

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.config import Config
    from flopwatch.measure.client import Code


class Checkouts(Sides):
    """Head is the commit, base the anchor; without an anchor base is the commit too, and is not asked.

    Every commit runs the suites of the working tree, as asv does, so that one ruler measures the whole history, and a
    new suite measures old commits.

    Args:
        config: of the repository.
        device: the GPU to compile for.
        suites: a copy of the working tree's benchmarks folder.
        tree: the commit's checkout.
        anchor_tree: the anchor's.
        python: the interpreter; None is the one that runs now.
    """

    def __init__(
        self,
        config: Config,
        *,
        device: str,
        suites: Path,
        tree: Path,
        anchor_tree: Path | None = None,
        python: Path | None = None,
    ) -> None:
        super().__init__(config, device=device, base_tree=anchor_tree or tree, head_tree=tree)
        self._suites = suites
        self._python = python

    def code(self, arm: Arm) -> Code:
        """Return what a worker of that arm imports."""
        # A near tie of the tuner must not fall another way at every commit.
        return replace(super().code(arm), benchmarks=self._suites, keep_choices=True, python=self._python)
