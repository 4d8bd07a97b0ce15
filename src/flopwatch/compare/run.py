"""The steps of a comparison: what the sides are, what they return, how long they take."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.checkout import checkout
from flopwatch.compare.environments import Environments, require_flopwatch
from flopwatch.compare.matches import match_providers, match_sides
from flopwatch.compare.numbers import check_contenders
from flopwatch.compare.pairs import Pairs, overall_speed
from flopwatch.compare.result import Comparison, Kind
from flopwatch.config import load_config
from flopwatch.errors import MachineError, SuiteError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import Mode
from flopwatch.measure.machine import read_machine
from flopwatch.measure.nvml import Watch, require_gpu
from flopwatch.model import WORKING_TREE
from flopwatch.report.wording import count
from flopwatch.static.devices import find_device
from flopwatch.units import short_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.compare.result import ComparedCase
    from flopwatch.config import Config
    from flopwatch.measure.protocol import Hello

#: Fewer pairs than this give no interval: of 2^8 outcomes of the coins one is 0.4 %, less than the 0.5 % of a bound.
PAIRS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions:
    """What the user asked for.

    Attributes:
        base: commit to compare with; None chooses, as the gate does.
        head: the other commit; None is the working tree.
        base_python: the interpreter of the one environment; None is the one that runs, where `head_python` is given.
        head_python: likewise of the other.
        providers: head's and base's, both of the working tree.
        select: only cases whose name has this in it.
        pairs: fresh processes, or pairs of them.
    """

    base: str | None = None
    head: str | None = None
    base_python: Path | None = None
    head_python: Path | None = None
    providers: tuple[str, ...] = ()
    select: str = ""
    pairs: int = PAIRS

    @property
    def kind(self) -> Kind:
        """What the two sides are.

        Raises:
            UsageError: it is not clear.
        """
        environments = self.base_python is not None or self.head_python is not None
        if (self.base is not None) + environments + bool(self.providers) > 1:
            raise UsageError(
                "compare either commits, environments or providers",
                why="the command line names two of these",
                todo="environments and providers are those of the working tree: leave the commits out",
            )
        if self.providers and [len(self.providers), len(set(self.providers))] != [2, 2]:
            raise UsageError(
                f"two providers are compared, not {', '.join(self.providers)}",
                todo="name two that differ: --provider flopwatch --provider torch",
            )
        if self.providers:
            return Kind.PROVIDERS
        return Kind.ENVIRONMENTS if environments else Kind.COMMITS


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opened:
    """The two sides, what they are called, and the arguments that name them."""

    sides: Sides
    base: str
    head: str
    arguments: tuple[str, ...]


def run_compare(
    options: CompareOptions, root: Path, *, observer: Observer | None = None, toss: Callable[[], bool] | None = None
) -> Comparison:
    """Compare two sides on a GPU.

    Args:
        options: what to compare.
        root: the repository.
        observer: is told how far the run is.
        toss: a fair coin for each pair: whether head is slot 1. The operating system's by default.

    Raises:
        FlopwatchError: nothing could be compared.
    """
    start = time.monotonic()
    observer = observer or Observer()
    kind = options.kind
    config = load_config(root)
    require_gpu(_no_gpu)
    with contextlib.ExitStack() as stack:
        observer.step("checking out both sides")
        opened = _open(options, kind, config, root, stack)
        sides = stack.enter_context(opened.sides)
        sides.start_nurseries()
        with contextlib.ExitStack() as asked:
            base_hello, head_hello = (worker.hello for worker in sides.both(Mode.GPU, asked))
        if base_hello.gpu_uuid is None or head_hello.gpu_uuid is None:
            side = "head" if base_hello.gpu_uuid else "base"
            raise _no_gpu(f"torch on {side} finds none")
        cases = _matched(head_hello, options, kind, config)
        with Watch(head_hello.gpu_uuid) as watch:
            machine = read_machine(watch.gpu(), head_hello.versions)
            fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
            observer.step(f"checking numbers of {count(len(cases), 'case')}")
            cases = check_contenders(sides, cases, kind)
            pairs = Pairs(
                sides=sides,
                watch=watch,
                observer=observer,
                toss=toss or (lambda: bool(secrets.randbits(1))),
                cases={case.head.case: case for case in cases},
                together=kind is Kind.PROVIDERS,
            )
            pairs.measure_all(options.pairs)
        cases = tuple(pairs.timed(case) for case in cases)
        return Comparison(
            kind=kind,
            base=opened.base,
            head=opened.head,
            gpu=head_hello.gpu or "",
            machine=machine,
            base_versions=base_hello.versions,
            head_versions=head_hello.versions,
            cases=cases,
            speed=overall_speed(cases, pairs.logs),
            pairs=tuple(pairs.logs),
            command=_command(opened.arguments, options),
            unfit=pairs.unfit(),
            interrupted=pairs.interrupted,
            seconds=time.monotonic() - start,
            notes=(*sides.notes, *pairs.notes()),
        )


def _no_gpu(why: str) -> MachineError:
    return MachineError(
        "flopwatch compare needs a GPU",
        why=why,
        todo="flopwatch doctor tells what is missing; flopwatch gate compares all but the time without one",
    )


def _open(options: CompareOptions, kind: Kind, config: Config, root: Path, stack: contextlib.ExitStack) -> _Opened:
    device = find_device(config.device).key
    if kind is Kind.COMMITS:
        base = git.resolve(options.base or git.default_base(config.main, options.head, cwd=root), cwd=root)
        head = git.resolve(options.head, cwd=root) if options.head else None
        trees = [stack.enter_context(checkout(commit, config, root=root)) for commit in (base, head)]
        return _Opened(
            sides=Sides(config, device=device, base_tree=trees[0], head_tree=trees[1]),
            base=base,
            head=head or WORKING_TREE,
            arguments=(short_commit(base), *([short_commit(head)] if head else [])),
        )
    if kind is Kind.PROVIDERS:
        head_provider, base_provider = options.providers
        tree = stack.enter_context(checkout(None, config, root=root))
        return _Opened(
            sides=Sides(config, device=device, base_tree=tree, head_tree=tree),
            base=base_provider,
            head=head_provider,
            arguments=("--provider", head_provider, "--provider", base_provider),
        )
    pythons = {
        Arm.BASE: require_flopwatch(options.base_python or Path(sys.executable)),
        Arm.HEAD: require_flopwatch(options.head_python or Path(sys.executable)),
    }
    tree = stack.enter_context(checkout(None, config, root=root))
    names = [str(pythons[arm]) for arm in Arm]
    return _Opened(
        sides=Environments(config, device=device, tree=tree, pythons=pythons),
        base=names[0],
        head=names[1],
        arguments=("--base-python", names[0], "--head-python", names[1]),
    )


def _matched(hello: Hello, options: CompareOptions, kind: Kind, config: Config) -> tuple[ComparedCase, ...]:
    if kind is not Kind.PROVIDERS:
        return match_sides(hello, options.select, config)
    if hello.import_failures:
        causes = "; ".join(f"{name}: {cause}" for name, cause in hello.import_failures.items())
        raise SuiteError("a suite cannot be imported", why=causes, todo="import it in Python to see the traceback")
    return match_providers(hello.declared, options.providers, options.select, config)


def _command(sides: tuple[str, ...], options: CompareOptions) -> str:
    select = ("-k", options.select) if options.select else ()
    pairs = ("--pairs", str(options.pairs)) if options.pairs != PAIRS else ()
    return shlex.join(["flopwatch", "compare", *sides, *select, *pairs])
