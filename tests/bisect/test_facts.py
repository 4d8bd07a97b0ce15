from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

import pytest

from flopwatch.bisect import Bisection, BisectOptions, Outcome, run_bisect
from flopwatch.bisect.facts import FACTS
from flopwatch.errors import ExitCode, UsageError
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.protocol import Hello
from flopwatch.model import Case, Failure, KernelFacts, from_json, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bisect.conftest import Line
    from tests.conftest import ToyRepository

from tests.compare.conftest import declared

CASE = "Add[1024,flopwatch]"


class ReadingWorker:
    """Stands in for the compiler: registers are what the checkout's seconds say, in units of 10 µs."""

    def __init__(self, tree: Path) -> None:
        self.source = (tree / "src" / "toykernels" / "__init__.py").read_text(encoding="utf-8")
        self.hello = Hello(
            gpu=None,
            gpu_uuid=None,
            compute_capability=None,
            versions={},
            declared=(declared("Add"),),
            import_failures={},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def facts(self, case: Case) -> tuple[KernelFacts, ...]:
        if "raise" in self.source:
            raise CaseFailed(Failure(kind="SuiteError", message=f"no suite {case.suite!r}\n why\n planted"))
        registers = round(float(self.source.split()[2]) / 1e-5)
        whole = KernelFacts(kernel="k", device="h200", config="", variant="", chosen=True, registers=registers)
        beside = KernelFacts(kernel="k", device="h200", config="b", variant="", chosen=False, registers=255)
        return (whole, beside)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(sides: Sides, mode: Mode, arm: Arm) -> Worker:
        assert mode is Mode.STATIC
        return cast("Worker", ReadingWorker(sides.trees[arm]))

    monkeypatch.setattr(Sides, "worker", worker)


def bisect(repository: ToyRepository, good: str, *, case: str = CASE) -> Bisection:
    return run_bisect(BisectOptions(case=case, good=good, bad="HEAD", fact="registers"), repository.root)


@pytest.mark.usefixtures("compiler")
def test_the_commit_that_took_more_registers_is_found_without_pairs(line: Line) -> None:
    good, *_ = [line.takes(4e-4) for _ in range(4)]
    culprit = line.takes(6.4e-4)
    line.takes(6.3e-4)
    found = bisect(line.toy, good)
    assert found.culprit is not None
    assert found.culprit.hash == culprit
    assert (found.good_value, found.bad_value) == (40, 63)
    assert (found.parent_value, found.culprit_value) == (40, 64)
    assert found.pairs == ()
    assert (found.device, found.exit_code) == ("h200", ExitCode.OK)
    assert from_json(to_json(found), Bisection) == found


@pytest.mark.usefixtures("compiler")
def test_a_commit_that_cannot_be_compiled_is_skipped_with_where_and_why(line: Line) -> None:
    good, _ = line.takes(4e-4), line.takes(4e-4)
    line.fails()
    line.takes(4e-4)
    culprit = line.takes(6.4e-4)
    found = bisect(line.toy, good)
    assert found.culprit is not None
    assert found.culprit.hash == culprit
    (skipped,) = [step for step in found.steps if step.outcome is Outcome.SKIPPED]
    assert skipped.reason == "cannot be compiled (SuiteError: no suite 'Add' planted)"


@pytest.mark.usefixtures("compiler")
def test_the_same_number_at_both_ends_is_no_case_for_a_bisection(line: Line) -> None:
    good, _ = line.takes(4e-4), line.takes(4e-4)
    found = bisect(line.toy, good)
    assert (found.differs, found.good_value, found.bad_value) == (False, 40, 40)
    assert found.exit_code == ExitCode.UNDECIDED


@pytest.mark.usefixtures("compiler")
def test_an_end_that_cannot_be_compiled_is_told(line: Line) -> None:
    good = line.fails()
    line.takes(4e-4)
    found = bisect(line.toy, good)
    assert found.reason == f"{good[:12]} cannot be compiled (SuiteError: no suite 'Add' planted)"
    assert found.exit_code == ExitCode.UNDECIDED


def test_a_fact_that_is_not_known_is_refused(line: Line) -> None:
    options = BisectOptions(case=CASE, good="HEAD", bad="HEAD", fact="colour")
    with pytest.raises(UsageError, match="no such fact: colour"):
        run_bisect(options, line.toy.root)


def test_facts_are_of_all_kernels_of_a_case() -> None:
    small, large = (
        KernelFacts(
            kernel="k",
            device="h200",
            config="",
            variant="",
            chosen=True,
            registers=registers,
            shared_bytes=registers * 10,
            spill_store_bytes=4,
            spill_load_bytes=4,
        )
        for registers in (32, 64)
    )
    found = {name: fact((small, large)) for name, fact in FACTS.items()}
    assert found == {"registers": 64, "spills": 16, "shared_memory": 640}


def test_real_kernels_are_compiled_at_every_commit(toy: ToyRepository) -> None:
    # The middle commit changes words alone; the last one loads 16 times as many elements a thread.
    good = toy.git("rev-parse", "HEAD").strip()
    toy.edit('"""A kernel of somebody else\'s."""', '"""A kernel."""')
    toy.commit("other words")
    toy.edit("cdiv(x.numel(), 256)", "cdiv(x.numel(), 4096)")
    toy.edit("BLOCK=256", "BLOCK=4096")
    culprit = toy.commit("larger blocks")
    found = bisect(toy, good, case="Scale[1000000,float32,flopwatch]")
    assert found.culprit is not None
    assert found.culprit.hash == culprit
    assert found.parent_value is not None
    assert found.culprit_value is not None
    assert found.parent_value < found.culprit_value
    assert found.exit_code == ExitCode.OK
