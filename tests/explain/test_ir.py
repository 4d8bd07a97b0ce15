from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import UsageError
from flopwatch.explain.ir import MAX_NAME, IrOptions, file_name, run_ir

if TYPE_CHECKING:
    from collections.abc import Callable

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
