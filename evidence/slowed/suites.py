"""Every bundled suite, of the same name and with the same cases, with a spin behind each call.

How many turns each case spins is read anew whenever its inputs are made, from the file that the environment names: the
two sides of a pair have one each. A case that the file does not name spins for none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flopwatch.model import Case
from flopwatch.suite import Suite, discover

from . import TURNS_VARIABLE
from .spin import spin

if TYPE_CHECKING:
    from collections.abc import Callable

BUNDLED = Path(__file__).parents[2] / "benchmarks"


class Slowed:
    """What is put before a suite's own methods."""

    _turns = 0
    _sink: torch.Tensor

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Make the suite's own inputs, and look up how long to spin."""
        case = Case(suite=type(self).__name__, values=(*values, self.own_provider))  # type: ignore[attr-defined] # of the suite
        turns = json.loads(Path(os.environ[TURNS_VARIABLE]).read_text(encoding="utf-8"))
        self._turns = turns.get(case.id, 0)
        self._sink = torch.zeros(1, dtype=torch.int32, device="cuda")
        made: tuple[Any, ...] = super().inputs(*values, seed=seed)  # type: ignore[misc] # of the suite
        return made

    def call(self, provider: str) -> Callable[..., torch.Tensor]:
        """Return the suite's own call with the spin behind it."""
        own = super().call(provider)  # type: ignore[misc] # of the suite

        def slowed(*inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
            result: torch.Tensor = own(*inputs)
            spin(self._turns, self._sink)
            return result

        return slowed


def slowed(suite: type[Suite]) -> type[Suite]:
    """Return the suite with a spin behind each call."""
    return type(suite.__name__, (Slowed, suite), {"__module__": __name__, "__doc__": suite.__doc__})


globals().update({name: slowed(suite) for name, suite in discover(BUNDLED).suites.items()})
