"""What a worker keeps and tells together is what it tells one by one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.measure.client import CaseFailed, Code, Mode, Worker
from flopwatch.measure.loaded import loaded_files
from flopwatch.model import Case
from flopwatch.static.recorder import Autotune

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import ToyRepository

HALF, SINGLE = (Case(suite="Scale", values=("1000000", dtype, "flopwatch")) for dtype in ("float16", "float32"))
#: No block of 2^21 programs' worth fits: the first configuration fails, and the second is the first that fits.
TUNED = """\
@triton.autotune([triton.Config({"BLOCK": size}) for size in (2097152, 256, 512)], key=["n"])
@triton.jit
"""


@pytest.fixture
def worker(toy: ToyRepository) -> Iterator[Worker]:
    toy.edit("@triton.jit\n", TUNED)
    toy.edit("factor, BLOCK=256, num_warps=4)", "factor)")
    (toy.root / "factors.json").write_text("[3]", encoding="utf-8")
    toy.edit("import torch\n", f"import torch\nFACTORS = open({str(toy.root / 'factors.json')!r}).read()\n")
    toy.edit("    out = torch.empty_like(x)", "    assert x.dtype != torch.int8\n    out = torch.empty_like(x)")
    toy.edit("    return out\n", "    assert x.dtype != torch.float64 or out.sum().item() >= 0\n    return out\n")
    code = Code(
        benchmarks=toy.root / "benchmarks",
        tree=toy.root,
        source="src",
        packages=("toykernels",),
        device="h200",
    )
    with Worker(Mode.STATIC, code) as made:
        yield made


def test_cases_are_kept_until_they_are_gathered(worker: Worker, toy: ToyRepository) -> None:
    worker.keep(HALF)
    worker.keep(SINGLE)
    with pytest.raises(CaseFailed, match="AssertionError"):
        worker.keep(Case(suite="Scale", values=("1000000", "int8", "flopwatch")))
    gathered = worker.gather()
    assert [(entry.case, entry.facts) for entry in gathered.cases] == [
        (case, worker.facts(case)) for case in (HALF, SINGLE)
    ]
    facts = gathered.cases[0].facts
    configs = [(fact.config.partition(",")[0], fact.failure is None, fact.chosen) for fact in facts]
    assert configs == [("BLOCK=2097152", False, False), ("BLOCK=256", True, True), ("BLOCK=512", True, False)]
    assert all(fact.instructions["all"] for fact in facts if fact.failure is None)
    names = {Path(path).name for path in gathered.loaded}
    assert {"libtriton.so", "ptxas", "scale.py", "version.py", "site-packages"} <= names
    assert {str(toy.kernel), str(toy.root / "factors.json")} <= {*gathered.loaded}
    assert not [path for path in gathered.loaded if path.endswith((".pyc", ".cubin"))]
    assert worker.gather().cases == ()
    worker.keep(HALF, Autotune.FIRST)
    (first,) = worker.gather().cases
    assert [fact.config for fact in first.facts] == [fact.config for fact in facts[:2]]


def test_modules_and_the_folders_they_are_looked_for_in_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assembler").write_text("")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "assembler"))
    monkeypatch.setenv("TRITON_DEBUG", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = loaded_files()
    assert found == sorted(set(found))
    assert all(Path(path).is_absolute() for path in found)
    assert {str(tmp_path), str(tmp_path / "assembler"), __file__} <= {*found}


def test_a_trial_that_does_not_fit_hides_no_failure_of_the_host_code(worker: Worker) -> None:
    double = Case(suite="Scale", values=("1000000", "float64", "flopwatch"))
    for ask in (worker.keep, worker.facts):
        with pytest.raises(CaseFailed, match="values of a pretended tensor are read"):
            ask(double)
