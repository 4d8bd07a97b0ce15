"""The study of L2 swizzling: what an order of tiles asks of memory, and what it costs on a GPU.

``python -m evidence.l2_swizzle predict``     computes what each order asks of memory; needs no GPU
``python -m evidence.l2_swizzle measure``     runs the study on a GPU, with counters and a trace of memory
``python -m evidence.l2_swizzle memory``      traces memory again, and leaves the rest of what was measured as it is
``python -m evidence.l2_swizzle docs``        writes docs/studies/l2_swizzle.md again, from what both have kept
``python -m evidence.l2_swizzle sources DIR`` saves every level of Triton's IR, and TileLang's CUDA; needs no GPU
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.l2_swizzle_sources import save_sources
from evidence.memory_trace import Trace, trace
from evidence.tile_orders import Tiles, grouped, paneled, wave_bytes
from flopwatch.cli.output_file import claim, print_and_write
from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.kernels.configs import MATMUL_AUTOTUNE
from flopwatch.model import from_json, to_json
from flopwatch.profile.counters import (
    DRAM_BYTES,
    KERNEL_TIME,
    L2_SECTORS,
    ask_profiler,
    count,
    find_profiler,
    known_counters,
)
from flopwatch.static import find_device, pretend_gpu
from flopwatch.static.traffic import traffic_of
from flopwatch.study.result import StudyResult
from flopwatch.study.run import StudyOptions, run_study
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.study import Study

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "studies"
PREDICTED, MEASURED = FOLDER / "l2_swizzle.predicted.json", FOLDER / "l2_swizzle.measured.json"
STUDY = "L2Swizzle"
DEVICE = "h200"
#: TileLang's kernel has 128 sums a thread, so that a multiprocessor holds one program of 256 threads only.
TILELANG_PROGRAMS_PER_SM = 1
#: The sizes whose launches are counted: two of the profiler's passes over eleven lines take 20 s each.
COUNTED_SIZES = ("12288", "20480")
HIT_RATE = "lts__t_sector_hit_rate.pct"
_WANTED = (HIT_RATE, *DRAM_BYTES, *L2_SECTORS, KERNEL_TIME)
#: The lines whose memory is traced, and how often each is called.
TRACED = (("torch", "none"), ("flopwatch", "8"), ("tilelang", "none"), ("tilelang", "10"))
TRACED_SIZE = "12288"
CALLS = 16
#: Groups and panels that no line has, of which a trace of new kernels takes another each time: compilers keep what they
#: have compiled in the process, and would load it once.
UNSEEN = tuple(str(order) for order in range(40, 41 + CALLS // 4))
_PUBLIC = ("predict", "measure", "memory", "docs", "sources")
#: What `measure` runs in processes of its own.
_CHILDREN = ("compile", "launch", "trace")


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """What one order asks of memory at one size.

    Attributes:
        line: as the study calls it.
        size: of the square product.
        waves: how many there are.
        first_wave_bytes: different bytes that the first one reads.
        modelled_bytes: the same by the traffic model, from the compiled kernel; None where that knows nothing of it.
        all_waves_bytes: of all waves together.
    """

    line: str
    size: str
    waves: int
    first_wave_bytes: int
    modelled_bytes: int | None
    all_waves_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What the orders ask of memory on one device.

    Attributes:
        device: its key.
        programs: that it holds at once, by provider.
        predicted: an order at a size each.
        disagreeing: those of which the traffic model says otherwise.
    """

    device: str
    programs: dict[str, int]
    predicted: tuple[Predicted, ...]
    disagreeing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What a GPU counted of one launch."""

    line: str
    size: str
    kernel: str
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What a GPU said: the study, the counters of some launches, and where memory went.

    Attributes:
        measured: when.
        study: the times.
        counted: launches, one a line and size.
        memory: of calls and of compilations.
        traced: when that was, if it was not measured then.
        failures: what could not be found out, with the cause.
    """

    measured: str
    study: StudyResult
    counted: tuple[Counted, ...] = ()
    memory: tuple[Trace, ...] = ()
    traced: str = ""
    failures: dict[str, str] = field(default_factory=dict)


def main(arguments: list[str]) -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.l2_swizzle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*_PUBLIC, *_CHILDREN], metavar="{" + ",".join(_PUBLIC) + "}")
    parser.add_argument(
        "out", type=Path, nargs="?", help="the folder of the sources, or another file for what is found"
    )
    parser.add_argument("--rounds", type=int, default=8, help="fresh processes of the study (8, the fewest to decide)")
    parser.add_argument("--size", default=TRACED_SIZE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        _do(options)
    except FlopwatchError as error:
        sys.exit(str(error))


def _do(options: argparse.Namespace) -> None:
    match options.what:
        case "predict":
            (options.out or PREDICTED).write_bytes(to_json(predict(), indent=1) + b"\n")
        case "measure":
            out = options.out or MEASURED
            claim(out)
            found = to_json(measure(options.rounds), indent=1).decode() + "\n"
            print_and_write(lambda: None, out, lambda: found)
        case "memory":
            out = options.out or MEASURED
            before = from_json(out.read_bytes(), Measurement)
            _run_child("compile")
            out.write_bytes(to_json(replace(before, memory=_traced(), traced=_now()), indent=1) + b"\n")
        case "docs":
            from evidence import l2_swizzle_document  # noqa: PLC0415 - it imports this module

            l2_swizzle_document.write()
        case "sources":
            if options.out is None:
                sys.exit("name the folder of the sources")
            for path in save_sources(sys.modules[study().__module__], options.out, DEVICE):
                sys.stdout.write(f"{path}\n")
        case "compile":
            compile_panels()
        case "launch":
            options.out.write_text(json.dumps(launch_all(options.size)), encoding="utf-8")
        case _:
            options.out.write_bytes(to_json(trace_all()))


def study() -> type[Study]:
    """Return the study."""
    found = discover(ROOT / "benchmarks" / "studies")
    for failure in found.failures.values():
        raise failure
    return found.suites[STUDY]  # type: ignore[return-value] # a Study, as its folder says


def predict(device: str = DEVICE) -> Prediction:
    """Compute what each order asks of memory, and ask the traffic model for the same of our kernel's first wave."""
    module = sys.modules[study().__module__]
    config, (tile_m, tile_n, _) = MATMUL_AUTOTUNE[0], module.TILELANG_BLOCKS
    sms = find_device(device).sms
    found, programs = [], {"tilelang": TILELANG_PROGRAMS_PER_SM * sms}
    for size in module.SIZES:
        own = Tiles(size=int(size), block_m=config.block_m, block_n=config.block_n)
        for order in module.GROUPS:
            resident, modelled = model(module.grouped_matmul, int(size), order, device)
            programs["flopwatch"] = resident
            waves = wave_bytes(own, grouped(own, 1 if order == "none" else int(order)), resident)
            found.append(_predicted(f"flopwatch {order}", size, waves, modelled))
        theirs = Tiles(size=int(size), block_m=tile_m, block_n=tile_n)
        for panel in module.PANELS:
            if panel != "0":  # which TileLang refuses
                tiles = grouped(theirs, 1) if panel == "none" else paneled(theirs, int(panel))
                found.append(
                    _predicted(f"tilelang {panel}", size, wave_bytes(theirs, tiles, programs["tilelang"]), None)
                )
        sys.stderr.write(f"{size}\n")
    return Prediction(
        device=device,
        programs=programs,
        predicted=tuple(found),
        disagreeing=tuple(
            f"{each.line} at {each.size}" for each in found if each.modelled_bytes not in (None, each.first_wave_bytes)
        ),
    )


def _predicted(line: str, size: str, waves: list[int], modelled: int | None) -> Predicted:
    return Predicted(
        line=line,
        size=size,
        waves=len(waves),
        first_wave_bytes=waves[0],
        modelled_bytes=modelled,
        all_waves_bytes=sum(waves),
    )


def model(call: Callable[..., object], size: int, order: str, device: str) -> tuple[int, int | None]:
    """Return how many programs of a launch the device holds, and the bytes of the sectors that these read."""
    import torch  # noqa: PLC0415 - for what it pretends only

    with pretend_gpu(device, tensors="meta") as recorder:
        a, b = (torch.empty(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        call(a, b, order)
    (traffic,) = traffic_of(recorder)
    return traffic.wave_programs, None if traffic.wave_sectors is None else 32 * traffic.wave_sectors


def measure(rounds: int) -> Measurement:
    """Run the study, count launches, and trace memory: about 200 s on an H200, reckoned from what its products take."""
    failures: dict[str, str] = {}
    try:
        _run_child("compile")
    except MachineError as error:
        failures["compiling panels"] = str(error)
    result = run_study(StudyOptions(study=STUDY, rounds=rounds), ROOT)
    counted: list[Counted] = []
    memory: tuple[Trace, ...] = ()
    for size in COUNTED_SIZES:
        try:
            counted += count_launches(size)
        except (MachineError, ValueError, subprocess.TimeoutExpired) as error:
            failures[f"counters at {size}"] = str(error)
    try:
        memory = _traced()
    except MachineError as error:
        failures["memory"] = str(error)
    return Measurement(
        measured=_now(),
        study=result,
        counted=tuple(counted),
        memory=memory,
        failures=failures,
    )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def compile_panels() -> None:
    """Have TileLang compile all panels that it takes side by side, into its cache: nvcc takes many seconds for each."""
    import tilelang  # noqa: PLC0415 - optional

    module = sys.modules[study().__module__]
    wanted = [(size, panel) for size in module.SIZES for panel in module.PANELS if panel != "0"]
    wanted += [(TRACED_SIZE, panel) for panel in UNSEEN]
    programs = [module.tilelang_program(int(size), panel) for size, panel in wanted]
    tilelang.par_compile(programs, out_idx=-1)


def count_launches(size: str) -> list[Counted]:
    """Launch every line once under the profiler, in a process of its own.

    Raises:
        MachineError: there is no profiler, or it may not read the counters.
        ValueError: a line is not one launch, so that none can be told from the others.
    """
    profiler = find_profiler()
    there, _ = known_counters(ask_profiler(profiler, "--query-metrics"), _WANTED)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "lines.json"
        program = [sys.executable, "-m", "evidence.l2_swizzle", "launch", str(out), "--size", size]
        wanted = [name for name in there if name in _WANTED]
        launches = count(profiler, wanted, program, options=["--profile-from-start", "off"], cwd=ROOT)
        lines: list[str] = json.loads(out.read_text(encoding="utf-8"))
    if len(launches) != len(lines):
        kernels = ", ".join(launch.kernel for launch in launches)
        raise ValueError(f"{len(lines)} lines made {len(launches)} launches: {kernels}")
    return [
        Counted(line=line, size=size, kernel=launch.kernel, values=launch.values)
        for line, launch in zip(lines, launches, strict=True)
    ]


def launch_all(size: str) -> list[str]:
    """Launch every line that runs once, after a call that compiles it, with the profiler on; return their names."""
    import torch  # noqa: PLC0415 - only where there is a GPU

    suite = study()()
    a, b, _ = suite.inputs(size, "none", seed=0)
    done = []
    for case in type(suite).cases():
        if case.values[0] != size:
            continue
        call, order = suite.call(case.provider), case.values[1]
        try:
            call(a, b, order)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises where it is not installed
            sys.stderr.write(f"{case.id}: {error}\n")
            continue
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call(a, b, order)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        done.append(_name(case.provider, order))
    return done


def _name(provider: str, order: str) -> str:
    return provider if provider == "torch" else f"{provider} {order}"


def _traced() -> tuple[Trace, ...]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "traces.json"
        _run_child("trace", str(out))
        return from_json(out.read_bytes(), tuple[Trace, ...])


def _run_child(what: str, *arguments: str) -> None:
    """Run a part of this program in a process of its own, so that no CUDA context of it is left when others measure.

    Raises:
        MachineError: it failed.
    """
    command = [sys.executable, "-m", "evidence.l2_swizzle", what, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
    if done.returncode:
        raise MachineError(f"{what} failed", why=done.stderr.strip()[-500:])


def trace_all() -> tuple[Trace, ...]:
    """Trace the memory of calls, and of kernels that are compiled anew inside of them, as in the original study."""
    suite = study()()
    found: list[Trace] = []
    compiled: set[str] = set()
    for provider, order in TRACED:

        def calls(provider: str = provider, order: str = order) -> Callable[[], object]:
            a, b, _ = suite.inputs(TRACED_SIZE, order, seed=0)
            return lambda: suite.call(provider)(a, b, order)

        def benchmarks(provider: str = provider) -> Callable[[], object]:
            orders = iter(UNSEEN)

            def one() -> object:
                a, b, order = suite.inputs(TRACED_SIZE, next(orders), seed=0)
                return suite.call(provider)(a, b, order)

            return one

        name = _name(provider, order)
        try:
            found.append(trace(f"a call of {name}", calls, CALLS))
            if provider not in compiled:
                what = "inputs and a call of torch" if provider == "torch" else f"inputs and a new kernel of {provider}"
                found.append(trace(what, benchmarks, CALLS // 4))
                compiled.add(provider)
        except Exception as error:  # noqa: BLE001 - as above
            sys.stderr.write(f"{name}: {error}\n")
    return tuple(found)


if __name__ == "__main__":
    main(sys.argv[1:])
