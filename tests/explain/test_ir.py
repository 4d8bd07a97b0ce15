from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from flopwatch.errors import UsageError
from flopwatch.explain import ir
from flopwatch.explain.ir import MAX_NAME, IrOptions, file_name, run_ir
from flopwatch.explain.opening import Opened
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed
from flopwatch.measure.protocol import Compiled, DeclaredCase, Hello, IrText
from flopwatch.model import Case, Failure
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import ToyRepository

    from flopwatch.model import KernelFacts


def test_every_level_of_every_kernel_is_there_and_a_moved_file_makes_no_difference(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = toy.kernel.read_text(encoding="utf-8")
    moved = toy.kernel.with_name("moved.py")
    moved.write_text("# one line\n# and another\n" + text, encoding="utf-8")
    toy.kernel.write_text("from toykernels.moved import scale\n", encoding="utf-8")
    found = run_ir(IrOptions(select="Scale", base="HEAD"), toy.root)
    assert len(found.cases) == 2
    assert [kernel.level for kernel in found.kernels] == ["ttir", "ttgir", "llir", "ptx", "sass"] * 2
    assert all("scale_kernel" in kernel.text for kernel in found.kernels)
    assert [kernel.diff for kernel in found.kernels] == [""] * 10
    assert len({kernel.name for kernel in found.kernels}) == 2


def test_an_unknown_level_is_refused_before_anything_is_compiled(toy: ToyRepository) -> None:
    with pytest.raises(UsageError, match=r"no level is called 'cubin' on h200(.|\n)*ttir, ttgir, llir, ptx, sass"):
        run_ir(IrOptions(select="Scale", levels=("cubin",)), toy.root)


def test_names_of_files_are_safe_short_and_one_for_each_configuration(facts: Callable[..., KernelFacts]) -> None:
    names = [file_name(facts(config=f"{'A' * 300}=../../etc,num_stages={stages}")) for stages in (1, 2)]
    assert len(set(names)) == 2
    assert all("/" not in name and len(name) <= MAX_NAME + 7 for name in names)


CASES = [Case(suite="Norm", values=(name, "flopwatch")) for name in ("layer", "rms", "both", "broken")]


class FakeWorker:
    """Stands in for a worker whose cases launch kernels of one name; its texts name the case and the kernel."""

    def __init__(self, facts: dict[Case, tuple[KernelFacts, ...]]) -> None:
        self.facts = facts
        self.hello = Hello(
            gpu=None,
            gpu_uuid=None,
            compute_capability=None,
            versions={},
            declared=tuple(
                DeclaredCase(case=case, small=case, own=True, max_diff_eps=None, flops=1.0, bytes_moved=1.0)
                for case in CASES
            ),
            import_failures={},
        )

    def compile(self, case: Case) -> Compiled:
        if case not in self.facts:
            raise CaseFailed(Failure(kind="AttributeError", message="no such kernel"))
        return Compiled(facts=self.facts[case])

    def ir(self, case: Case, kernels: Sequence[tuple[str, str, str]], levels: Sequence[str]) -> tuple[IrText, ...]:
        return tuple(
            IrText(kernel=kernel, variant=variant, config=config, level=level, text=f"{case.id} {kernel}")
            for kernel, variant, config in kernels
            for level in levels
        )


def test_kernels_of_one_name_are_written_each_and_once(
    facts: Callable[..., KernelFacts], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    layer = facts(kernel="norm", code_fingerprint="layer")
    rms = facts(kernel="norm", registers=32)
    launched = (layer,), (rms,), (rms, facts(kernel="norm (2)", code_fingerprint="layer"))
    worker = FakeWorker(dict(zip(CASES, launched, strict=False)))

    @contextlib.contextmanager
    def stand_in(_root: Path, **_: object) -> Iterator[Opened]:
        yield Opened(
            base="",
            head="working tree",
            device=find_device("h200"),
            workers=cast("Any", {Arm.HEAD: worker}),
            trees={Arm.HEAD: tmp_path},
            codes={},
        )

    monkeypatch.setattr(ir, "opened", stand_in)
    (tmp_path / "pyproject.toml").write_text('[tool.flopwatch]\npackages = ["norms"]\n', encoding="utf-8")
    found = run_ir(IrOptions(select="Norm", levels=("ttir",)), tmp_path)
    assert [(kernel.kernel, kernel.text) for kernel in found.kernels] == [
        ("norm", "Norm[layer,flopwatch] norm"),
        ("norm (2)", "Norm[rms,flopwatch] norm"),
    ]
    assert len({kernel.name for kernel in found.kernels}) == 2
    assert found.failures == ("head: Norm[broken,flopwatch]: AttributeError: no such kernel",)
