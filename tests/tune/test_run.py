"""Searches of real kernels: compiled for a pretended H200, and, where there is a GPU, timed on it."""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.tune.conftest import CONFIG

from flopwatch.cli import main
from flopwatch.config import load_config
from flopwatch.errors import ExitCode, FlopwatchError, SuiteError, UndecidedError, UsageError
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.model import Case, from_json, to_json
from flopwatch.tune import TuneOptions, TuneResult, run_tune
from flopwatch.tune.client import TuneSides, in_config
from flopwatch.tune.run import _command, _require_providers
from flopwatch.tune.subjects import named_cases, subject_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.tune.client import TuneWorker
    from flopwatch.tune.space import Space
    from flopwatch.tune.subjects import Subject

ROOT = Path(__file__).parents[2]
SPACE = {"num_warps": ("2",), "num_stages": ("3", "9")}


@pytest.fixture(scope="module")
def worker(tuned_repository: Path) -> Iterator[TuneWorker]:
    sides = TuneSides(CONFIG, device="h200", base_tree=tuned_repository, head_tree=tuned_repository)
    started = sides.worker(Mode.STATIC, Arm.HEAD)
    with started:
        yield started


@pytest.fixture(scope="module")
def static(tuned_repository: Path) -> TuneResult:
    """A search of one shape that the suite does not list, for a device that is never there."""
    options = TuneOptions(select="Square", shapes=("256x256",), space=SPACE, device="h200")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flopwatch.tune.run.present_gpus", dict)
        return run_tune(options, tuned_repository)


def subjects(worker: TuneWorker, select: str, shapes: tuple[str, ...], space: Space) -> list[Subject]:
    return [subject_of(worker, case, space) for case in named_cases(worker, select, shapes)]


def pruned(result: TuneResult) -> dict[str, str]:
    (case,) = result.cases
    return {one.name: one.pruned for one in case.candidates}


def test_the_list_comes_first_and_each_combination_of_the_space_once(static: TuneResult) -> None:
    assert list(pruned(static))[:2] == ["BLOCK=64 num_warps=4 num_stages=3", "BLOCK=128 num_warps=8 num_stages=3"]
    assert len(pruned(static)) == 6
    assert [one.own for one in static.cases[0].candidates] == [True] * 2 + [False] * 4


def test_what_exceeds_shared_memory_spills_or_starves_the_schedulers_is_pruned(static: TuneResult) -> None:
    found = pruned(static)
    assert "out of resource: shared memory" in found["BLOCK=128 num_warps=2 num_stages=9"]
    assert found["BLOCK=128 num_warps=2 num_stages=3"].startswith("spills ")
    assert found["BLOCK=64 num_warps=2 num_stages=9"] == "2 resident warps for 4 schedulers"
    assert found["BLOCK=64 num_warps=4 num_stages=3"] == found["BLOCK=128 num_warps=8 num_stages=3"] == ""


def test_what_is_left_has_its_facts_and_an_estimate(static: TuneResult) -> None:
    (case,) = static.cases
    assert case.kernel == "square_kernel"
    assert case.first.startswith("BLOCK: 64, num_warps: 4")
    left = [one for one in case.candidates if not one.pruned]
    assert left
    assert all(one.registers and one.shared_bytes and one.occupancy and one.estimate_seconds for one in left)
    assert {one.grid[:2] for one in left} <= {(4, 4), (2, 2)}


def test_without_a_gpu_nothing_was_timed_and_the_exit_code_says_so(static: TuneResult) -> None:
    assert static.exit_code == ExitCode.UNDECIDED
    assert static.gpu is None
    assert static.cases[0].chosen is None
    assert static.notes == ("nothing was timed: there is no GPU here",)


def test_a_result_is_read_as_it_was_written(static: TuneResult) -> None:
    assert from_json(to_json(static), TuneResult) == static


def test_the_command_repeats_it(static: TuneResult) -> None:
    assert static.command == ("flopwatch tune Square --shapes 256x256 --space num_warps=2 num_stages=3,9 --device h200")


def test_the_command_has_what_the_environment_says_of_flopwatchs_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOPWATCH_KERNELS", "plain")
    monkeypatch.delenv("FLOPWATCH_AUTOTUNE", raising=False)
    assert _command(TuneOptions(select="Matmul")) == "FLOPWATCH_KERNELS=plain flopwatch tune Matmul"


def test_the_shape_parameter_is_replaced_wherever_it_stands(worker: TuneWorker) -> None:
    found = named_cases(worker, "Square", ("256x256", "512x512"))
    assert found == tuple(
        Case(suite="Square", values=("float16", shape, "flopwatch")) for shape in ("256x256", "512x512")
    )


def test_without_such_a_parameter_the_first_is_replaced(worker: TuneWorker) -> None:
    assert [case.id for case in named_cases(worker, "Scale[", ("77",))] == ["Scale[77,flopwatch]"]


def test_a_suite_is_named_before_others_that_have_its_name_in_theirs(worker: TuneWorker) -> None:
    assert {case.suite for case in named_cases(worker, "Scale", ())} == {"Scale"}


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (("Square", ("64",), {}), UsageError, "Square has no shape '64'\n  why: ValueError"),
        (("Square", ("0x0",), {}), UsageError, "its work comes to 0 FLOPs\n  do:  write it as the suite does: 512x512"),
        (("Nothing", (), {}), UndecidedError, "no case matches 'Nothing'"),
        (("a", (), {}), UsageError, "'a' names cases of 4 suites"),
        (("Plain", (), {}), UsageError, "launches no autotuned kernel"),
        (("Twice", (), {}), UsageError, "2 autotuned kernels\n  why: they are one_kernel, other_kernel"),
        (("Square", (), {"GROUP": ("8",)}), UsageError, "the space names GROUP"),
    ],
)
def test_what_cannot_be_tuned_is_refused_by_name(
    worker: TuneWorker, line: tuple[str, tuple[str, ...], Space], kind: type[FlopwatchError], said: str
) -> None:
    with pytest.raises(kind) as refused:
        subjects(worker, *line)
    assert said in str(refused.value)


def test_what_the_help_tunes_launches_an_autotuned_kernel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("  flopwatch tune")]
    shapes = [line[line.index("--shapes") + 1].split(",") if "--shapes" in line else () for line in lines]
    sides = TuneSides(load_config(ROOT), device="h200", base_tree=ROOT, head_tree=ROOT)
    worker = sides.worker(Mode.STATIC, Arm.HEAD)
    with worker:
        found = dict.fromkeys(
            case for line, of in zip(lines, shapes, strict=True) for case in named_cases(worker, line[2], of)
        )
        assert [case.id for case in found if not worker.tunables(case)] == []


def test_inputs_that_cannot_be_made_are_the_suites_fault(worker: TuneWorker) -> None:
    with pytest.raises(SuiteError, match="cannot be compiled"):
        subject_of(worker, Case(suite="Square", values=("float16", "64x-64", "flopwatch")), {})


def test_a_suite_declares_a_space_of_its_own(worker: TuneWorker) -> None:
    (case, _) = named_cases(worker, "Square", ())
    assert len(subject_of(worker, case, {}).configs) == 4
    assert len(subject_of(worker, case, {"num_warps": ("4", "8")}).configs) == 4


def test_the_kernels_own_rule_prunes_too(worker: TuneWorker) -> None:
    (case,) = named_cases(worker, "Scale[", ())
    (first, *_) = subject_of(worker, case, {}).configs
    with pytest.raises(CaseFailed, match="its early_config_prune, leaves it out"):
        worker.keep(in_config(case, first.replace("BLOCK: 256", "BLOCK: 64")))
    worker.keep(in_config(case, first.replace("BLOCK: 256", "BLOCK: 1024")))
    (kept,) = worker.gather().cases
    assert [(fact.kernel, fact.failure) for fact in kept.facts] == [("one_kernel", None)]
    assert "BLOCK=1024" in kept.facts[0].config


@pytest.mark.parametrize("provider", ["flopwatch", "cublas"])
def test_a_choice_is_held_against_other_providers_only(worker: TuneWorker, provider: str) -> None:
    cases = named_cases(worker, "Square", ())
    with pytest.raises(UsageError, match=f"no other provider '{provider}'"):
        _require_providers((provider,), cases, worker.hello)
    _require_providers(("torch",), cases, worker.hello)


def test_workers_for_the_gpu_are_forked_and_know_configurations(tuned_repository: Path) -> None:
    sides = TuneSides(CONFIG, device="h200", base_tree=tuned_repository, head_tree=tuned_repository)
    with sides:
        sides.start_nurseries()
        case = Case(suite="Square", values=("float16", "256x256", "flopwatch"))
        found = []
        for _ in range(2):
            forked = sides.worker(Mode.GPU, Arm.HEAD)
            with forked:
                found.append((forked.declare(case).names, forked.pid))
                parent = Path(f"/proc/{forked.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1]
        assert [names for names, _ in found] == [("dtype", "shape")] * 2
        assert found[0][1] != found[1][1]
        assert int(parent) != os.getpid()
        assert sides.notes == []


@pytest.mark.gpu
def test_a_gpu_chooses_and_estimates_on_samples_of_their_own(tuned_repository: Path) -> None:
    options = TuneOptions(
        select="Square", shapes=("2048x2048",), space={"num_stages": ("3", "4")}, rounds=3, providers=("torch",)
    )
    found = run_tune(options, tuned_repository)
    (case,) = found.cases
    assert found.exit_code == ExitCode.OK, (found.unfit, case.reason)
    assert case.chosen in {one.config for one in case.candidates if not one.pruned}
    assert {log.stage for log in found.pairs} == {"choose", "estimate"}
    against_torch = case.regrets[-1].speed
    assert against_torch is not None
    assert against_torch.pairs == 8
    assert abs(against_torch.estimate) < math.log(20)
    assert from_json(to_json(found), TuneResult) == found


@pytest.mark.gpu
def test_on_a_gpu_a_planted_configuration_that_is_far_slower_is_dropped_after_one_round(tuned_repository: Path) -> None:
    """At 2048x2048 a tile of 16 does an eighth of the work per load that one of 128 does."""
    options = TuneOptions(select="Square", shapes=("2048x2048",), space={"BLOCK": ("16",)}, rounds=3)
    (case,) = run_tune(replace(options, pairs=8), tuned_repository).cases
    small = [one for one in case.candidates if one.name.startswith("BLOCK=16 ")]
    assert all(one.pruned or one.rounds == 1 for one in small)
    assert case.chosen is not None
    assert not case.chosen.startswith("BLOCK: 16,")
