from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.profile.test_pair import CHOICE, DECLARED, RAN

from flopwatch.errors import MachineError, UndecidedError
from flopwatch.explain.opening import Opened
from flopwatch.explain.profiled import profiled
from flopwatch.explain.result import Explanation
from flopwatch.explain.run import ExplainOptions, run_explain
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm
from flopwatch.measure.process import Code
from flopwatch.model import WORKING_TREE, Case, from_json, to_json
from flopwatch.profile import ProfiledCase, ProfiledPair
from flopwatch.profile.request import Answer
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

    from flopwatch.profile.request import Ask

PAIR = ProfiledPair(gpu="NVIDIA H200", base=RAN, head=replace(RAN, call_seconds=2e-3), spread=0.004)
SIDES = Opened(
    base="a" * 40,
    head=WORKING_TREE,
    device=find_device("h200"),
    workers={},
    trees={},
    codes={arm: Code(benchmarks=Path("benchmarks"), tree=Path(arm.value)) for arm in Arm},
)
#: What head launches besides.
CLEAR_KERNEL = """\
@triton.jit
def clear_kernel(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 0.0)
"""


def test_without_a_gpu_a_line_says_what_one_would_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    found, said = profiled(SIDES, DECLARED, {}, Observer())
    assert found is None
    assert said == (
        "no profile: there is no GPU (the driver has none); where one is, this also shows what each kernel and a launch"
        " take on both sides, and the GPU's counters"
    )


def test_with_a_gpu_both_sides_are_asked_for_with_what_they_import(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def stand_in(*what: object, observer: Observer) -> ProfiledPair:
        asked.extend([*what, observer])
        return PAIR

    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.explain.profiled.profile_pair", stand_in)
    observer = Observer()
    assert profiled(SIDES, DECLARED, {Arm.HEAD: (CHOICE,)}, observer) == (PAIR, "")
    assert asked == [DECLARED, SIDES.codes, {Arm.BASE: (), Arm.HEAD: (CHOICE,)}, observer]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MachineError("no Proton", why="cuptiSubscribe\nerror 15", todo="unset it"), "no Proton (cuptiSubscribe error"),
        (UndecidedError("no case matches 'x'"), "no case matches 'x'"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device; see flopwatch doctor"),
    ],
)
def test_a_profile_that_fails_is_a_line(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> ProfiledPair:
        raise error

    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.explain.profiled.profile_pair", fail)
    found, said = profiled(SIDES, DECLARED, {}, Observer())
    assert found is None
    assert said.startswith(f"no profile: {line}")
    assert "\n" not in said


def test_each_side_is_profiled_with_its_own_sources_and_head_s_suites(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.profile.counters.shutil.which", lambda _name: None)
    monkeypatch.setattr("flopwatch.profile.counters.USUAL_PLACES", ())
    case = Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
    ran = ProfiledCase(case=case, flops=1e6, bytes_moved=4e6, calls=4, call_seconds=3e-6)
    seen: list[tuple[bool, bool]] = []

    def stand_in(ask: Ask, code: Code, folder: Path) -> tuple[list[str], Path]:
        assert code.tree is not None
        is_head = "num_warps=1" in (code.tree / toy.kernel.relative_to(toy.root)).read_text(encoding="utf-8")
        seen.append((is_head, "of head" in (Path(ask.benchmarks) / "scale.py").read_text(encoding="utf-8")))
        tree = json.dumps([frame("ROOT", 0, frame(case.id, 0, frame("scale_kernel", 12000 if is_head else 8000)))])
        (Path(ask.folder) / "profile.hatchet").write_text(tree, encoding="utf-8")
        (folder / "answer.json").write_bytes(to_json(Answer(gpu="NVIDIA H200", cases=(ran,))))
        return ["true"], folder / "answer.json"

    monkeypatch.setattr("flopwatch.profile.process.program_of", stand_in)
    toy.edit("num_warps=4", "num_warps=1")
    toy.suite.write_text(toy.suite.read_text(encoding="utf-8").replace("toy kernel", "toy kernel of head"))
    found = run_explain(ExplainOptions(case=case.id, base="HEAD"), toy.root)
    assert seen == [(False, True), (True, True), (True, True), (False, True)]
    assert found.cause.startswith("num_warps=4 -> num_warps=1 in scale_kernel")
    assert found.profile is not None
    scale = found.profile.frames[1]
    assert scale.base is not None
    assert scale.head is not None
    assert (scale.path, scale.base.seconds, scale.head.seconds) == (("scale_kernel",), 2e-6, 3e-6)
    assert from_json(to_json(found), Explanation) == found


def frame(name: str, nanoseconds: int, *children: dict[str, Any]) -> dict[str, Any]:
    """Make a frame as Proton writes it, of four launches."""
    metrics = {"time (ns)": nanoseconds, "count": 4} if nanoseconds else {}
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


@pytest.mark.gpu
def test_on_a_gpu_the_kernel_that_only_head_launches_has_its_time(toy: ToyRepository) -> None:
    toy.edit("def scale(x, factor):\n", f"{CLEAR_KERNEL}\n\ndef scale(x, factor):\n")
    toy.edit("    grid = ", "    clear_kernel[(1,)](out, BLOCK=1024)\n    grid = ")
    found = run_explain(ExplainOptions(case="Scale[1000000,float16,flopwatch]", base="HEAD"), toy.root)
    assert found.profile is not None
    assert (found.profile.base.failure, found.profile.head.failure) == (None, None)
    by_name = {pair.path: pair for pair in found.profile.frames}
    whole, scale, clear = by_name[()], by_name["scale_kernel",], by_name["clear_kernel",]
    assert whole.base is not None
    assert whole.head is not None
    assert (whole.base.launches, whole.head.launches) == (1.0, 2.0)
    assert whole.base.bytes_moved == 4e6
    assert (clear.base, scale.base is None, scale.head is None) == (None, False, False)
    assert clear.head is not None
    assert 2e-7 < clear.head.seconds < 1e-3
    assert found.profile.spread is not None
    assert found.profile.spread < 1
    assert (found.gpu, found.base_seconds) == (found.profile.gpu, found.profile.base.call_seconds)
    assert from_json(to_json(found), Explanation) == found
