from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from flopwatch.errors import UndecidedError, UsageError
from flopwatch.explain import run
from flopwatch.explain.opening import Opened
from flopwatch.explain.result import Explanation
from flopwatch.explain.run import MAX_LINES, MAX_NAMES, ExplainOptions, one_case, run_explain
from flopwatch.gate import CaseVerdict, GateResult
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Code
from flopwatch.measure.protocol import Compiled, DeclaredCase, Hello, IrText
from flopwatch.model import Case, Choice, Failure, KernelFacts, from_json, to_json
from flopwatch.profile import ProfiledCase, ProfiledPair
from flopwatch.static.devices import find_device
from flopwatch.static.identity import CaseIdentity
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import ToyRepository

    from flopwatch.gate.pairs import Observer

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
    """Stands in for a worker that has compiled something already, or could not."""

    def __init__(
        self, facts: Sequence[KernelFacts] | None, texts: dict[str, str], identity: CaseIdentity | None = None
    ) -> None:
        self.hello = HELLO
        self.facts, self.texts, self.identity = facts, texts, identity
        self.asked: list[list[tuple[str, str, str]]] = []

    def compile(self, _case: Case) -> Compiled:
        if self.facts is None:
            raise CaseFailed(Failure(kind="AttributeError", message="no such kernel"))
        return Compiled(facts=tuple(self.facts), identity=self.identity)

    def ir(self, _case: Case, kernels: Sequence[tuple[str, str, str]], levels: Sequence[str]) -> tuple[IrText, ...]:
        self.asked.append(list(kernels))
        return tuple(
            IrText(kernel=kernel, variant=variant, config=config, level=level, text=self.texts[level])
            for kernel, variant, config in kernels
            for level in levels
            if level in self.texts
        )


PTX = ".visible .entry matmul_kernel()\n"
PLACE = '#loc1 = loc("/tmp/old/src/kernels.py":{line}:4)\n'
TTGIR = PLACE + "module {{\n  {text} loc(#loc1)\n}}\n"
TEXTS = (
    {"ttgir": TTGIR.format(line=7, text="tt.load %x"), "ptx": PTX},
    {"ttgir": TTGIR.format(line=9, text="tt.load %y {wide}"), "ptx": PTX},
)


@dataclass(kw_only=True)
class Asked:
    """What a run asked of the stand-ins."""

    opened: dict[str, Any] = field(default_factory=dict)
    workers: dict[Arm, FakeWorker] = field(default_factory=dict)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def explain(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Explanation]:
    """Explain a case whose sides have these facts; None cannot be compiled."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.py").touch()

    def explained(
        of_base: Sequence[KernelFacts] | None,
        of_head: Sequence[KernelFacts] | None,
        /,
        *,
        identities: tuple[CaseIdentity | None, CaseIdentity | None] = (None, None),
        texts: tuple[dict[str, str], dict[str, str]] = TEXTS,
        **options: Any,  # noqa: ANN401 - as it comes
    ) -> Explanation:
        asked.workers = {
            arm: FakeWorker(*of_side)
            for arm, of_side in zip(Arm, zip((of_base, of_head), texts, identities, strict=True), strict=True)
        }

        @contextlib.contextmanager
        def stand_in(_root: Path, *, device: str | None, **of: Any) -> Iterator[Opened]:  # noqa: ANN401 - as it comes
            asked.opened = {"device": device, **of}
            yield Opened(
                base=BASE,
                head=HEAD,
                device=find_device(device or "h200"),
                workers=cast("Any", asked.workers),
                trees=dict.fromkeys(Arm, tmp_path),
                codes=dict.fromkeys(Arm, Code(benchmarks=tmp_path)),
            )

        monkeypatch.setattr(run, "opened", stand_in)
        return run_explain(ExplainOptions(case=CASE.id, **{"profile": False} | options), tmp_path)

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
    assert found.notes == ()


def test_each_level_tells_where_it_first_differs_by_the_file_of_the_checkout(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    (story,) = explain([facts()], [facts(stages=1)]).stories
    (first,) = story.differences
    assert story.alike == ("ptx",)
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
    identities: tuple[str | None, str | None],
    cause: str,
    explain: Callable[..., Explanation],
    facts: Facts,
    asked: Asked,
) -> None:
    known = tuple(CaseIdentity(fingerprint=name, launches=name) if name else None for name in identities)
    found = explain([facts()], [facts()], identities=known)
    assert found.cause == cause
    assert found.stories[0].differences == ()
    assert [worker.asked for worker in asked.workers.values()] == [[], []]


def test_where_the_kernels_are_the_same_torch_functions_that_are_called_more_often_are_the_cause(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    base = CaseIdentity(fingerprint="base", launches="base", torch_work=("empty",))
    head = CaseIdentity(fingerprint="head", launches="head", torch_work=("clone", "clone", "float", "empty"))
    assert explain([facts()], [facts()], identities=(base, head)).cause == (
        "the kernels are compiled to the same code, and head also calls torch's clone (2 times), float"
    )
    assert explain([facts()], [facts()], identities=(head, base)).cause.endswith("what differs: launches")
    unknown = replace(head, fingerprint="", cause="unknown")
    assert explain([facts()], [facts()], identities=(base, unknown)).cause.endswith("clone (2 times), float")


@pytest.mark.parametrize("sides", [("base",), ("head",), ("base", "head")])
def test_a_side_that_cannot_be_compiled_is_the_cause_and_a_note(
    sides: tuple[str, ...], explain: Callable[..., Explanation], facts: Facts
) -> None:
    found = explain(*(None if side in sides else [facts()] for side in ("base", "head")))
    assert found.cause == f"{' and '.join(sides)} cannot compile the case, so that nothing can be compared"
    assert found.notes == tuple(f"{side} cannot compile the case: AttributeError: no such kernel" for side in sides)
    assert found.stories == ()


def test_a_kernel_in_place_of_another_is_the_cause_and_no_code_of_it_is_asked_for(
    explain: Callable[..., Explanation], facts: Facts, asked: Asked
) -> None:
    old, new = facts(kernel="two_pass_kernel"), facts(kernel="cast_kernel", config="BLOCK=64", variant="*fp32")
    found = explain([facts(), old], [facts(stages=1), new])
    assert found.cause == "head launches cast_kernel in place of two_pass_kernel"
    assert {kernel for worker in asked.workers.values() for ((kernel, _, _),) in worker.asked} == {"matmul_kernel"}


def test_a_kernel_that_is_no_longer_launched_is_told_where_nothing_else_is(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    old = facts(kernel="two_pass_kernel")
    assert explain([facts(), old], [facts()]).cause == (
        "head no longer launches two_pass_kernel, and all else is compiled to the same code"
    )
    assert explain([facts(), old], [facts(stages=1)]).cause.startswith("num_stages=3 -> num_stages=1")


def test_the_first_kernel_of_a_case_that_had_none_is_the_cause(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    assert explain([], [facts()]).cause == "head launches matmul_kernel, which base does not launch"


def test_kernels_of_the_same_code_are_told_of_where_only_their_code_s_part_of_the_case_differs(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    sides = tuple(CaseIdentity(fingerprint=name, kernel_code=name) for name in ("one", "two"))
    assert explain([facts()], [facts()], identities=sides).cause == (
        "the kernels are compiled to the same code: look at how they are launched, and at the host's code"
    )
    assert explain([facts()], [facts()], identities=(sides[0], None)).cause.endswith("the host's code")
    assert explain([facts()], [facts()], identities=(None, sides[1])).cause.endswith("the host's code")


def test_a_level_that_one_side_does_not_have_is_left_out(explain: Callable[..., Explanation], facts: Facts) -> None:
    for texts in ((TEXTS[0], {"ttgir": TEXTS[1]["ttgir"]}), ({"ttgir": TEXTS[0]["ttgir"]}, TEXTS[1])):
        (story,) = explain([facts()], [facts(stages=1)], texts=texts).stories
        assert ([entry.level for entry in story.differences], story.alike) == (["ttgir"], ())


def test_code_that_has_no_level_in_common_is_told_without_a_place(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    found = explain([facts()], [facts(code_fingerprint="other")], texts=({}, {}))
    assert found.cause == "no change of matmul_kernel is known to cost time, but its code differs"


def test_a_difference_without_a_source_is_told_after_one_that_has_it(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    body = "".join(f"  step{number}\n" for number in range(20))
    texts = tuple(
        {"ttgir": TTGIR.format(line=line, text=f"{first}\n{body}  {last}")}
        for line, first, last in ((7, "nowhere", "old"), (9, "unplaced", "new"))
    )
    (story,) = explain([facts()], [facts(stages=1)], texts=texts).stories
    (first,) = story.differences
    assert first.lines == ("- old", "+ new")
    assert (first.base_source, first.head_source) == ("src/kernels.py:7", "src/kernels.py:9")
    assert (first.removed, first.added) == (2, 2)


def test_a_place_is_that_of_the_first_changed_line_that_has_one(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    texts = (
        {"ttgir": TTGIR.format(line=7, text="same loc(#loc1)\n  bare\n  old")},
        {"ttgir": TTGIR.format(line=9, text="same")},
    )
    (story,) = explain([facts()], [facts(code_fingerprint="other")], texts=texts).stories
    (first,) = story.differences
    assert (first.lines, first.base_source, first.head_source) == (("- bare", "- old"), "src/kernels.py:7", "")
    found = explain([facts()], [facts(code_fingerprint="other")], texts=texts)
    assert found.cause.endswith("first in its TTGIR, of src/kernels.py:7")
    bare = tuple({"ttgir": f"module {{\n  {text}\n}}\n"} for text in ("old", "new"))
    assert explain([facts()], [facts(code_fingerprint="other")], texts=bare).cause.endswith("first in its TTGIR")


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
    elsewhere = replace(tried[0], code_fingerprint="moved")
    moved = explain([facts(), *tried], [facts(registers=170), elsewhere, spilling])
    assert moved.stories[0].others == 2
    assert "an autotuned kernel runs in what a GPU chooses" in found.notes[0]


def test_with_a_result_what_the_gpu_chose_is_compared(explain: Callable[..., Explanation], facts: Facts) -> None:
    both = [facts(), facts(stages=1, chosen=False)]
    found = explain(both, both, measured=gate_result(stages=(3, 1)))
    assert found.cause.startswith("num_stages=3 -> num_stages=1 in matmul_kernel")
    assert (found.gpu, found.base_seconds, found.head_seconds) == ("NVIDIA H200", 231.4e-6, 346.9e-6)
    assert found.notes == ()


def test_one_side_s_choice_is_enough_to_compare_what_the_gpu_chose(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    tuned, fixed = [facts(), facts(stages=1, chosen=False)], [facts()]
    measured = gate_result(stages=(3, 1))
    (verdict,) = measured.verdicts
    for base, head in ((True, False), (False, True)):
        half = replace(
            verdict,
            base=verdict.base if base else replace(verdict.base, choices=()),
            head=verdict.head if head else replace(verdict.head, choices=()),
        )
        found = explain(
            tuned if base else fixed, tuned if head else fixed, measured=replace(measured, verdicts=(half,))
        )
        assert found.notes == ()
    untold = replace(verdict, base=Side(), head=Side())
    found = explain(tuned, tuned, measured=replace(measured, verdicts=(untold,)))
    assert "an autotuned kernel runs in what a GPU chooses" in found.notes[0]


def test_a_result_without_the_case_says_so_and_gives_no_times(
    explain: Callable[..., Explanation], facts: Facts
) -> None:
    measured = gate_result(stages=(3, 1))
    other = replace(measured.verdicts[0], case=OTHER)
    found = explain([facts()], [facts()], measured=replace(measured, verdicts=(other,)))
    assert found.notes == ("the result has no time of this case",)
    assert (found.gpu, found.base_seconds, found.head_seconds) == (None, None, None)
    both = replace(measured, verdicts=(replace(other, base=Side(seconds=1.0)), *measured.verdicts))
    assert explain([facts()], [facts()], measured=both).base_seconds == 231.4e-6


def profile_of(*stages: int, gpu: str = "NVIDIA H200") -> ProfiledPair:
    base, head = (
        ProfiledCase(
            case=CASE,
            flops=137.4e9,
            bytes_moved=100.7e6,
            call_seconds={3: 100e-6, 1: 300e-6}[stage],
            choices=(Choice(kernel="matmul_kernel", config=f"{CONFIG}{stage}"),),
        )
        for stage in stages
    )
    return ProfiledPair(gpu=gpu, base=base, head=head)


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> Profiled:
    stand_in = Profiled()
    monkeypatch.setattr(run, "profiled", stand_in)
    return stand_in


class Profiled:
    """Stands for the profile of both sides."""

    def __init__(self) -> None:
        self.found: ProfiledPair | None = profile_of(3, 1)
        self.asked: list[tuple[Case, dict[Arm, tuple[Choice, ...]]]] = []

    def __call__(
        self, _sides: Opened, declared: DeclaredCase, pins: dict[Arm, tuple[Choice, ...]], _observer: Observer
    ) -> tuple[ProfiledPair | None, str]:
        self.asked.append((declared.case, pins))
        return self.found, "" if self.found else "no profile: there is no GPU"


def test_a_profile_has_the_times_and_what_the_tuner_chose(
    explain: Callable[..., Explanation], facts: Facts, profiled: Profiled
) -> None:
    both = [facts(), facts(stages=1, chosen=False)]
    found = explain(both, both, profile=True)
    assert profiled.asked == [(CASE, {})]
    assert found.profile == profiled.found
    assert (found.gpu, found.base_seconds, found.head_seconds) == ("NVIDIA H200", 100e-6, 300e-6)
    assert found.cause.startswith("num_stages=3 -> num_stages=1 in matmul_kernel")
    assert [note.partition(" ")[0] for note in found.notes] == ["each"]
    assert "near tie" in found.notes[0]
    profiled.found = profile_of(3, 3)
    assert explain(both, both, profile=True).notes == ()
    profiled.found = replace(profile_of(3, 1), head=replace(profile_of(3, 1).head, choices=()))
    assert explain(both, both, profile=True).notes == ()  # head has none: it failed, or no longer tunes
    assert from_json(to_json(found), Explanation) == found


def test_what_a_tuner_chose_on_another_gpu_is_not_what_is_compiled(
    explain: Callable[..., Explanation], facts: Facts, profiled: Profiled
) -> None:
    profiled.found = profile_of(3, 1, gpu="NVIDIA A100-SXM4-80GB")
    both = [facts(), facts(stages=1, chosen=False)]
    found = explain(both, both, profile=True)
    assert found.cause.startswith("the kernels are compiled to the same code")
    assert "an autotuned kernel runs in what a GPU chooses" in found.notes[0]
    assert found.gpu == "NVIDIA A100-SXM4-80GB"


def test_a_result_s_times_and_choices_go_before_those_of_the_profile(
    explain: Callable[..., Explanation], facts: Facts, profiled: Profiled
) -> None:
    found = explain([facts()], [facts()], measured=gate_result(stages=(3, 3)), profile=True)
    chosen = (Choice(kernel="matmul_kernel", config=f"{CONFIG}3"),)
    assert profiled.asked == [(CASE, {Arm.BASE: chosen, Arm.HEAD: chosen})]
    assert (found.base_seconds, found.head_seconds) == (231.4e-6, 346.9e-6)


def test_a_profile_that_cannot_be_is_a_note_and_all_else_is_told(
    explain: Callable[..., Explanation], facts: Facts, profiled: Profiled
) -> None:
    profiled.found = None
    found = explain([facts()], [facts(stages=1)], profile=True)
    without = explain([facts()], [facts(stages=1)])
    assert found == replace(without, notes=("no profile: there is no GPU",))
    assert len(profiled.asked) == 1


def test_commits_and_device_are_those_of_the_result_where_none_is_named(
    explain: Callable[..., Explanation], facts: Facts, asked: Asked
) -> None:
    measured = replace(gate_result(stages=(3, 3)), device="h100")
    explain([facts()], [facts()], measured=measured)
    assert {name: asked.opened[name] for name in ("base", "head", "device")} == {
        "base": BASE,
        "head": HEAD,
        "device": "h100",
    }
    explain([facts()], [facts()], measured=replace(measured, head="working tree"), device="a100")
    assert (asked.opened["head"], asked.opened["device"]) == (None, "a100")
    explain([facts()], [facts()], measured=measured, base="v1.0")
    assert (asked.opened["base"], asked.opened["head"]) == ("v1.0", None)


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


def test_a_name_in_full_is_that_case_where_others_have_it_in_theirs() -> None:
    longer = declared(replace(CASE, suite="SparseMatmul"))
    assert one_case(replace(HELLO, declared=(longer, *HELLO.declared)), CASE.id).case == CASE


@pytest.mark.parametrize(("cases", "more"), [(MAX_NAMES, ""), (MAX_NAMES + 1, " and 1 more")])
def test_of_many_cases_the_first_are_named(cases: int, more: str) -> None:
    many = [declared(replace(CASE, values=(str(number),))) for number in range(cases)]
    with pytest.raises(UsageError) as caught:
        one_case(replace(HELLO, declared=tuple(many)), "Matmul")
    assert caught.value.why == f"they are {', '.join(f'Matmul[{number}]' for number in range(MAX_NAMES))}{more}"


def test_the_toy_s_change_is_explained_by_real_compilers(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    toy.edit("num_warps=4", "num_warps=1")
    found = run_explain(ExplainOptions(case="Scale[1000000,float16,flopwatch]", base="HEAD"), toy.root)
    assert found.cause.startswith("num_warps=4 -> num_warps=1 in scale_kernel")
    (story,) = found.stories
    assert [level for level in (*story.alike, *(entry.level for entry in story.differences)) if level == "sass"]
    assert {entry.head_source.partition(":")[0] for entry in story.differences} >= {"src/toykernels/__init__.py"}
