"""What a worker does: the suites it knows, the case that is ready to be sampled, and the answer to each request."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flopwatch import overlay
from flopwatch.errors import BrokenImportError, SuiteError, UsageError
from flopwatch.measure.footprints import case_footprints
from flopwatch.measure.protocol import (
    CaseFacts,
    Compiled,
    DeclaredCase,
    Gathered,
    Hello,
    IrText,
    Mode,
    Op,
    Plan,
    Prepared,
    Reply,
    Request,
)
from flopwatch.model import Case, Choice, Failure, Timing, from_json, to_json
from flopwatch.static.traffic import traffic_of
from flopwatch.study.declaration import Study
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from flopwatch.measure.timer import PreparedCase
    from flopwatch.static.recorder import Autotune, Recorder
    from flopwatch.static.traffic import Traffic
    from flopwatch.suite import Suite

#: Samples behind one point of the history. The median of 40 errs by 1.25 * 0.3 % / sqrt(40) = 0.06 % at the scatter
#: inside a process on an H200 (0.3 %, 2026-11-20), which is less than processes differ by.
HISTORY_SAMPLES = 40
#: Untimed samples at the start of a visit: the first one after the other side had the GPU is 1 to 6 % slow, for tiny
#: kernels up to 127 % (H200, 2026-11-20).
WARM_UP_SAMPLES = 1
#: Of the loops of a case's launches, all together. The bundled suites' cases take 256 at the most, and 0.01 to 0.4 s
#: each, 5 s all 66 (2 cores shared with others, 2026-11-22). What takes more is not covered.
CASE_TURNS = 1024


class Session:
    """The state of one worker: its suites, and the cases that are ready to be sampled."""

    def __init__(self, mode: Mode, benchmarks: Path, device: str) -> None:
        self.mode = mode
        self.device = device
        if mode is Mode.GPU:
            from triton import knobs  # noqa: PLC0415 - only where kernels are

            from flopwatch.measure.compiler import reuse_compiled  # noqa: PLC0415 - likewise
            from flopwatch.measure.tuning import TunerLog, ignore_line_numbers  # noqa: PLC0415 - before any kernel
            from flopwatch.static import find_device  # noqa: PLC0415 - likewise

            if knobs.autotuning.cache:
                ignore_line_numbers()
            else:  # a kernel has the key under which it was compiled without a GPU
                reuse_compiled(find_device(device))
            self._tuner = TunerLog()
        finder = overlay.install_from(os.environ)
        self.packages = finder.packages if finder else ()
        with self._importing():
            self.discovery = discover(benchmarks)
        if mode is Mode.GPU:
            self._tuner.install()
        foreign = overlay.foreign_modules(finder) if finder else []
        if foreign:
            raise UsageError(
                f"{', '.join(foreign)} did not come from the checkout under test",
                todo="name every package of the code under test in [tool.flopwatch] packages",
            )
        self._ready: dict[Case, PreparedCase] = {}
        self._kept: dict[Case, tuple[Recorder, tuple[Traffic, ...]]] = {}
        self._answers: dict[str, Callable[[Case, Request], object]] = {
            Op.PREPARE.word: lambda case, request: self.prepare(
                case, request.plan, request.pins, beside=request.beside, lent=request.lent
            ),
            Op.VISIT.word: lambda case, request: self.prepared(case).sample(request.samples, warm_up=WARM_UP_SAMPLES),
            Op.LEND.word: lambda case, _request: self.prepared(case).lend(),
            Op.PLACE.word: lambda case, _request: self.prepared(case).place(),
            Op.LAUNCH.word: lambda case, request: self.prepared(case).launch(request.samples),
            Op.RELEASE.word: lambda _case, _request: self.release(),
            Op.TIME.word: lambda case, _request: self.time(case),
            Op.TUNE.word: lambda case, request: self.tune(case, request.pins),
            Op.BITS.word: lambda case, request: self.bits(case, request.seed, request.pins),
            Op.NUMBERS.word: lambda case, request: self.numbers(case, request.seed, request.pins),
            Op.MEMORY.word: lambda case, request: self.memory(case, request.pins),
            Op.FACTS.word: lambda case, request: self.compile(case, identify=request.identify),
            Op.KEEP.word: lambda case, request: self.keep(case, request.autotune),
            Op.IR.word: lambda case, request: self.ir(case, request.kernels, request.levels),
            Op.FOOTPRINTS.word: lambda case, ask: case_footprints(self.suite(case), case, self.device, ask.programs),
        }

    def get_ready(self) -> None:
        """Do, ahead of the first request, what the first kernel to be compiled would wait for."""
        from flopwatch.measure.compiler import get_ready, import_for_pretence  # noqa: PLC0415 - where it is needed
        from flopwatch.static import find_device  # noqa: PLC0415 - likewise

        get_ready(find_device(self.device))
        if self.mode is Mode.STATIC:
            import_for_pretence()

    def answer(self, request: Request) -> object:
        """Do what is asked and return a value that can be written as JSON."""
        if request.op == Op.HELLO.word:
            return self.hello()
        if request.op == Op.WAKE.word:
            wake()
            return None
        if request.op == Op.GATHER.word:
            return self.gather()
        if request.case is None:
            raise UsageError(f"request {request.op!r} names no case")
        try:
            answer = self._answers[request.op]
        except KeyError:
            raise UsageError(f"no such request: {request.op!r}") from None
        return answer(request.case, request)

    def hello(self) -> Hello:
        """Say what this worker runs on."""
        from flopwatch.measure.compiler import toolchain_of  # noqa: PLC0415 - where it is needed
        from flopwatch.static import find_device  # noqa: PLC0415 - likewise

        return Hello(
            **_gpu(),
            versions=toolchain_of(find_device(self.device)),
            declared=tuple(
                _declared(suite, case) for suite in self.discovery.suites.values() for case in suite.cases()
            ),
            import_failures={
                name: f"{type(error).__name__}: {error}" for name, error in self.discovery.failures.items()
            },
            parameters={name: tuple(suite.param_names) for name, suite in self.discovery.suites.items()},
            studies={
                name: suite.declaration() for name, suite in self.discovery.suites.items() if issubclass(suite, Study)
            },
        )

    def suite(self, case: Case) -> Suite:
        """Return an instance of the suite that declares the case."""
        try:
            return self.discovery.suites[case.suite]()
        except KeyError:
            failures = self.discovery.failures
            causes = [f"{name}: {type(error).__name__}: {error}" for name, error in failures.items()]
            why = "a module cannot be imported here" if causes else "no module of the benchmarks folder declares it"
            lacks = all(isinstance(error, ImportError | AttributeError) for error in failures.values())
            kind = SuiteError if lacks else BrokenImportError
            raise kind("; ".join([f"no suite {case.suite!r}", *causes]), why=why) from None

    def prepare(
        self, case: Case, plan: Plan | None, pins: Sequence[Choice] = (), *, beside: bool = False, lent: str = ""
    ) -> Prepared:
        """Make a case ready to be sampled, in place of all others or `beside` them."""
        from flopwatch.measure.timer import PreparedCase  # noqa: PLC0415 - torch is not needed to answer HELLO

        self.release(case if beside else None)
        self._tuner.start(pins)
        prepared = self._ready[case] = PreparedCase(
            self.suite(case), case, plan, lent=lent, tuned=self._tuner.step_aside
        )
        return Prepared(
            plan=prepared.plan, choices=self._tuner.choices, borrowed=prepared.borrowed, refusal=prepared.refusal
        )

    def time(self, case: Case) -> Timing:
        """Take the samples of one point of the history."""
        method = self.prepare(case, None).plan.method.value
        return Timing(seconds=self.prepared(case).sample(HISTORY_SAMPLES, warm_up=2), method=method)

    def prepared(self, case: Case) -> PreparedCase:
        """Return the case that `prepare` made ready."""
        if case not in self._ready:
            raise UsageError(f"{case.id} was not prepared")
        return self._ready[case]

    def release(self, case: Case | None = None) -> None:
        """Give the memory of a prepared case, of all if None, back to the GPU."""
        import torch  # noqa: PLC0415 - where it is needed

        for prepared in list(self._ready) if case is None else [case]:
            self._ready.pop(prepared, None)
        torch.cuda.empty_cache()

    def tune(self, case: Case, pins: Sequence[Choice]) -> tuple[Choice, ...]:
        """Call the case once, which compiles and tunes its kernels, and return what they run in."""
        from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - where it is needed

        self.release()
        self._tuner.start(pins)
        self._tuner.forget()  # another case with the same key would have no timings
        suite = self.suite(case)
        suite.call(case.provider)(*make_inputs(suite, case, seed=0))
        return self._tuner.choices

    def numbers(self, case: Case, seed: int, pins: Sequence[Choice]) -> object:
        """Compare the case's result with its reference, on the GPU or by the interpreter."""
        from flopwatch.measure.numbers import check_numbers  # noqa: PLC0415 - where it is needed

        if self.mode is Mode.GPU:
            self._tuner.start(pins)
        with self._device():
            tuned = self._tuner.step_aside if self.mode is Mode.GPU else None
            return check_numbers(self.suite(case), case, seed, tuned=tuned)

    def bits(self, case: Case, seed: int, pins: Sequence[Choice]) -> str:
        """Fingerprint the case's result, on the GPU."""
        from flopwatch.measure.numbers import fingerprint_result  # noqa: PLC0415 - where it is needed

        self._tuner.start(pins)
        return fingerprint_result(self.suite(case), case, seed, tuned=self._tuner.step_aside)

    def memory(self, case: Case, pins: Sequence[Choice]) -> object:
        """Measure what one call allocates at its peak, and what is left of it afterwards."""
        from flopwatch.measure.memory import measure_memory  # noqa: PLC0415 - where it is needed

        self.release()
        self._tuner.start(pins)
        return measure_memory(self.suite(case), case, tuned=self._tuner.step_aside)

    def compile(self, case: Case, *, identify: bool = True) -> Compiled:
        """Compile every kernel that the case launches; say what came out, and what the case would run."""
        from flopwatch.static import case_identity, kernel_facts, pretend_gpu  # noqa: PLC0415 - where it is needed
        from flopwatch.static.watch import watched  # noqa: PLC0415 - where it is needed

        suite = self.suite(case)
        if case.provider != suite.own_provider:
            return Compiled(facts=())
        watching = watched(self.packages) if identify else contextlib.nullcontext()
        with pretend_gpu(self.device, tensors="meta") as recorder, watching as watch:
            own, ended = _called(suite, case, recorder)
        if not ended:
            return Compiled(facts=tuple(kernel_facts(own)))
        return Compiled(
            facts=tuple(kernel_facts(own)),
            identity=case_identity(recorder, watch, suite, case) if watch else None,
            traffic=traffic_of(own, most_turns=CASE_TURNS),
            tunes=bool(recorder.tunings),
        )

    def keep(self, case: Case, autotune: Autotune) -> None:
        """Compile every kernel that the case launches, for `gather` to tell what came out."""
        from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed

        suite = self.suite(case)
        with pretend_gpu(self.device, tensors="meta", autotune=autotune) as recorder:
            own, _ = _called(suite, case, recorder)
        self._kept[case] = (own, traffic_of(own, most_turns=CASE_TURNS))

    def gather(self) -> Gathered:
        """Say what the compiler made of all cases that were kept.

        Their instructions are counted in one go: nvdisasm takes 0.28 s to start, and the bundled suites' 66 cases bring
        new code 26 times (triton 3.7.1, sm_90, 2026-11-21).
        """
        from flopwatch.measure.loaded import loaded_files  # noqa: PLC0415 - where it is needed
        from flopwatch.static import Recorder, find_device, kernel_facts  # noqa: PLC0415 - where it is needed

        kept, self._kept = self._kept, {}
        compiled = {key: kernel for recorder, _ in kept.values() for key, kernel in recorder.compiled.items()}
        kernel_facts(Recorder(device=find_device(self.device), compiled=compiled))  # keeps the counts
        cases = tuple(
            CaseFacts(case=case, facts=tuple(kernel_facts(recorder)), traffic=traffic)
            for case, (recorder, traffic) in kept.items()
        )
        return Gathered(cases=cases, loaded=tuple(loaded_files()))

    def ir(self, case: Case, kernels: Sequence[tuple[str, str, str]], levels: Sequence[str]) -> tuple[IrText, ...]:
        """Compile the case and return what the compiler had at these levels of these kernels, as far as it came."""
        from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed
        from flopwatch.static.ir import ir_texts  # noqa: PLC0415 - where it is needed

        suite = self.suite(case)
        with pretend_gpu(self.device, tensors="meta") as recorder:
            own, _ = _called(suite, case, recorder)
        found = ir_texts(own, kernels, levels)
        return tuple(
            IrText(kernel=kernel, variant=variant, config=config, level=level, text=text)
            for (kernel, variant, config, level), text in found.items()
        )

    def _importing(self) -> contextlib.AbstractContextManager[object]:
        """Return where suites are imported: modules ask which GPU there is to choose tiles, and fail without one."""
        if self.mode is Mode.GPU:
            return contextlib.nullcontext()
        from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed

        return pretend_gpu(self.device, tensors="meta" if self.mode is Mode.STATIC else "cpu")

    def _device(self) -> contextlib.AbstractContextManager[object]:
        if self.mode is Mode.GPU:
            return contextlib.nullcontext()
        from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed

        return pretend_gpu(self.device, tensors="cpu")


def _called(suite: Suite, case: Case, recorder: Recorder) -> tuple[Recorder, bool]:
    """Call the case under the pretence; return what it launched, and whether it came to its end.

    What its inputs launched is none of its kernels and left out; the recorder keeps it, for the case's identity.
    A kernel that does not compile or fit is what was asked about, and recorded; whatever else is raised is raised.
    """
    from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - where it is needed

    inputs = make_inputs(suite, case, seed=0)
    launches, failures = len(recorder.launches), len(recorder.failures)
    ended = True
    try:
        suite.run(*inputs)
    except Exception as error:
        failed = [failure.error for failure in recorder.failures[failures:] if failure.config is not None]
        if not any(cause is known for cause in _chain(error) for known in failed):
            raise
        ended = False
    return replace(recorder, launches=recorder.launches[launches:], failures=recorder.failures[failures:]), ended


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it was raised from or after."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _declared(suite: type[Suite], case: Case) -> DeclaredCase:
    return DeclaredCase(
        case=case,
        small=suite.small_case(case),
        own=case.provider == suite.own_provider,
        max_diff_eps=suite.max_diff_eps,
        flops=float(suite().flops(*case.values[:-1])),
        bytes_moved=float(suite().bytes_moved(*case.values[:-1])),
    )


def failure_of(error: BaseException) -> Failure:
    """Keep what is worth knowing of an exception."""
    message = str(error).strip() or type(error).__name__
    return Failure(
        kind=type(error).__name__,
        message=_encodable(message[:2000]),
        traceback=_encodable(traceback.format_exc()[-8000:]),
    )


def _encodable(text: str) -> str:
    """Replace what is not UTF-8, such as the undecodable bytes of a path: JSON could not carry it."""
    return text.encode(errors="backslashreplace").decode()


def wake() -> None:
    """Take hold of the GPU: CUDA needs 0.3 s for a process (H200, 2026-11-20), which two can spend side by side."""
    import torch  # noqa: PLC0415 - where it is needed

    torch.cuda.synchronize()


def _gpu() -> dict[str, Any]:
    import torch  # noqa: PLC0415 - a static worker has no use for it here

    if not torch.cuda.is_available():
        return {"gpu": None, "gpu_uuid": None, "compute_capability": None}
    properties = torch.cuda.get_device_properties()
    return {
        "gpu": properties.name,
        "gpu_uuid": f"GPU-{properties.uuid}",
        "compute_capability": (properties.major, properties.minor),
    }


def _gpu_is_lost() -> bool:
    """Tell whether an earlier kernel has broken the CUDA context for good."""
    import torch  # noqa: PLC0415 - where it is needed

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def serve(session: Session, requests: Iterator[bytes], replies: Any) -> None:  # noqa: ANN401 - a binary stream
    """Answer until the parent closes its end; give up the process where the GPU context is lost."""
    for line in requests:
        try:
            reply = Reply(value=session.answer(from_json(line, Request)))
        except Exception as error:  # noqa: BLE001 - a failing benchmark is a result, whatever it raises
            reply = Reply(failure=failure_of(error), last=session.mode is Mode.GPU and _gpu_is_lost())
        if reply.failure is not None:
            gc.collect()  # what failed can hold its frames, and they their tensors, in a cycle
        replies.write(to_json(reply) + b"\n")
        replies.flush()
        if reply.last:
            os._exit(1)  # destructors of a lost context can hang
