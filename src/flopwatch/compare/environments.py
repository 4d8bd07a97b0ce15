"""Two interpreters on one working tree, each with its own torch and Triton."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import __version__
from flopwatch.errors import UsageError
from flopwatch.gate.sides import Arm, Sides

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flopwatch.config import Config
    from flopwatch.measure.client import Code

_DEADLINE_S = 120.0
#: What the worker and its parent must agree on is the version: they talk in its records.
_ASK = """
import contextlib, json, sys
with contextlib.redirect_stdout(sys.stderr):
    import flopwatch, flopwatch.measure.session, torch, triton
print(json.dumps(flopwatch.__version__))
"""


class Environments(Sides):
    """Both sides run one tree, each by its own interpreter."""

    def __init__(self, config: Config, *, device: str, tree: Path, pythons: Mapping[Arm, Path]) -> None:
        super().__init__(config, device=device, base_tree=tree, head_tree=tree)
        self.pythons = pythons

    def code(self, arm: Arm) -> Code:
        """Return what a worker of that arm imports, and with which Python."""
        return replace(super().code(arm), python=self.pythons[arm])


def require_flopwatch(python: Path) -> Path:
    """Find an interpreter, and make sure that workers can run in it.

    The path that is returned is absolute, with its links: a virtual environment is known by the link to its Python.

    Raises:
        UsageError: it is not there, or cannot import what workers need.
    """
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"{python} cannot be run", todo="name the Python of a virtual environment: env/bin/python")
    name = f"{python} cannot run flopwatch"
    todo = f"{python} -m pip install flopwatch=={__version__}, beside the torch and triton to be compared"
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [found, "-P", "-c", _ASK], capture_output=True, text=True, check=False, timeout=_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(name, why=str(error), todo=todo) from None
    if done.returncode:
        raise UsageError(name, why=(done.stderr.strip().splitlines() or ["it says nothing"])[-1], todo=todo)
    version = _version(done.stdout)
    if version != __version__:
        raise UsageError(name, why=f"it has flopwatch {version}, this is {__version__}", todo=todo)
    return Path(found).absolute()


def _version(answer: str) -> str:
    try:
        return str(json.loads(answer))
    except json.JSONDecodeError:
        return "of an unknown version"
