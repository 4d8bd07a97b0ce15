from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import FlopwatchError, SuiteError, UndecidedError
from flopwatch.gate import GateOptions, GateResult, run_gate
from flopwatch.model import Mark, from_json, to_json

if TYPE_CHECKING:
    from tests.conftest import ToyRepository


def gate(toy: ToyRepository, **options: str) -> GateResult:
    return run_gate(GateOptions(**options), toy.root, progress=lambda _: None)


def marks(result: GateResult) -> set[Mark | None]:
    return {verdict.mark for verdict in result.verdicts}


def test_a_comment_changes_nothing(toy: ToyRepository) -> None:
    toy.edit("@triton.jit", "# a comment moves every line\n\n@triton.jit")
    result = gate(toy)
    assert result.head == "working tree"
    assert result.fact_changes == ()
    assert not marks(result) & {Mark.BROKEN, Mark.SLOWER}


def test_a_planted_wrong_result_is_broken(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * factor * 1.01")
    toy.commit("faster, somehow")
    result = gate(toy)
    assert marks(result) == {Mark.BROKEN}
    assert result.exit_code == 1
    assert "eps" in result.verdicts[0].reason


def test_a_planted_exception_is_broken_with_its_cause(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    raise ArithmeticError('no scale today')")
    result = gate(toy)
    assert marks(result) == {Mark.BROKEN}
    assert "ArithmeticError: no scale today" in result.verdicts[0].reason


def test_a_kernel_that_no_longer_compiles_fails_the_gate(toy: ToyRepository) -> None:
    # The interpreter lets this through: only compiling shows it.
    toy.edit("    tl.store(out + offsets", "    tl.static_assert(BLOCK < 256, 'too wide')\n    tl.store(out + offsets")
    assert gate(toy).exit_code == 1


def test_a_changed_launch_is_shown_in_the_facts(toy: ToyRepository) -> None:
    toy.edit("num_warps=4", "num_warps=8")
    result = gate(toy)
    assert any("num_warps=8" in change.text for change in result.fact_changes)


def test_a_suite_that_only_head_can_run_is_new_not_broken(toy: ToyRepository) -> None:
    toy.git("mv", "src/toykernels", "src/renamed")
    toy.git("commit", "-qm", "away")
    toy.git("mv", "src/renamed", "src/toykernels")
    toy.commit("and back")
    result = gate(toy)
    assert not marks(result) & {Mark.BROKEN, Mark.SLOWER}
    assert {verdict.reason for verdict in result.verdicts} == {"new: base cannot run it"}
    assert result.exit_code == 0


def test_commits_can_be_named(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * factor * 1.01")
    toy.commit("wrong")
    toy.edit("mask=mask) * factor * 1.01", "mask=mask) * factor")
    toy.commit("right again")
    assert gate(toy, base="HEAD~1", head="HEAD").exit_code == 0
    assert gate(toy, base="HEAD~2", head="HEAD~1").exit_code == 1
    assert toy.git("worktree", "list").count("\n") == 1


def test_a_selection_runs_what_it_names(toy: ToyRepository) -> None:
    toy.commit("empty")
    assert [verdict.case.values[1] for verdict in gate(toy, select="FLOAT32").verdicts] == ["float32"]
    with pytest.raises(UndecidedError, match="no case matches 'Matmul'"):
        gate(toy, select="Matmul")


def test_a_suite_that_head_cannot_import_is_an_error_that_names_it(toy: ToyRepository) -> None:
    toy.commit("empty")
    toy.suite.write_text("import no_such_module\n", encoding="utf-8")
    with pytest.raises(SuiteError, match="no_such_module"):
        gate(toy)


def test_an_unknown_device_is_an_error_that_lists_the_known(toy: ToyRepository) -> None:
    toy.commit("empty")
    with pytest.raises(FlopwatchError, match="h200"):
        gate(toy, device="voodoo2")


def test_a_result_survives_json(toy: ToyRepository) -> None:
    toy.commit("empty")
    result = gate(toy)
    assert from_json(to_json(result), GateResult) == result


def test_the_command_line_prints_tables_and_writes_json(toy: ToyRepository) -> None:
    toy.commit("empty")
    done = subprocess.run(
        [sys.executable, "-m", "flopwatch", "gate", "-C", str(toy.root), "--json", str(toy.root / "gate.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "scale_kernel" in done.stdout
    assert "Scale[1000" in done.stdout
    assert json.loads((toy.root / "gate.json").read_text(encoding="utf-8"))["schema_version"] == 1


@pytest.mark.gpu
def test_on_a_gpu_clean_code_is_not_accused_and_a_planted_slowdown_is(toy: ToyRepository) -> None:
    toy.suite.write_text(
        toy.suite.read_text(encoding="utf-8").replace('["1000000"]', '["1000000", "100000000"]'), encoding="utf-8"
    )
    toy.commit("larger")
    clean = gate(toy, base="HEAD", head="HEAD")
    assert marks(clean) <= {Mark.SAME, Mark.UNSURE}
    toy.edit(
        "    scale_kernel[grid]", "    scale_kernel[grid](x, out, x.numel(), 2.0, BLOCK=256)\n    scale_kernel[grid]"
    )
    slower = gate(toy, base="HEAD")
    assert marks(slower) == {Mark.SLOWER}
    assert slower.exit_code == 1
