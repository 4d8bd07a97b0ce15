from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from flopwatch.errors import UndecidedError, UsageError
from flopwatch.explain import run
from flopwatch.explain.opening import Opened
from flopwatch.explain.run import MAX_LINES, ExplainOptions, one_case, run_explain
from flopwatch.gate import CaseVerdict, GateResult
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed
from flopwatch.measure.protocol import Compiled, DeclaredCase, Hello, IrText
from flopwatch.model import Case, Choice, Failure, KernelFacts
from flopwatch.static.devices import find_device
from flopwatch.static.identity import CaseIdentity
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import ToyRepository

    from flopwatch.explain.result import Explanation

    Facts = Callable[..., KernelFacts]

CASE = Case(suite="Matmul", values=("4096x4096x4096", "float16", "flopwatch"))
OTHER = Case(suite="Matmul", values=("8192x8192x8192", "float16", "flopwatch"))
BASE, HEAD = "a" * 40, "b" * 40
CONFIG = "BLOCK_M: 128, num_warps: 8, num_stages: "


def declared(case: Case) -> DeclaredCase:
    return DeclaredCase(case=case, small=case, own=True, max_diff_eps=None, flops=137.4e9, bytes_moved=100.7e6)


HELLO = Hello(
    gpu=None,
    gpu_uuid=None,
    compute_capability=None,
    versions={},
    declared=(declared(CASE), declared(OTHER)),
    import_failures={},
)


class FakeWorker:
    """Stands in for a worker that has compiled something already."""

    def __init__(self, facts: Sequence[KernelFacts], text: str, identity: CaseIdentity | None = None) -> None:
        self.hello = HELLO
        self.facts, self.text, self.identity = facts, text, identity
        self.asked: list[tuple[str, str, str]] = []

    def compile(self, _case: Case) -> Compiled:
        if not self.facts:
            raise CaseFailed(Failure(kind="AttributeError", message="no such kernel"))
        return Compiled(facts=tuple(self.facts), identity=self.identity)

    def ir(self, _case: Case, kernels: Sequence[tuple[str, str, str]], levels: Sequence[str]) -> tuple[IrText, ...]:
        self.asked += kernels
        return tuple(
            IrText(kernel=kernel, variant=variant, config=config, level=level, text=self.text)
            for kernel, variant, config in kernels
            for level in levels
            if level in ("ttgir", "ptx")
        )


TTGIR = '#loc1 = loc("/tmp/old/src/kernels.py":{line}:4)\nmodule {{\n  {text} loc(#loc1)\n}}\n'


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Explanation]:
    """Explain a case whose sides have these facts."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.py").touch()

    def explained(
        base: Sequence[KernelFacts],
        head: Sequence[KernelFacts],
        *,
        identities: tuple[CaseIdentity | None, CaseIdentity | None] = (None, None),
        measured: GateResult | None = None,
    ) -> Explanation:
        workers = {
            Arm.BASE: FakeWorker(base, TTGIR.format(line=7, text="tt.load %x"), identities[0]),
            Arm.HEAD: FakeWorker(head, TTGIR.format(line=9, text="tt.load %y {wide}"), identities[1]),
        }

        @contextlib.contextmanager
        def stand_in(_root: Path, *, device: str | None, **_: Any) -> Iterator[Opened]:  # noqa: ANN401 - as it comes
            yield Opened(
                base=BASE,
                head=HEAD,
                device=find_device(device or "h200"),
                workers=cast("Any", workers),
                trees=dict.fromkeys(Arm, tmp_path),
            )

        monkeypatch.setattr(run, "opened", stand_in)
        return run_explain(ExplainOptions(case=CASE.id, measured=measured), tmp_path)

    return explained


def gate_result(*, stages: tuple[int, int], base: str = BASE) -> GateResult:
    sides = [
        Side(seconds=seconds, choices=(Choice(kernel="matmul_kernel", config=f"{CONFIG}{stage}"),))
        for seconds, stage in zip((231.4e-6, 346.9e-6), stages, strict=True)
    ]
    return GateResult(
        base=base,
        head=HEAD,
        gpu="NVIDIA H200",
        device="h200",
        versions={},
        facts=(),
        base_facts=(),
        fact_changes=(),
        verdicts=(CaseVerdict(case=CASE, base=sides[0], head=sides[1]),),
    )


def test_a_changed_setting_and_its_effect_are_the_cause(explain: Callable[..., Explanation], facts: Facts) -> None:
    found = explain([facts()], [facts(stages=1)])
    assert found.cause == (
        "num_stages=3 -> num_stages=1 in matmul_kernel: its loads no longer run ahead of the arithmetic"
        " (36 LDGSTS -> none)"
    )
    assert (found.base, found.head, found.device, found.flops) == (BASE, HEAD, "h200", 137.4e9)


def test_each_level_tells_where_it_first_differs_by_the_file_of_the_checkout(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    (story,) = explain([facts()], [facts(stages=1)]).stories
    first, *_ = story.differences
    assert (first.level, first.base_source, first.head_source) == ("ttgir", "src/kernels.py:7", "src/kernels.py:9")
    assert first.lines == ("- tt.load %x", "+ tt.load %y {wide}")
    assert (first.removed, first.added) == (1, 1)


def test_an_extra_kernel_is_the_cause_whatever_else_differs(explain: Callable[..., Explanation], facts: Facts) -> None:
    extra = facts(kernel="cast_kernel", config="BLOCK=64", variant="*fp32")
    found = explain([facts()], [facts(stages=1), extra])
    assert found.cause == "head launches cast_kernel, which base does not launch"
    assert [story.pair.kernel for story in found.stories] == ["cast_kernel", "matmul_kernel"]


def test_code_that_shows_in_no_fact_is_told_by_its_first_line(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    found = explain([facts()], [facts(code_fingerprint="other")])
    assert found.cause == (
        "no change of matmul_kernel is known to cost time, but its code differs, first in its TTGIR,"
        " of src/kernels.py:9"
    )


@pytest.mark.parametrize(
    ("identities", "cause"),
    [
        (
            (None, None),
            "the kernels are compiled to the same code: look at how they are launched, and at the host's code",
        ),
        (("same", "same"), "none is known: both sides run the very same code"),
        (("one", "two"), "the kernels are compiled to the same code; what differs: launches"),
    ],
)
def test_where_the_kernels_are_the_same_the_rest_is_asked(
    identities: tuple[str | None, str | None], cause: str, explain: Callable[..., Explanation], facts: Facts
) -> None:
    known = tuple(CaseIdentity(fingerprint=name, launches=name) if name else None for name in identities)
    found = explain([facts()], [facts()], identities=known)
    assert found.cause == cause
    assert found.stories[0].differences == ()


def test_a_side_that_cannot_be_compiled_is_the_cause_and_a_note(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    found = explain([], [facts()])
    assert found.cause == "base cannot compile the case, so that nothing can be compared"
    assert found.notes == ("base cannot compile the case: AttributeError: no such kernel",)


def test_a_kernel_that_no_longer_fits_says_so(explain: Callable[..., Explanation], facts: Facts) -> None:
    broken = facts(registers=None, code_fingerprint="", failure=Failure(kind="OutOfResources", message="shared memory"))
    assert explain([facts()], [broken]).cause == (
        "in matmul_kernel it no longer compiles or fits (OutOfResources: shared memory)"
    )


def test_without_a_gpu_what_differs_most_of_all_configurations_is_told(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    tried = [facts(warps=warps, chosen=False) for warps in (1, 2)]
    spilling = replace(tried[1], spill_store_bytes=96, spill_load_bytes=96, code_fingerprint="other")
    found = explain([facts(), *tried], [facts(registers=170), tried[0], spilling])
    assert found.cause == "in matmul_kernel its registers spill to local memory (0 B -> 192 B)"
    assert found.stories[0].others == 1
    assert "an autotuned kernel runs in what a GPU chooses" in found.notes[0]


def test_with_a_result_what_the_gpu_chose_is_compared(explain: Callable[..., Explanation], facts: Facts) -> None:
    both = [facts(), facts(stages=1, chosen=False)]
    found = explain(both, both, measured=gate_result(stages=(3, 1)))
    assert found.cause.startswith("num_stages=3 -> num_stages=1 in matmul_kernel")
    assert (found.gpu, found.base_seconds, found.head_seconds) == ("NVIDIA H200", 231.4e-6, 346.9e-6)
    assert found.notes == ()


def test_a_result_of_other_commits_is_told_to_be_one(explain: Callable[..., Explanation], facts: Facts) -> None:
    found = explain([facts()], [facts()], measured=gate_result(stages=(3, 3), base="c" * 40))
    assert found.notes == ("the result is about other commits: cccccccccccc and bbbbbbbbbbbb",)


def test_the_lines_of_a_difference_are_cut_and_both_sides_kept() -> None:
    few = run._few([*(("-", f"old {number}") for number in range(40)), ("+", "new")])
    assert (few[-2:], len(few)) == (("- ... and 29 more", "+ new"), MAX_LINES + 1)
    assert len(run._few([(sign, "x") for sign in "-+" for _ in range(40)])) == MAX_LINES + 2


def test_a_case_is_named_in_full_or_by_what_no_other_has() -> None:
    assert one_case(HELLO, CASE.id).case == CASE
    assert one_case(HELLO, "8192x").case == OTHER
    with pytest.raises(UsageError, match=r"2 cases match 'matmul'(.|\n)*name one of them in full"):
        one_case(HELLO, "matmul")
    with pytest.raises(UndecidedError, match="no case matches"):
        one_case(HELLO, "Attention")


def test_the_toy_s_change_is_explained_by_real_compilers(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    toy.edit("num_warps=4", "num_warps=1")
    found = run_explain(ExplainOptions(case="Scale[1000000,float16,flopwatch]", base="HEAD"), toy.root)
    assert found.cause.startswith("num_warps=4 -> num_warps=1 in scale_kernel")
    (story,) = found.stories
    assert [level for level in (*story.alike, *(entry.level for entry in story.differences)) if level == "sass"]
    assert {entry.head_source.partition(":")[0] for entry in story.differences} >= {"src/toykernels/__init__.py"}
