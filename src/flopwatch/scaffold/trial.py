"""Try suites before one is written: each by the gate's own workers, in a folder that is thrown away.

A guess that does not run, or a formula that does not agree with the kernel, is no finding about the kernel; it is
passed over. What is left has run as the gate will run it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.measure.client import CaseFailed, Code, Mode, Worker
from flopwatch.model import Case
from flopwatch.scaffold.arguments import CannotTell, Guess, guesses
from flopwatch.scaffold.formulas import Formula, formulas_for
from flopwatch.scaffold.kernels import Launcher
from flopwatch.scaffold.suite_text import SuitePlan, shape_text, suite_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flopwatch.model import Failure, Numbers
    from flopwatch.scaffold.kernels import Kernel, Module
    from flopwatch.scaffold.layout import Layout

#: All trials together: a kernel that hangs in the interpreter must not keep `flopwatch init`.
LIMIT_S = 120.0
#: Starting a worker and compiling one size for each dtype: a row of a million elements in one program takes minutes.
_COMPILE_LIMIT_S = 30.0
#: Launch functions that are tried.
MOST_TRIED = 6
#: Sizes for the interpreter: no two alike, so that a mixed-up dimension shows. Odd ones find mask errors; some kernels
#: take powers of two only, in the last dimension of their first tensor or everywhere.
_ODD, _EVEN = (33, 65, 47, 19, 7), (32, 64, 16, 128, 8)
#: Of dimensions before the last two of every tensor, such as batches: a program each, and the interpreter is slow.
_ODD_BATCH, _EVEN_BATCH = (3, 5, 7), (2, 4, 8)
#: Of a single dimension: several programs.
_ODD_VECTOR, _EVEN_VECTOR = 1001, 1024
_ROW = 64
#: Likewise at full size, in bits: the last two dimensions share what is left.
_BATCH_BITS = (2, 4, 2)
#: Elements of the largest tensor at full size: the first that compiles is taken.
_FULL_BITS = (24, 20, 14)
_SEEDS = (0, 1, 2)
_DTYPES = ("float16", "float32")
#: A matrix product of float32 runs in TF32 on a GPU, whose error is a thousand times float32's epsilon.
_PRODUCT_DTYPES = ("float16", "bfloat16")
#: The gate's own ceiling, `max_diff_eps` of `flopwatch.config`.
_CEILING_EPS = 8.0
#: No kernel computes this; it is held against one to see whether it runs.
_PROBE = Formula(reference="torch.zeros(0, 7, 0, dtype=torch.float64)", flops="0", written="0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of the launch functions.

    Attributes:
        plan: the suite to write; None where no function could be called.
        launcher: the function that it is of, or that a template should be of; None where there is none.
        reasons: why functions were passed over.
    """

    plan: SuitePlan | None = None
    launcher: Launcher | None = None
    reasons: tuple[str, ...] = ()


def find_suite(
    launchers: Sequence[Launcher],
    modules: Mapping[str, Module],
    kernels: dict[str, Kernel],
    layout: Layout,
    *,
    root: Path,
) -> Outcome:
    """Try the launch functions in their order.

    Returns:
        The first whose result one of the formulas computes, else the first that could be called.
    """
    reasons: list[str] = []
    partial: Outcome | None = None
    with _Trials(root, layout) as trials:
        for launcher in launchers[:MOST_TRIED]:
            try:
                module = modules[launcher.path]
                plan = trials.try_launcher(launcher, module, kernels | {own.name: own for own in module.kernels})
            except CannotTell as error:
                reasons.append(f"{launcher.name} ({launcher.path}:{launcher.line}): {error}")
                continue
            if plan.formula is not None:
                return Outcome(plan=plan, launcher=launcher, reasons=tuple(reasons))
            partial = partial or Outcome(plan=plan, launcher=launcher)
    if partial is not None:
        return replace(partial, reasons=tuple(reasons))
    return Outcome(launcher=next(iter(launchers), None), reasons=tuple(reasons))


class _Trials(contextlib.AbstractContextManager["_Trials"]):
    """The workers, the folder of the suites that they try, and the time that is left."""

    def __init__(self, root: Path, layout: Layout) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="flopwatch-init-")))
        self._stack.enter_context(_without_bytecode())
        self._root = root
        self._layout = layout
        self._live: set[Worker] = set()
        self._over = threading.Event()
        self._timer = threading.Timer(LIMIT_S, self._stop)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._stack.close()

    def try_launcher(self, launcher: Launcher, module: Module, kernels: Mapping[str, Kernel]) -> SuitePlan:
        """Return a plan that runs, with its formula where one agrees.

        Raises:
            CannotTell: no plan does.
        """
        launches = [kernels[name] for name in launcher.kernels]
        if any(kernel.gluon for kernel in launches):
            raise CannotTell("Triton's interpreter does not run Gluon, so that nothing could be tried")
        dtypes = _PRODUCT_DTYPES if any(kernel.multiplies for kernel in launches) else _DTYPES
        plans = [
            SuitePlan(
                module=self._layout.module_of(launcher.path),
                function=launcher.name,
                guess=guess,
                full=_full_sizes(guess, _FULL_BITS[0]),
                small=small,
                dtypes=dtypes,
            )
            for guess in guesses(launcher, module, kernels)
            for small in _small_sizes(guess)
        ]
        if not plans:
            raise CannotTell("it has more dimensions than a trial knows sizes for")
        found = self._interpret(plans)
        return self._fit(found)

    def _interpret(self, plans: Sequence[SuitePlan]) -> SuitePlan:
        """Return the first plan that a formula agrees with, else the first that runs."""
        named = {f"Try{index}": [plan, *_with_formulas(plan)] for index, plan in enumerate(plans)}
        runnable: SuitePlan | None = None
        why = ""
        tried = {
            f"{name}Formula{index}": replace(plan, formula=plan.formula or _PROBE)
            for name, candidates in named.items()
            for index, plan in enumerate(candidates)
        }
        with self._worker(Mode.INTERPRET, tried) as worker:
            for name, (plan, *candidates) in named.items():
                probed = {dtype: self._numbers(worker, f"{name}Formula0", plan, dtype, 0) for dtype in plan.dtypes}
                why = next((answer for answer in probed.values() if isinstance(answer, str)), why)
                dtypes = [dtype for dtype, answer in probed.items() if not isinstance(answer, str)]
                for index, candidate in enumerate(candidates, 1):
                    agreeing: list[str] = []
                    for dtype in reversed(dtypes):  # what the widest disagrees with, no other needs to be asked
                        if all(
                            _agrees(self._numbers(worker, f"{name}Formula{index}", plan, dtype, seed))
                            for seed in _SEEDS
                        ):
                            agreeing.insert(0, dtype)
                        elif not agreeing:
                            break
                    if agreeing:
                        return replace(candidate, dtypes=tuple(agreeing))
                if dtypes:
                    runnable = runnable or replace(plan, dtypes=tuple(dtypes))
        if runnable is None:
            raise CannotTell(f"it could not be called with made-up inputs: {why}")
        return runnable

    def _numbers(self, worker: Worker, name: str, plan: SuitePlan, dtype: str, seed: int) -> Numbers | str:
        """Return how far the result is from the reference, or why the kernel does not run."""
        try:
            return worker.numbers(Case(suite=name, values=(shape_text(plan.small), dtype, "flopwatch")), seed=seed)
        except CaseFailed as error:
            return _brief(error.failure)

    def _fit(self, plan: SuitePlan) -> SuitePlan:
        """Choose the largest full size at which the kernel compiles in time; where none does, the smallest."""
        for bits in _FULL_BITS:
            plan = replace(plan, full=_full_sizes(plan.guess, bits))
            with self._worker(Mode.STATIC, {"Try": plan}) as worker:
                impatience = threading.Timer(_COMPILE_LIMIT_S, worker.abandon)
                impatience.daemon = True
                impatience.start()
                cases = [Case(suite="Try", values=(shape_text(plan.full), dtype, "flopwatch")) for dtype in plan.dtypes]
                compiled = all(_compiles(worker, case) for case in cases)
                impatience.cancel()
            if compiled:
                break
        return plan

    @contextlib.contextmanager
    def _worker(self, mode: Mode, plans: Mapping[str, SuitePlan]) -> Iterator[Worker]:
        """Start a worker whose suites are the plans, by name; all are of one function."""
        folder = self._folder / f"trial{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        first = next(iter(plans.values()))
        lines = [f"import torch\n\nfrom flopwatch import Suite\nfrom {first.module} import {first.function}\n"]
        lines += [suite_class(plan, name) for name, plan in plans.items()]
        if mode is Mode.INTERPRET:
            outputs = [index for index, tensor in enumerate(first.guess.tensors) if tensor.output]
            lines.append("from flopwatch.scaffold.rehearsal import rehearse\n")
            for _, names in itertools.groupby(plans, key=lambda name: name.partition("Formula")[0]):
                lines.append(f"rehearse([{', '.join(names)}], {outputs})\n")
        (folder / "suites.py").write_text("\n\n".join(lines), encoding="utf-8")
        code = Code(benchmarks=folder, tree=self._root, source=self._layout.source, packages=self._layout.packages)
        with Worker(mode, code) as worker:
            self._live.add(worker)
            if self._over.is_set():
                worker.abandon()
            try:
                yield worker
            finally:
                self._live.discard(worker)

    def _stop(self) -> None:
        self._over.set()
        for worker in tuple(self._live):
            worker.abandon()


@contextlib.contextmanager
def _without_bytecode() -> Iterator[None]:
    """Let processes that are started here leave no ``__pycache__`` in the repository."""
    name = "PYTHONDONTWRITEBYTECODE"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _with_formulas(plan: SuitePlan) -> list[SuitePlan]:
    return [replace(plan, formula=formula) for formula in formulas_for(plan.guess)]


def _agrees(numbers: Numbers | str) -> bool:
    return (
        not isinstance(numbers, str)
        and numbers.finite
        and numbers.max_diff_eps is not None
        and numbers.max_diff_eps <= _CEILING_EPS
    )


def _compiles(worker: Worker, case: Case) -> bool:
    try:
        return not any(fact.failure for fact in worker.facts(case))
    except CaseFailed:
        return False


def _brief(failure: Failure) -> str:
    return f"{failure.kind}: {(failure.message.splitlines() or [''])[-1]}"


def _batches(guess: Guess) -> tuple[str, ...]:
    """Return the sizes that are before the last two of every tensor that has them."""
    inner = {size for tensor in guess.tensors for size in tensor.dimensions[-2:]}
    return tuple(size for size in guess.sizes if size not in inner)


def _small_sizes(guess: Guess) -> list[dict[str, int]]:
    """Return the sizes to try, the best first; none for a guess with more dimensions than there are sizes.

    >>> from flopwatch.scaffold.arguments import TensorGuess
    >>> guess = Guess(
    ...     arguments=("x",), tensors=(TensorGuess(name="x", dimensions=("b", "m", "n")),), sizes=tuple("bmn")
    ... )
    >>> _small_sizes(guess)
    [{'b': 3, 'm': 33, 'n': 65}, {'b': 3, 'm': 33, 'n': 64}, {'b': 2, 'm': 32, 'n': 64}]
    """
    if len(guess.sizes) == 1:
        return [{guess.sizes[0]: size} for size in (_ODD_VECTOR, _EVEN_VECTOR)]
    batches = _batches(guess)
    inner = [size for size in guess.sizes if size not in batches]
    if len(batches) > len(_ODD_BATCH) or len(inner) > len(_ODD):
        return []
    odd, even = (
        dict(zip(batches, of_batches, strict=False)) | dict(zip(inner, of_others, strict=False))
        for of_batches, of_others in ((_ODD_BATCH, _ODD), (_EVEN_BATCH, _EVEN))
    )
    tries = [odd, odd | {guess.tensors[0].dimensions[-1]: _ROW}, even]
    return [{size: values[size] for size in guess.sizes} for values in tries]


def _full_sizes(guess: Guess, bits: int) -> dict[str, int]:
    """Return sizes, powers of two, such that the largest tensor has 2^bits elements at most.

    >>> from flopwatch.scaffold.arguments import TensorGuess
    >>> guess = Guess(
    ...     arguments=("x",), tensors=(TensorGuess(name="x", dimensions=("b", "m", "n")),), sizes=tuple("bmn")
    ... )
    >>> _full_sizes(guess, 24)
    {'b': 4, 'm': 2048, 'n': 2048}
    """
    exponents = dict(zip(_batches(guess), _BATCH_BITS, strict=False))
    left = [
        (bits - sum(exponents.get(size, 0) for size in tensor.dimensions))
        // max(sum(size not in exponents for size in tensor.dimensions), 1)
        for tensor in guess.tensors
    ]
    return {size: 1 << exponents.get(size, min(left)) for size in guess.sizes}
