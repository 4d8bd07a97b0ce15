"""Every error that flopwatch raises on purpose.

    FlopwatchError
    ├── UsageError            exit 2: the command line asks for something impossible
    ├── ConfigError           exit 2: [tool.flopwatch] is wrong; all problems at once
    ├── SuiteError            exit 2: a benchmark suite cannot be loaded or declares nonsense
    │   └── BrokenImportError   exit 2: likewise, and not for want of what it imports
    ├── GitError              exit 2: the commit, the repository or the worktree is not to be had
    ├── UnsupportedTritonError  exit 2: the installed Triton is outside the supported range
    ├── UndecidedError        exit 3: nothing could be measured or compared
    └── MachineError          exit 4: the machine is unfit (no GPU where one is needed, busy)

A kernel that fails is none of these: it is a result (BROKEN), with its cause kept.
"""

from __future__ import annotations

import enum
from typing import ClassVar


class ExitCode(enum.IntEnum):
    """What the process tells its caller; the same for every verb."""

    OK = 0
    REGRESSED = 1
    USAGE = 2
    UNDECIDED = 3
    UNFIT = 4


class FlopwatchError(Exception):
    """An error with a line for each of: what happened, why, and what to do.

    Args:
        what: what did not work.
        why: the cause, as far as it is known.
        todo: what the reader can do about it.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __init__(self, what: str, *, why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.todo:
            lines.append(f"  do:  {self.todo}")
        return "\n".join(lines)


class UsageError(FlopwatchError):
    """The command line asks for something impossible."""


class ConfigError(FlopwatchError):
    """``[tool.flopwatch]`` is wrong."""


class SuiteError(FlopwatchError):
    """A benchmark suite cannot be loaded, or declares nonsense."""


class BrokenImportError(SuiteError):
    """A suite cannot be loaded, though all that it imports may be there: some of that raises something else."""


class GitError(FlopwatchError):
    """A commit, repository or worktree is not to be had."""


class UnsupportedTritonError(FlopwatchError):
    """The installed Triton is outside the range that flopwatch supports."""


class UndecidedError(FlopwatchError):
    """Nothing could be measured or compared."""

    exit_code = ExitCode.UNDECIDED


class MachineError(FlopwatchError):
    """The machine is unfit for what was asked."""

    exit_code = ExitCode.UNFIT
