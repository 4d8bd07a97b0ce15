"""What a campaign runs on a GPU, in the order of what is wanted first: see `evidence.campaign`.

No origin of seconds but those with a date was measured; the others are goals, or reckoned from what is named. What a
step took is in the campaign's state, and in its list from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Where results lie below a campaign's folder as in the repository: what is copied over it is in its place.
FILES = "files/"
#: After its own seconds a step ends what is in flight: a pair of all cases takes 18 s (66 cases, H200, 2026-11-21),
#: and what hangs in a race is killed after 45 s (`evidence.candidates.STEP_SECONDS`).
TAIL_S = 60.0
_H200 = f"{FILES}evidence/h200/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command of a campaign.

    In `arguments`, `collects` and `then`, {dir} is the campaign's folder, {scratch} one below it that is not packed,
    {root} the repository, {out} the result, {place} where it belongs in the repository, {date} the campaign's, and
    {seconds} what the step is given for itself.

    Attributes:
        name: by which it is called.
        purpose: what the results are for.
        arguments: of Python.
        expected_s: seconds of all of it.
        origin: of that number.
        limit_s: the most that it is given.
        least_s: the least that is worth while, where it takes what there is; None where it needs all of it.
        resumes: whether it goes on with what it left.
        more: what its output has where it ended for want of time; "" where it does not.
        proof: what its output has where it did something, as tests may all be skipped.
        out: the result, below the campaign's folder; "" where the output is all.
        collects: what it writes elsewhere: a pattern, and the folder below the campaign's that gets copies.
        needs: what must have passed before.
        one_gpu: whether those must have passed on the very same GPU.
        environment: variables that are set for it.
        then: commands for its results that need no GPU.
    """

    name: str
    purpose: str
    arguments: tuple[str, ...]
    expected_s: float
    origin: str
    limit_s: float
    least_s: float | None = None
    resumes: bool = False
    more: str = ""
    proof: str = ""
    out: str = ""
    collects: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()
    one_gpu: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    then: tuple[str, ...] = ()


def _tests(name: str, purpose: str, *arguments: str, expected_s: float, origin: str, limit_s: float) -> Step:
    return Step(
        name=name,
        purpose=purpose,
        # One after the other: those that measure would disturb each other. Neither plugin is used, nor needed.
        arguments=("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", *arguments),
        expected_s=expected_s,
        origin=origin,
        limit_s=limit_s,
        proof=" passed",
    )


def _wall(name: str, expected_s: float, origin: str, *, needs: tuple[str, ...] = ("wall-clean-cold",)) -> Step:
    return Step(
        name=f"wall-{name}",
        purpose=f"wall time of the gate, {name}, in docs/evidence.md",
        arguments=("-m", "evidence.wall_time", "{out}", "--only", name, "--folder", "{scratch}/wall"),
        expected_s=expected_s,
        origin=origin,
        limit_s=2.5 * expected_s,
        out=f"{_H200}wall-{{date}}.json",
        needs=needs,
        one_gpu=True,
        then=("python -m evidence docs",),
    )


def _race(kind: str, expected_s: float, origin: str, decision: str) -> Step:
    return Step(
        name=f"{kind}-race",
        purpose=f"kernels for Hopper beside their peers: which are chosen, in {decision}",
        arguments=("-m", f"evidence.{kind}_candidates", "{out}", "--seconds", "{seconds}"),
        expected_s=expected_s,
        origin=origin,
        limit_s=1500.0,
        least_s=100.0,
        resumes=True,
        more="no time is left for",
        out=f"{_H200}{kind}-candidates-{{date}}.json",
        needs=(f"hopper-{kind}-tests",),
        then=tuple(f"python -m evidence.{kind}_candidates {what}" for what in ("{place} --table", "choose {place}")),
    )


_ELSEWHERE = ("tests/kernels", "tests/measure", "tests/utils", "tests/test_benchmarks.py")
STEPS: tuple[Step, ...] = (
    _tests(
        "hopper-matmul-tests",
        "numbers of the Hopper products: two of ten configurations, in graphs and streams too",
        "tests/kernels/test_hopper_matmul.py",
        "-m",
        "gpu",
        "-k",
        "128x128x64 or 64x64x64",
        expected_s=90.0,
        origin="took 70 s (H200, 2026-11-22)",
        limit_s=400.0,
    ),
    _tests(
        "hopper-attention-tests",
        "numbers of the Hopper attention: a configuration of each head dimension",
        "tests/kernels/test_hopper_attention.py",
        "-m",
        "gpu",
        "-k",
        "-0] and not bfloat16",
        expected_s=120.0,
        origin="took 102 s (H200, 2026-11-22)",
        limit_s=330.0,
    ),
    _tests(
        "hopper-fp8-tests",
        "numbers of the Hopper products of float8: two of ten configurations, two of seven with sums in float32",
        "tests/kernels/test_hopper_fp8.py",
        "-m",
        "gpu",
        "-k",
        "128x128x128 or 64x64x128 or routed",
        expected_s=110.0,
        origin="reckoned: 5 processes, each starts in 5 s and compiles 8 kernels for 2 s each",
        limit_s=350.0,
    ),
    _tests(
        "new-kernel-tests",
        "numbers of shared tiles, thin products and fp8 as they run compiled, without the mark `gpu`",
        *(f"tests/kernels/test_{name}.py" for name in ("stream_k", "thin_matmul", "thin_fp8", "matmul_fp8")),
        expected_s=220.0,
        origin="took 188 s (H200, 2026-11-22)",
        limit_s=500.0,
    ),
    _tests(
        "kernel-tests",
        "all other kernels' tests that need a GPU",
        "tests/kernels",
        "-m",
        "gpu",
        "--ignore=tests/kernels/test_hopper_matmul.py",
        "--ignore=tests/kernels/test_hopper_attention.py",
        "--ignore=tests/kernels/test_hopper_fp8.py",
        expected_s=120.0,
        origin="took 64 s (H200, 2026-11-22); there are more since",
        limit_s=400.0,
    ),
    _tests(
        "measuring-tests",
        "tests of timers, pairs, memory and validation that need a GPU",
        "tests/measure",
        "tests/utils",
        "-m",
        "gpu",
        expected_s=100.0,
        origin="took 84 s (H200, 2026-11-22)",
        limit_s=500.0,
    ),
    _tests(
        "case-tests",
        "every case of the bundled suites at full size, held against float64",
        "tests/test_benchmarks.py",
        "-m",
        "gpu",
        expected_s=150.0,
        origin="reckoned: 16 suites",
        limit_s=500.0,
    ),
    _tests(
        "verb-tests",
        "all other tests that need a GPU: gate, compare, tune, tutorial",
        "tests",
        "-m",
        "gpu",
        *(f"--ignore={path}" for path in _ELSEWHERE),
        expected_s=500.0,
        origin="30 of them took 416 s (H200, 2026-11-23)",
        limit_s=540.0,
    ),
    # Before the run of all cases, for it empties the caches, which those after it find warm.
    _wall("clean-cold-60", 200.0, "reckoned: three quarters of 256 s for all cases", needs=()),
    _wall("clean-cold", 260.0, "took 256 s (H200, 2026-11-22)", needs=()),
    _wall("flagged", 210.0, "took 205 s (H200, 2026-11-22)"),
    _wall("identical", 30.0, "took 18 s (H200, 2026-11-22)"),
    _wall("clean-warm", 180.0, "the goal of 150 s in evidence/goals.py, and cloning"),
    _wall("flagged-60", 180.0, "reckoned: pairs of 60 cases take 115 s, those of flagged ones 24 s, the rest 32 s"),
    _wall("identical-60", 30.0, "as long as all cases, which took 18 s (H200, 2026-11-22)"),
    _wall("clean-warm-60", 155.0, "reckoned as flagged-60, without its flagged ones"),
    _wall("beside-asv", 300.0, "reckoned: a gate of 14 cases, and asv at 14 s a case (H200, 2026-11-20)"),
    _race(
        "matmul",
        240.0,
        "took 139 s (H200, 2026-11-22); half of the points have 8 candidates more since",
        "docs/decisions/0004-shared-tiles.md",
    ),
    _race(
        "attention",
        120.0,
        "took 95 s (H200, 2026-11-22)",
        "docs/decisions/0005-hopper-attention.md",
    ),
    _race(
        "fp8",
        120.0,
        "took 65 s (H200, 2026-11-22)",
        "docs/performance.md",
    ),
    Step(
        name="short-tiles",
        purpose="tiles for short products: what the estimate of decision 8 is fitted to",
        arguments=("-m", "evidence.short_tiles", "race", "{out}", "--seconds", "{seconds}"),
        expected_s=320.0,
        origin="took 303 s, with 47 tiles (H100, 2026-11-25)",
        limit_s=1500.0,
        least_s=100.0,
        resumes=True,
        more="no time is left for",
        out=f"{_H200}short-tiles-{{date}}.json",
        needs=("hopper-matmul-tests",),
        then=tuple(f"python -m evidence.short_tiles {what} {{place}}" for what in ("judge", "fit")),
    ),
    Step(
        name="lines",
        purpose="products by way of copies of B: where flopwatch.kernels.scratch makes them, in decision 8",
        arguments=("-m", "evidence.lines", "race", "{out}", "--seconds", "{seconds}"),
        expected_s=80.0,
        origin="took about 70 s (H100, 2026-11-25)",
        limit_s=400.0,
        least_s=60.0,
        resumes=True,
        more="no time is left for",
        out=f"{_H200}lines-{{date}}.json",
        needs=("hopper-matmul-tests",),
        then=("python -m evidence.lines gains {place}",),
    ),
    Step(
        name="ledger-recording",
        purpose="pairs of equal code: false alarms, noise and power in docs/evidence.md",
        arguments=("-m", "evidence.record", "{out}", "--seconds", "{seconds}"),
        expected_s=400.0,
        origin="18 pairs took 330 s (H200, 2026-11-21), and the last one ends",
        limit_s=460.0,
        least_s=390.0,
        out=f"{_H200}aa-{{date}}.npz",
        then=("python -m evidence ledger", "python -m evidence power"),
    ),
    Step(
        name="static-slowdowns",
        purpose="what planted changes cost, in docs/evidence-static.md",
        arguments=(
            *("-m", "evidence.static_calibration", "measure", "{out}"),
            *("--resume", "--seconds", "{seconds}"),
        ),
        expected_s=270.0,
        origin="took 255 s (H200, 2026-11-23)",
        limit_s=900.0,
        least_s=180.0,
        resumes=True,
        more="no time for",
        out=f"{FILES}evidence/static/measured-{{date}}.json",
        then=("python -m evidence.static_calibration docs",),
    ),
    Step(
        name="peers",
        purpose="the bundled kernels beside their peers, in docs/performance.md",
        arguments=("-m", "evidence.peers", "measure", "{out}", "--seconds", "{seconds}"),
        expected_s=720.0,
        origin="reckoned: 133 points by evidence.peers.RECKONED_S",
        limit_s=1500.0,
        least_s=180.0,
        resumes=True,
        more="no time for more",
        out=f"{_H200}peers-{{date}}.json",
        then=("python -m evidence.peers docs",),
    ),
    Step(
        name="launch-costs",
        purpose="what calls cost the host, in docs/performance.md",
        arguments=("-m", "evidence.launch_costs", "{out}"),
        expected_s=45.0,
        origin="reckoned: 13 calls of 40 rounds, and products and attention that are tuned once",
        limit_s=200.0,
        out=f"{_H200}launch-{{date}}.json",
        then=("python -m evidence.peers docs",),
    ),
    Step(
        name="first-calls",
        purpose="what the first call of a size costs, in docs/performance.md",
        arguments=("-m", "evidence.first_calls", "{out}"),
        expected_s=150.0,
        origin="reckoned: 22 processes of 4 s to start and 2 s to compile",
        limit_s=500.0,
        out=f"{_H200}first-calls-{{date}}.json",
        then=("python -m evidence.peers docs",),
    ),
    Step(
        name="varied-lengths",
        purpose="attention of sequences whose lengths differ, in docs/performance.md",
        arguments=("-m", "evidence.varied_lengths", "{out}", "--seconds", "{seconds}"),
        expected_s=80.0,
        origin="took 67 s (H100, 2026-11-25)",
        limit_s=600.0,
        least_s=60.0,
        resumes=True,
        more="no time is left for",
        out=f"{_H200}varied-lengths-{{date}}.json",
        then=("python -m evidence.peers docs",),
    ),
    Step(
        name="power-recording",
        purpose="pairs whose head a spin slows: what is found, in docs/evidence.md",
        arguments=(
            *("-m", "evidence.record_power", "{out}", "--cases", "14"),
            *("--slowdowns", "0.25,0.5,1,2,5", "--seconds", "{seconds}"),
        ),
        expected_s=270.0,
        origin="16 pairs took 208 s (H200, 2026-11-21), and the last one ends",
        limit_s=400.0,
        least_s=270.0,
        out=f"{_H200}spin-{{date}}.npz",
        then=("python -m evidence power",),
    ),
    Step(
        name="l2-swizzle",
        purpose="the study of orders of tiles, in docs/studies/l2_swizzle.md",
        arguments=("-m", "evidence.l2_swizzle", "measure", "{out}"),
        expected_s=310.0,
        origin="took 299 s (H200, 2026-11-23)",
        limit_s=500.0,
        out=f"{FILES}evidence/studies/l2_swizzle.measured.json",
        then=("python -m evidence.l2_swizzle docs",),
    ),
    Step(
        name="sanitizers",
        purpose="who finds which planted fault, in docs/guide/sanitizing.md",
        arguments=("-m", "evidence.sanitizers", "{out}", "--page", "{root}/docs/guide/sanitizing.md"),
        expected_s=200.0,
        origin="took 69, 67, 23, 14 and 12 s, side by side (H200, 2026-11-23)",
        limit_s=1200.0,
        out="sanitizers.json",
        collects=(("{root}/docs/guide/sanitizing.md", f"{FILES}docs/guide"),),
    ),
    Step(
        name="sanitized-forms",
        purpose="kernels beside the plain ones under compute-sanitizer, in docs/guide/sanitizing.md",
        arguments=("-m", "evidence.sanitized_forms", "--json", "{out}"),
        expected_s=310.0,
        origin="reckoned: 42 of 77 forms took 161 s (H100, 2026-11-25)",
        limit_s=900.0,
        out=f"{_H200}sanitized-forms-{{date}}.json",
    ),
    Step(
        name="traffic",
        purpose="the model of traffic beside the GPU's counters, in docs/traffic.md",
        arguments=("-m", "evidence.traffic", "{out}"),
        expected_s=120.0,
        origin="took 110 s (H200, 2026-11-23)",
        limit_s=800.0,
        out=f"{FILES}evidence/static/traffic-h200.json",
        then=("python -m evidence.traffic {place} --table",),
    ),
    Step(
        name="profiles",
        purpose="a product by cuBLAS, torch and ours under Proton, as docs/profile.md describes it",
        arguments=("-m", "evidence.profiles", "{out}"),
        expected_s=60.0,
        origin="less than a minute, as its description says; not measured",
        limit_s=300.0,
        out="profiles",
    ),
    Step(
        name="history",
        purpose="this commit in asv's history, results/h200",
        arguments=("-m", "flopwatch", "record", "--machine", "h200"),
        expected_s=180.0,
        origin="reckoned: 70 cases of 2 s, and a start",
        limit_s=600.0,
        least_s=90.0,
        resumes=True,
        collects=(  # the sidecars too, and the names of what is recorded, without which asv shows none of it
            ("{root}/results/h200/*.json*", f"{FILES}results/h200"),
            ("{root}/results/benchmarks.json", f"{FILES}results"),
        ),
    ),
    Step(
        name="host-baseline",
        purpose="what the host's part costs with a real driver: a baseline of nox -s bench",
        arguments=("-m", "benchmarks_host", "record"),
        expected_s=210.0,
        origin="reckoned: 7 runs of 27 s on two cores, and starting",
        limit_s=700.0,
        collects=(("{root}/benchmarks_host/baseline/gpu-*.json", f"{FILES}benchmarks_host/baseline"),),
    ),
    Step(
        name="tunings",
        purpose="what tuners time, all candidates of each product: the table and the prediction in docs/kernels.md",
        arguments=(
            *("-m", "evidence.wall_time", "{scratch}/tunings.json", "--only", "clean-cold", "-k", "Matmul"),
            *("--folder", "{scratch}/tunings"),
        ),
        expected_s=240.0,
        origin="reckoned: a gate of the products alone, which times every candidate",
        limit_s=540.0,
        collects=(("{scratch}/tunings/*-clean-cold.json", "tunings"),),
        environment=(("FLOPWATCH_AUTOTUNE", "all"),),
        then=(
            "python -m evidence.prediction record {dir}/tunings/*-clean-cold.json --date {date}",
            "python -m evidence.prediction",
        ),
    ),
    Step(
        name="tuning",
        purpose="what heuristics and an autotuner cost and lose, in docs/tune.md",
        arguments=("-m", "evidence.tuning", "{out}"),
        expected_s=420.0,
        origin="reckoned: 84 forks of 3 s, and two searches",
        limit_s=1500.0,
        least_s=150.0,
        resumes=True,
        out=f"{_H200}tuning-{{date}}.json",
        then=("python -m evidence.tuning --docs",),
    ),
    _tests(
        "every-hopper-matmul",
        "numbers of the Hopper products, every configuration",
        "tests/kernels/test_hopper_matmul.py",
        "-m",
        "gpu",
        expected_s=540.0,
        origin="reckoned: 40 processes, as hopper-matmul-tests",
        limit_s=1200.0,
    ),
    _tests(
        "every-hopper-fp8",
        "numbers of the Hopper products of float8, every configuration",
        "tests/kernels/test_hopper_fp8.py",
        "-m",
        "gpu",
        expected_s=380.0,
        origin="reckoned: 18 processes, as hopper-fp8-tests",
        limit_s=900.0,
    ),
    _tests(
        "every-hopper-attention",
        "numbers of the Hopper attention, every configuration in either dtype",
        "tests/kernels/test_hopper_attention.py",
        "-m",
        "gpu",
        expected_s=860.0,
        origin="reckoned: 78 processes, as hopper-attention-tests",
        limit_s=1800.0,
    ),
)
_NO_GPU = "needs no GPU"
#: What is no step: a program under evidence/, with its verb where only that is none, and why.
LEFT_OUT: dict[str, str] = {
    "evidence": _NO_GPU,
    "evidence.architectures": _NO_GPU,
    "evidence.campaign": "runs the others",
    "evidence.changepoints": _NO_GPU,
    "evidence.fp8_candidates ruled": _NO_GPU,
    "evidence.lasting": _NO_GPU,
    "evidence.prediction": _NO_GPU,
    "evidence.l2_swizzle predict": _NO_GPU,
    "evidence.l2_swizzle docs": _NO_GPU,
    "evidence.l2_swizzle memory": "a part of what measure does",
    "evidence.l2_swizzle sources": _NO_GPU,
    "evidence.peers docs": _NO_GPU,
    "evidence.peers plots": _NO_GPU,
    "evidence.short_tiles times": _NO_GPU,
    "evidence.static_calibration compile": _NO_GPU,
    "evidence.static_calibration docs": _NO_GPU,
}
