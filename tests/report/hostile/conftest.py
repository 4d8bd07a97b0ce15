"""A result as a gate writes it, from pairs that were drawn, and hundreds of files that only look like one."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest

from flopwatch.config import MAX_CONCLUSIONS, Config
from flopwatch.gate import CaseKernels, CaseVerdict, GateResult, PairLog
from flopwatch.gate.conclusions import (
    CONFIRM,
    CONFIRM_ROUNDS,
    PATH,
    SCREEN_ROUNDS,
    Beside,
    Look,
    WatchedConclusion,
    confirm_alpha,
)
from flopwatch.gate.pairs import Observer
from flopwatch.gate.times import _decide_launch, _decide_time, _judged, fails_anyway
from flopwatch.measure.protocol import Plan
from flopwatch.model import Case, Choice, Failure, KernelFacts, Mark, Memory, Numbers, to_json
from flopwatch.stats import Design
from flopwatch.study.decisions import verdict_on
from flopwatch.verdict import Side, margin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The steps to a value: keys and indices.
Path: TypeAlias = tuple[str | int, ...]

SHA = "0123456789abcdef0123456789abcdef01234567"
EFFECTS = (0.0, 0.02, -0.03, 0.0, 0.004, 0.0)


@dataclass
class DrawnPairs:
    """Stands in for the pairs of a gate: draws what they would measure, by the case's effect and a fixed seed."""

    effects: dict[str, float]
    launch_effects: dict[str, float] = field(default_factory=dict)
    #: Of each case, the share of pairs whose slots run at different clocks.
    apart: dict[str, float] = field(default_factory=dict)
    noise: float = 0.0008
    stage: str = "screen"
    anew: bool = False
    plans: dict[Case, Plan] = field(default_factory=dict)
    logs: list[PairLog] = field(default_factory=list)
    observer: Observer = field(default_factory=Observer)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def measure(self, cases: Sequence[Case], pairs: int) -> list[PairLog]:
        found = [
            PairLog(
                stage=self.stage,
                head_slot=int(self.rng.integers(2)),
                seconds=2.5,
                log_ratios={case.id: self.effects[case.id] + self._draw(self.noise) for case in cases},
                launch_log_ratios={case.id: self.launch_effects.get(case.id, 0.0) + self._draw(0.04) for case in cases},
                faults={},
                clock_log_ratios={case.id: -0.02 for case in cases if self._is_apart(case)},
            )
            for _ in range(pairs)
        ]
        self.logs += found
        return found

    def _is_apart(self, case: Case) -> bool:
        return case.id in self.apart and self.rng.random() < self.apart[case.id]

    def clocks(self, case: Case) -> str:
        return f"{case.id} ran at different clocks" if self.apart.get(case.id, 0.0) > 0.5 else ""

    def _draw(self, noise: float) -> float:
        return float(self.rng.normal(0.0, noise))

    def medians(self, case: Case, arm: object) -> tuple[float, float]:
        head = str(arm).endswith("HEAD")
        return 231.4e-6 * math.exp(self.effects[case.id] * head), 9.8e-6

    def given_up(self, _case: Case) -> str:
        return ""


def drawn(
    effects: Sequence[float],
    launch_effects: Sequence[float] = (),
    *,
    planned: int | None = None,
    seed: int = 7,
    apart: Sequence[float] = (),
) -> GateResult:
    """Decide about drawn pairs by the gate's own functions."""
    cases = [Case(suite="Matmul", values=(f"{size}x64x64", "float16", "flopwatch")) for size in range(len(effects))]
    pairs: Any = DrawnPairs(
        effects=dict(zip((case.id for case in cases), effects, strict=True)),
        launch_effects=dict(zip((case.id for case in cases), launch_effects, strict=False)),
        apart=dict(zip((case.id for case in cases), apart, strict=False)),
        rng=np.random.default_rng(seed),
    )
    margins = [margin_of(0.5)] * len(cases)
    design = Design() if planned is None else Design().of_pairs(planned)
    decision = _decide_time(design, cases, margins, pairs)
    accused = {
        case
        for case, series in zip(cases, decision.series, strict=True)
        if fails_anyway(None, series, case, Config(packages=("toy",)))
    }
    launches = _decide_launch(cases, margin_of(5.0), pairs, accused)
    side = Side(
        bits=tuple(f"float16 (64, 48) {seed:016x}" for seed in range(3)),
        numbers=Numbers(dtype="float16", max_diff=0.01, max_diff_eps=0.5, finite=True, bitwise="00"),
        memory=Memory(peak_bytes=1 << 20, growth_bytes=0.0),
        choices=(Choice(kernel="matmul_kernel", config="BLOCK_M: 64, num_warps: 4", timings_us={"num_warps: 4": 3.5}),),
    )
    verdicts = [
        _judged(
            CaseVerdict(case=case, base=side, head=side, flops=137.4e9, bytes_moved=100.7e6),
            pairs,
            margin=margin,
            result=series,
            launch=launches.get(case),
        )
        for case, margin, series in zip(cases, margins, decision.series, strict=True)
    ]
    fact = KernelFacts(
        kernel="matmul_kernel",
        device="h200",
        config="BLOCK_M=64,num_warps=4",
        variant="*fp16:16,i32:16",
        chosen=True,
        registers=168,
        spill_store_bytes=0,
        spill_load_bytes=0,
        shared_bytes=1024,
        num_warps=4,
        occupancy=0.5,
        occupancy_limit="registers",
        code_fingerprint="a1b2",
    )
    broken = CaseVerdict(
        case=Case(suite="Attention", values=("1x1x1x1", "flopwatch")),
        base=side,
        head=Side(failure=Failure(kind="CompilationError", message="line 1\nline 2", traceback="a\nb")),
        mark=Mark.BROKEN,
        reason="fails on head, runs on base (CompilationError: line 1)",
    )
    same = CaseVerdict(
        case=Case(suite="Add", values=("1024", "flopwatch")), mark=Mark.SAME, identical=True, notes=("a note",)
    )
    return GateResult(
        base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
        head=SHA,
        gpu="NVIDIA H200",
        device="h200",
        versions={"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0"},
        facts=(fact,),
        base_facts=(replace(fact, registers=160, code_fingerprint="0"),),
        fact_changes=(),
        kernels=tuple(CaseKernels(case=verdict.case, base=(0,), head=(0,)) for verdict in verdicts),
        verdicts=(*verdicts, broken, same),
        suite=decision.suite,
        pairs=tuple(pairs.logs),
        planned_pairs=planned,
        seconds=91.25,
        notes=("measured by hand",),
    )


@pytest.fixture(scope="session")
def honest() -> GateResult:
    """A run that flags one case as slower and one as faster, with a broken case and an identical one."""
    return drawn(EFFECTS)


@pytest.fixture(scope="session")
def watching() -> GateResult:
    """The same run, that has watched conclusions: one is lost, one holds, one could not be measured."""
    return HONEST


@pytest.fixture(scope="session")
def draw() -> Callable[..., GateResult]:
    return drawn


#: Text that means something to somebody: a terminal, a browser, GitHub, its runner, a shell, a template.
EVIL = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</pre></details><h1>owned</h1>",
    "]]><!--",
    "<!ENTITY x SYSTEM 'file:///etc/passwd'>&x;",
    "javascript:alert(1)",
    "[click](https://evil.example)",
    "![pixel](https://evil.example/p.png)",
    "https://evil.example/",
    "www.evil.example",
    "<https://evil.example>",
    "mail@evil.example",
    "@octocat",
    "@github/security",
    "#1",
    "octo/repo#1",
    "GH-1",
    SHA,
    "**bold** _it_ ~~x~~ `code`",
    "```\n# out of the fence\n```",
    "`a` | b | c |",
    "\n\n# Regressed: nothing\n",
    "\n| x | y |\n|--|--|\n",
    "<details><summary>x</summary>",
    "$$\\href{javascript:alert(1)}{x}$$",
    ":rotating_light: :+1:",
    "[^1]: note\n[x]: https://evil.example",
    "- [x] done",
    "::error file=a,line=1::owned",
    "\n::set-output name=x::y",
    "  ::add-mask::",
    "##[error]owned",
    "\r\n::stop-commands::t\r\n",
    "%0A::error::owned",
    "\x1b[2J\x1b[31mred\x1b]8;;https://evil.example\x07link",
    "\x9b31m\x90q",
    "\b\b\b\b\x7f\x00",
    "\u202egnp.exe\u2066\u2069",
    "\u200b\u200d\ufeff\u00ad\u2028\u2029",
    "a" + "\u0301" * 500,
    "\ud83d\ude80 \ufffe \U000e0041",
    "$(id) `id` ; rm -rf / #",
    "'; DROP TABLE x; --",
    "{{constructor.constructor('x')()}} ${{ secrets.TOKEN }}",
    "../../etc/passwd",
    "C:\\CON",
    "[red]boo[/red][link=https://evil.example]x[/link]",
    "%s%n{0.__class__}",
)
#: Where a result has free text: it is accepted, and shown as text.
TEXTS = (
    ("notes", 0),
    ("unfit",),
    ("verdicts", 1, "reason"),
    ("verdicts", 7, "notes", 0),
    ("verdicts", 6, "head", "failure", "message"),
    ("conclusions", 0, "says"),
    ("conclusions", 2, "reason"),
)
#: Of what is evil, the part that a name may be: GitHub would make a link of it, outside of code.
NAME_LIKE = ("www.evil.example", "GH-1", SHA)
#: Where it has names: what is evil has characters that they do not have.
NAMES = (
    ("verdicts", 0, "case", "suite"),
    ("verdicts", 0, "case", "values", 0),
    ("base",),
    ("head",),
    ("gpu",),
    ("device",),
    ("facts", 0, "kernel"),
    ("pairs", 0, "stage"),
    ("verdicts", 0, "method"),
    ("verdicts", 6, "head", "failure", "kind"),
    ("conclusions", 0, "study"),
    ("conclusions", 0, "line"),
    ("conclusions", 0, "looks", 0, "stage"),
    ("conclusions", 0, "looks", 0, "beside", 0, "other"),
    ("conclusions", 0, "looks", 0, "beside", 0, "at"),
)


def put(result: dict[str, Any], path: Sequence[str | int], value: object) -> bytes:
    """Return the JSON with one value replaced."""
    changed = copy.deepcopy(result)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(changed).encode()


def _forged(result: dict[str, Any], text: str) -> Iterator[tuple[str, bytes]]:
    """Yield files of the wrong form: each must be refused."""
    whole = text.encode()
    for path in NAMES:
        for number, evil in enumerate(EVIL):
            where = ".".join(map(str, path))
            if evil not in NAME_LIKE and number % 3 == len(where) % 3:
                yield f"{where} is evil {number}", put(result, path, evil)
    yield from _wrong_numbers(result, whole)
    yield from _wrong_keys(result, whole)
    yield from _shapes(result, whole)
    yield from _lies(result)


def _wrong_numbers(result: dict[str, Any], whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files with a value that is no number of its kind."""
    numbers: dict[str, object] = {
        "a bool": True,
        "a string": "1",
        "none": None,
        "a list": [],
        "an object": {},
        "huge": 1e308,
        "negative": -1.5,
        "a huge integer": 10**18,
    }
    for path in (
        ("seconds",),
        ("verdicts", 0, "time", "p_slower"),
        ("pairs", 0, "head_slot"),
        ("verdicts", 0, "margin"),
    ):
        for name, number in numbers.items():
            yield f"{'.'.join(map(str, path))} is {name}", put(result, path, number)
    for key in ("flops", "bytes_moved"):  # which may be none, and larger than seconds
        for name in ("a bool", "a string", "a list", "an object", "huge", "negative"):
            yield f"{key} is {name}", put(result, ("verdicts", 0, key), numbers[name])
        for constant in ("NaN", "-Infinity", "1e999", "1.1e24", "-5e-324", "9" * 25):
            text = put(result, ("verdicts", 0, key), "here").replace(b'"here"', constant.encode())
            yield f"{key} is {constant[:12]}", text
    for constant in ("NaN", "Infinity", "-Infinity", "1e999", "-1e400", "9" * 25, "9" * 5000, "01", "+1", ".5", "0x10"):
        yield f"seconds is {constant[:12]}", whole.replace(b'"seconds": 91.25', f'"seconds": {constant}'.encode())


def _wrong_keys(result: dict[str, Any], whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files with a key too many, too few, twice, or of another type."""
    paths: tuple[Path, ...] = (
        (),
        ("verdicts", 0),
        ("verdicts", 0, "time"),
        ("pairs", 0),
        ("facts", 0),
        ("verdicts", 0, "case"),
    )
    for path in paths:
        for key in ("extra", "__class__", "constructor", "", "<b>"):
            yield f"{'.'.join(map(str, path))} has {key!r}", put(result, (*path, key), 1)
    for key in ("base", "head", "gpu", "verdicts", "facts"):
        yield f"{key} is missing", json.dumps({name: value for name, value in result.items() if name != key}).encode()
        yield f"{key} is there twice", whole[:-1] + f', "{key}": {json.dumps(result[key])}}}'.encode()
    for key in ("verdicts", "facts", "pairs", "notes", "waivers", "versions", "unfit", "interrupted", "suite"):
        yield f"{key} is a number", put(result, (key,), 7)


def _shapes(result: dict[str, Any], whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files that are no result at all, or too much of one."""
    names = result["pairs"][0]["log_ratios"]
    yield from {
        "nothing": b"",
        "null": b"null",
        "a list": b"[]",
        "a string": b'"result"',
        "half a file": whole[: len(whole) // 2],
        "two files": whole * 2,
        "a BOM": b"\xef\xbb\xbf" + whole,
        "UTF-16": whole.decode().encode("utf-16"),
        "no UTF-8": whole.replace(b"measured", b"\xff\xfe\xc0\x80"),
        "half a character": put(result, ("notes", 0), "\ud800"),
        "binary": bytes(range(256)) * 64,
        "gzip": b"\x1f\x8b\x08\x00" + bytes(1000),
        "a page": b"<!doctype html><script>alert(1)</script>",
        "YAML": b"base: a1b2c3d\nhead: a1b2c3d\n",
        "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93.",
        "deep lists": b"[" * 200_000,
        "deep objects": b'{"a":' * 200_000,
        "deep and closed": b"[" * 50_000 + b"]" * 50_000,
        "deep in a note": put(result, ("notes", 0), 0).replace(b'"notes": [0]', b'"notes": ' + b"[" * 900 + b"]" * 900),
        "too large": whole + b" " * (4 << 20),
        "a long string": put(result, ("notes", 0), "a" * 100_000),
        "a long name": put(result, ("verdicts", 0, "case", "suite"), "A" * 100_000),
        "many notes": put(result, ("notes",), ["a"] * 100_000),
        "many values": put(result, ("verdicts", 0, "case", "values"), ["1"] * 1000),
        "no values": put(result, ("verdicts", 0, "case", "values"), []),
        "many facts": put(result, ("facts",), [result["facts"][0]] * 3000),
        "configurations of one kernel": put(result, ("facts",), [result["facts"][0]] * 300),
        "many cases with kernels": put(result, ("kernels",), [result["kernels"][0]] * 2001),
        "a case with kernels twice": put(result, ("kernels", 1), result["kernels"][0]),
        "a kernel that is not there": put(result, ("kernels", 0, "head"), [1]),
        "a kernel before the first": put(result, ("kernels", 0, "base"), [-1]),
        "a kernel twice": put(result, ("kernels", 0, "head"), [0, 0]),
        "a kernel launched and tried": put(result, ("kernels", 0, "base_trials"), [0]),
        "a kernel by name": put(result, ("kernels", 0, "head_trials"), ["matmul_kernel"]),
        "a change that is not there": put(result, ("kernels", 0, "changes"), [len(result["fact_changes"])]),
        "many changes": put(result, ("kernels", 0, "changes"), [0] * 1001),
        "many positions": put(result, ("kernels", 0, "head"), list(range(3000))),
        "clocks of markup": put(result, ("pairs", 0, "clock_log_ratios"), {"<b>": 0.1}),
        "clocks that are words": put(result, ("pairs", 0, "clock_log_ratios"), dict.fromkeys(names, "lower")),
        "clocks that are far apart": put(result, ("pairs", 0, "clock_log_ratios"), dict.fromkeys(names, 21.0)),
        "clocks of many cases": put(
            result, ("pairs", 0, "clock_log_ratios"), {f"A[{number}]": 0.1 for number in range(5001)}
        ),
        "clocks as a list": put(result, ("pairs", 0, "clock_log_ratios"), list(names)),
        "many pairs": put(result, ("pairs",), [result["pairs"][0] | {"log_ratios": {}}] * 2000),
        "a case twice": put(result, ("verdicts", 1), result["verdicts"][0]),
        "many instructions": put(result, ("facts", 0, "instructions"), {f"A{number}": 1 for number in range(101)}),
        "an instruction of markup": put(result, ("facts", 0, "loop_instructions"), {"<b>": 1}),
        "no planned pairs": put(result, ("planned_pairs",), 0),
        "too many planned pairs": put(result, ("planned_pairs",), 641),
        "many versions": put(result, ("versions",), {f"a_{'b' * number}": "1" for number in range(50)}),
        "another version": put(result, ("schema_version",), 2),
        "no version": put(result, ("schema_version",), 0),
        "open string": whole[:-1] + b', "a": "' + b"\\" * 100_001,
        "many conclusions": put(result, ("conclusions",), [result["conclusions"][0]] * (MAX_CONCLUSIONS + 1)),
        "many looks": put(result, ("conclusions", 0, "looks"), [result["conclusions"][0]["looks"][0]] * 5),
        "many rounds": put(result, ("conclusions", 0, "looks", 0, "beside", 0, "log_ratios"), [0.1] * 14),
        "no round": put(result, ("conclusions", 0, "looks", 0, "beside", 0, "log_ratios"), []),
        "a look at nothing": put(result, ("conclusions", 0, "looks", 3, "beside"), []),
        "a margin of nothing": put(result, ("conclusions", 0, "percent"), -100.0),
        "a date that is none": put(result, ("waivers",), [{"waiver": {"until": "2026-02-30"}}]),
    }.items()


def _lies(result: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield files of the right form that contradict themselves."""
    slower, faster, same = 1, 2, 0
    assert [result["verdicts"][row]["mark"] for row in (slower, faster, same)] == ["slower", "faster", "same"]
    yield "exit code 0", put(result, ("exit_code",), 0)
    for mark in ("same", "faster", None):
        yield f"the slower case is {mark}", put(result, ("verdicts", slower, "mark"), mark)
    for mark in ("same", "unsure"):
        yield f"its time is {mark}", put(result, ("verdicts", slower, "time", "mark"), mark)
    for path, value in (
        (("verdicts", slower, "time", "estimate"), 0.001),
        (("verdicts", slower, "time", "pairs"), 3),
        (("verdicts", slower, "time", "lower"), 0.5),
        (("verdicts", slower, "time", "upper"), -0.5),
        (("verdicts", slower, "margin"), 0.5),
        (("verdicts", faster, "margin"), 0.5),
        (("verdicts", slower, "identical"), True),
        (("verdicts", same, "mark"), "slower"),
        (("verdicts", same, "time", "estimate"), 0.5),
        (("verdicts", same, "time"), None),
        (("pairs",), []),
        (("pairs", 0, "log_ratios"), {"Unknown[1]": 0.0}),
        (("pairs", 0, "clock_log_ratios"), {"Unknown[1]": 0.1}),
        (("pairs", 0, "clock_log_ratios"), {result["verdicts"][-1]["case"]["suite"] + "[1024,flopwatch]": 0.1}),
        (("pairs", 0, "clock_log_ratios"), dict.fromkeys(result["pairs"][0]["log_ratios"], 0.005)),
        (("unfit",), "says who"),
        (("conclusions", 0, "outcome"), "holds"),
        (("conclusions", 0, "identical"), True),
        (("conclusions", 0, "percent"), 50.0),
        (("conclusions", 1, "percent"), -50.0),
        (("conclusions", 1, "looks"), []),
        (("same_within_percent",), 0.0),
        (("suite", "estimate"), 3.0),
    ):
        yield f"{'.'.join(map(str, path))} is {str(value)[:20]}", put(result, path, value)
    gone = copy.deepcopy(result)
    for verdict in gone["verdicts"][:6]:
        verdict |= {"time": None, "launch": None, "mark": None}
    yield "nothing was timed", json.dumps(gone).encode()


#: Conclusions that a run below watches.
WATCHED = 3


def concluded(*effects: float) -> WatchedConclusion:
    """Decide on a conclusion by drawn rounds: by how much its line is slower, at each look, than it may be."""
    rng = np.random.default_rng(7)
    looks = []
    for (stage, side, _), effect in zip(PATH, effects, strict=False):
        again = stage == CONFIRM
        rounds = [
            rng.normal(margin_of(1.0) + off, 0.0008, CONFIRM_ROUNDS if again else SCREEN_ROUNDS).tolist()
            for off in (effect, effect - 0.05)
        ]
        looks.append(
            Look(
                stage=stage,
                side=side,
                verdict=verdict_on(rounds, 1.0, alpha=confirm_alpha(WATCHED) if again else None),
                beside=tuple(
                    Beside(other=other, at="4096,float16", log_ratios=tuple(ratios))
                    for other, ratios in zip(("flopwatch 4", "torch"), rounds, strict=True)
                ),
            )
        )
    return WatchedConclusion(
        study="Tiles", says="8 is within 1 % of the best", line="flopwatch 8", percent=1.0, looks=tuple(looks)
    )


CONCLUSIONS = (
    concluded(0.02, -0.02, -0.02, 0.02),
    replace(concluded(-0.02), says="8 is never slow"),
    WatchedConclusion(study="Orders", says="rows come first", reason="a suite cannot be imported"),
)
HONEST = replace(drawn(EFFECTS), conclusions=CONCLUSIONS)
_TABLE = json.loads(to_json(HONEST))
FORGED = dict(_forged(_TABLE, json.dumps(_TABLE)))


def _evil_texts() -> Iterator[tuple[str, bytes]]:
    """Yield files that are of the right form and true, with text that must stay text."""
    for path in TEXTS:
        for number, evil in enumerate(EVIL):
            table = _TABLE
            if path == ("unfit",):
                table = json.loads(to_json(_unfit()))
            yield f"{'.'.join(map(str, path))} is evil {number}", put(table, path, evil)
    for evil in NAME_LIKE:
        for name in ("1x64x64", "NVIDIA H200", "CompilationError", "matmul_kernel"):
            yield f"{name} is {evil}", json.dumps(_TABLE).replace(name, evil).encode()


def _unfit() -> GateResult:
    verdicts = tuple(
        replace(verdict, mark=Mark.UNSURE, reason="the machine is unfit") if verdict.time else verdict
        for verdict in HONEST.verdicts
        if verdict.mark is not Mark.BROKEN
    )
    return replace(HONEST, verdicts=verdicts, suite=None, conclusions=(), unfit="another process")


EVIL_TEXTS = dict(_evil_texts())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test each hostile file of the kind that it asks for."""
    for name, files in (("forged", FORGED), ("evil_text", EVIL_TEXTS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, list(files.values()), ids=[f"{name}-{number}" for number in range(len(files))])
