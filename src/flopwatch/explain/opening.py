"""The two sides of a question about compiled code, which needs no GPU: checked out, with a worker on each."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import Code, Mode, Worker, side_by_side
from flopwatch.model import WORKING_TREE
from flopwatch.static.device import Device
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What there is to ask.

    Attributes:
        base: hash of the base commit.
        head: hash of the head commit, or "working tree".
        device: that kernels are compiled for.
        workers: one a side that is wanted.
        trees: where the sides are checked out.
        codes: what a process of each side imports.
    """

    base: str
    head: str
    device: Device
    workers: dict[Arm, Worker]
    trees: dict[Arm, Path]
    codes: dict[Arm, Code]

    def source(self, arm: Arm, file: str, line: int) -> str:
        """Name a place in the source as whoever wrote it calls it: from the top of the repository, or of the library.

        Triton keeps what it compiled with the names that files had then: of a path, the longest end counts that is a
        file of the checkout.
        """
        if not file:
            return ""
        parts = Path(file).parts
        for start in range(1, len(parts)):
            name = Path(*parts[start:])
            if (self.trees[arm] / name).is_file():
                return f"{name.as_posix()}:{line}"
        return f"{file.rpartition('/site-packages/')[2] if '/site-packages/' in file else Path(file).name}:{line}"


@contextlib.contextmanager
def opened(
    root: Path,
    *,
    base: str | None,
    head: str | None,
    device: str | None,
    observer: Observer | None = None,
    both: bool = True,
) -> Iterator[Opened]:
    """Check both sides out and start a worker on each; both run head's suites.

    Args:
        root: the repository.
        base: commit to compare with; None chooses as the gate does.
        head: commit on trial; None is the working tree.
        device: the key of the GPU to compile for; None is the repository's.
        observer: is told what is done.
        both: whether base is wanted at all; where it is not, it has no worker.

    Raises:
        FlopwatchError: one of them is not to be had.
    """
    observer = observer or Observer()
    config = load_config(root)
    target = find_device(device or config.device)
    head_commit = git.resolve(head, cwd=root) if head else None
    base_commit = ""
    if both:
        base_commit = git.resolve(base or git.default_base(config.main, head, cwd=root), cwd=root)
    with contextlib.ExitStack() as stack:
        names = [commit[:8] for commit in (base_commit, head_commit) if commit]
        if names:
            observer.step(f"checking out {' and '.join(names)}")
        head_tree = stack.enter_context(checkout(head_commit, config, root=root))
        base_tree = stack.enter_context(checkout(base_commit, config, root=root)) if both else head_tree
        sides = Sides(config, device=target.key, base_tree=base_tree, head_tree=head_tree)
        stack.enter_context(sides)
        arms = tuple(Arm) if both else (Arm.HEAD,)
        workers = {arm: stack.enter_context(sides.worker(Mode.STATIC, arm)) for arm in arms}
        observer.step(f"compiling for {target.key}")
        side_by_side(lambda worker: worker.hello, list(workers.values()))
        yield Opened(
            base=base_commit,
            head=head_commit or WORKING_TREE,
            device=target,
            workers=workers,
            trees={Arm.BASE: base_tree, Arm.HEAD: head_tree},
            codes={arm: sides.code(arm) for arm in arms},
        )
