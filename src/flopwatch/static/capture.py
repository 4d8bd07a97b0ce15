"""Write down what Triton launches, compiles and refuses while a GPU is pretended."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
import triton
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import CompiledKernel
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from flopwatch.errors import UsageError
from flopwatch.static.arguments import DESCRIPTORS, ArgumentTexts, argument_values
from flopwatch.static.compile_once import let_go
from flopwatch.static.driver import benchmark_nothing
from flopwatch.static.facts import resources
from flopwatch.static.handles import BEFORE_ARGUMENTS, handle_arguments, handle_texts
from flopwatch.static.names import KernelNames
from flopwatch.static.ptxas import METADATA_KEY, ptxas_facts
from flopwatch.static.recorder import Autotune, Launch, LaunchFailure, Recorder, Tuning
from flopwatch.static.specialization import config_text, variant_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# A GPU's driver tells local memory per thread in bytes, which Triton divides by this and calls spills.
_WORD_BYTES = 4
# What a launch that does not say it gets on AMD; on NVIDIA it gets three (Triton 3.6 to 3.9).
_AMD_STAGES = 2


class Capture:
    """Triton's own classes, patched to tell a recorder; `restore` undoes it."""

    def __init__(self, recorder: Recorder, kind: Literal["meta", "cpu"], restore: contextlib.ExitStack) -> None:
        self.recorder = recorder
        self.kind = kind
        self.restore = restore
        self.tuning = False
        self._fits = False  # one configuration, at least, of the autotuned call that runs now
        self._running: Any = None  # the function whose own `run` compiles and launches
        self._texts = ArgumentTexts()
        self._names = KernelNames()
        self._functions: set[Any] = set()
        self._tuners: set[Any] = set()

    def install(self) -> None:
        """Patch Triton."""
        self._wrap(JITFunction, "run", self._compiled_run)
        self._wrap(InterpretedFunction, "run", self._interpreted_run)
        self._wrap(Autotuner, "run", self._tuned_run)
        self._wrap(Autotuner, "__init__", self._tuner_made)
        for kind in _subclasses(Autotuner):
            self._take_over(kind)
        self._wrap(CUDABackend, "make_cubin", _keep_ptxas_log)
        self._wrap(CompiledKernel, "__init__", self._made)
        self._wrap(CompiledKernel, "_init_handles", self._loaded)
        run = CompiledKernel.run
        self.restore.callback(setattr, CompiledKernel, "run", run)
        CompiledKernel.run = property(functools.partial(self._handle_run, run))

    def _wrap(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:  # noqa: ANN401 - untyped triton
        original = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the original's
            return replacement(original, *args, **kwargs)

        self.restore.callback(setattr, owner, name, original)
        setattr(owner, name, method)

    def _compiled_run(
        self,
        original: Callable[..., Any],
        function: Any,  # noqa: ANN401 - untyped triton
        *args: Any,  # noqa: ANN401 - the kernel's
        **kwargs: Any,  # noqa: ANN401 - the kernel's, with grid and warmup
    ) -> Any:  # noqa: ANN401 - untyped triton
        self._forget_on_exit(function)
        arguments = {name: value for name, value in kwargs.items() if name not in {"grid", "warmup"}}
        if not kwargs["warmup"]:
            self._note(function)
        config, variant, given = _described(function, args, arguments)
        launch = _Launching(kwargs)
        described = self._launched(
            self._own_name(function), launch, (*args, *kwargs.values()), config=config, variant=variant
        )
        with described, self._inside(function):
            launch.arguments, launch.values = self._texts.named(given), argument_values(given)
            kernel = original(function, *args, **launch.kwargs)
            kernel = kernel.result() if hasattr(kernel, "result") else kernel
            if kernel is not None:
                self.recorder.compiled[kernel.hash] = kernel
                launch.binary_hash = kernel.hash
        return kernel

    def _made(
        self,
        original: Callable[..., None],
        kernel: Any,  # noqa: ANN401 - untyped triton
        *args: Any,  # noqa: ANN401 - the original's
        **kwargs: Any,  # noqa: ANN401 - likewise
    ) -> None:
        original(kernel, *args, **kwargs)
        if self._running is None:
            self.recorder.compiled[kernel.hash] = kernel  # by `triton.compile`; nobody knows who will launch it

    def _loaded(self, original: Callable[..., None], kernel: Any) -> None:  # noqa: ANN401 - untyped triton
        """Load a kernel, which then has the registers and spills that a GPU's driver would tell."""
        try:
            original(kernel)
        except Exception as error:
            if self._running is None:
                config, variant = handle_texts(kernel)
                self._note_failure(self._handle_name(kernel), config, variant, error)
            raise
        taken = resources(kernel)
        if taken:
            kernel.n_regs = taken["registers"]
            kernel.n_spills = taken["stack_bytes"] // _WORD_BYTES

    def _handle_run(self, original: Any, kernel: Any) -> Callable[..., Any]:  # noqa: ANN401 - untyped triton
        """Return what launches a compiled kernel; Triton's functions and ``kernel[grid]`` ask for it each time."""
        launcher: Callable[..., Any] = original.fget(kernel)
        if self._running is not None and getattr(kernel.src, "fn", None) is self._running:
            return launcher
        return functools.partial(self._handle_launched, kernel, launcher)

    def _handle_launched(self, kernel: Any, launcher: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - untyped triton
        grid, given = args[:3], args[BEFORE_ARGUMENTS:]
        function = getattr(kernel.src, "fn", None)
        if function is not None:
            self._note(function)
        self.recorder.compiled[kernel.hash] = kernel
        launch = _Launching({"grid": grid})
        config, variant = handle_texts(kernel)
        with self._launched(self._handle_name(kernel), launch, given, config=config, variant=variant):
            named = handle_arguments(kernel, given)
            launch.arguments, launch.values = self._texts.named(named), argument_values(named)
            launch.binary_hash = kernel.hash
            launch.grid = tuple(int(size) for size in grid)
            return launcher(*args)

    def _own_name(self, function: Any) -> str:  # noqa: ANN401 - untyped triton
        """Return the name of a function, which no other has that is compiled to something else."""
        called = _name(function)
        return called if isinstance(function, InterpretedFunction) else self._names.name(called, function.cache_key)

    def _handle_name(self, kernel: Any) -> str:  # noqa: ANN401 - untyped triton
        """Return the name of the kernel's function; of one that was read as IR, its symbol."""
        function = getattr(kernel.src, "fn", None)
        return self._own_name(function) if function is not None else self._names.name(kernel.name, kernel.src.hash())

    def _note(self, function: Any) -> None:  # noqa: ANN401 - untyped triton
        if not any(function is launched for launched in self.recorder.kernels):
            self.recorder.kernels.append(function)

    def _note_failure(self, name: str, config: str | None, variant: str, error: Exception) -> None:
        self.recorder.failures.append(
            LaunchFailure(kernel=name, config=config, variant=variant, tuning=self.tuning, error=error)
        )

    @contextlib.contextmanager
    def _inside(self, function: Any) -> Iterator[None]:  # noqa: ANN401 - untyped triton
        before, self._running = self._running, function
        try:
            yield
        finally:
            self._running = before
            let_go()  # of a kernel that failed

    def _interpreted_run(
        self,
        original: Callable[..., Any],
        function: Any,  # noqa: ANN401 - untyped triton
        *args: Any,  # noqa: ANN401 - the kernel's
        **kwargs: Any,  # noqa: ANN401 - the kernel's, with grid and warmup
    ) -> Any:  # noqa: ANN401 - untyped triton
        if self.kind == "meta":
            raise UsageError(
                f"kernel {_name(function)} is interpreted, but its arguments have no values",
                why='TRITON_INTERPRET was set when it was decorated, and the GPU is pretended with tensors="meta"',
                todo='unset TRITON_INTERPRET to compile kernels, or pretend with tensors="cpu" to run them',
            )
        launch = _Launching(kwargs)
        with self._launched(_name(function), launch, (*args, *kwargs.values()), config=None, variant=""):
            return original(function, *args, **launch.kwargs)

    @contextlib.contextmanager
    def _launched(
        self,
        name: str,
        launching: _Launching,
        given: Iterable[object],
        *,
        config: str | None,
        variant: str,
    ) -> Iterator[None]:
        """Record the launch that the block makes, or its failure."""
        try:
            _refuse_host_tensors(given)
            yield
        except Exception as error:
            self._note_failure(name, config, variant, error)
            raise
        if launching.grid is not None:
            self.recorder.launches.append(
                Launch(
                    kernel=name,
                    grid=launching.grid,
                    config=config,
                    variant=variant,
                    tuning=self.tuning,
                    binary_hash=launching.binary_hash,
                    arguments=launching.arguments,
                    values=launching.values,
                )
            )

    def _tuned_run(
        self,
        original: Callable[..., Any],
        tuner: Any,  # noqa: ANN401 - untyped triton
        *args: Any,  # noqa: ANN401 - a kernel's own
        **kwargs: Any,  # noqa: ANN401 - likewise
    ) -> Any:  # noqa: ANN401 - untyped triton
        if tuner not in self._tuners:
            # The autotuner's cache knows nothing of devices, and what is "tuned" here must not outlive the pretence,
            # neither in the process nor in the cache on disk.
            self._tuners.add(tuner)
            state = vars(tuner)
            self.restore.callback(_reset, state, dict(state))
            state.update(
                cache={},
                cache_results=False,
                do_bench=self._benchmark(isinstance(_function(tuner), InterpretedFunction)),
                prune_configs=functools.partial(self._candidates, tuner),
            )
        # Each call tries its configurations: the GPU's choice may be any of them, and what is tried for one call says
        # nothing of another with the same key and other alignments or another grid.
        tuner.cache.clear()
        self._fits = False
        self.recorder.tunings.append(self._tuning(tuner, args, kwargs))
        return original(tuner, *args, **kwargs)

    def _tuner_made(self, original: Callable[..., None], tuner: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - untyped triton
        for kind in type(tuner).__mro__:
            if issubclass(kind, Autotuner):
                self._take_over(kind)
        original(tuner, *args, **kwargs)

    def _take_over(self, kind: type[Any]) -> None:
        """Have tuners with a `run` of their own run as Triton's.

        Projects replace `run` to keep what was timed in a file. What that holds must not decide what is compiled here,
        and no time of a pretended GPU must get into it.
        """
        own = vars(kind).get("run")
        if own is not None and own is not Autotuner.run:
            self.restore.callback(setattr, kind, "run", own)
            kind.run = Autotuner.run

    def _candidates(self, tuner: Any, kwargs: dict[str, Any]) -> list[Any]:  # noqa: ANN401 - untyped triton
        """Return what is tried, in order: what a call would time, then what only the kernel's own model leaves out."""
        timed: list[Any] = type(tuner).prune_configs(tuner, kwargs)
        predicts = tuner.perf_model is not None or type(tuner).prune_configs is not Autotuner.prune_configs
        if self.recorder.autotune is not Autotune.ALL or not predicts:
            return timed
        rule = tuner.early_config_prune
        able = rule(tuner.configs, tuner.nargs, **kwargs) if rule else tuner.configs
        return list(dict.fromkeys([*timed, *able]))

    def _tuning(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tuning:  # noqa: ANN401 - untyped triton
        given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
        return Tuning(
            kernel=self._own_name(_function(tuner)),
            keys=self._texts.named({name: given.get(name) for name in tuner.keys}),
            configs=tuple(", ".join(self._texts.named(config.all_kwargs())) for config in tuner.configs),
            tuner=tuner,
        )

    def _benchmark(self, interpreted: bool) -> Callable[..., Sequence[float] | float]:  # noqa: FBT001 - private
        def benchmark(
            call: Callable[[], object], quantiles: Sequence[float] | None = None, **_options: object
        ) -> Sequence[float] | float:
            if interpreted:
                return benchmark_nothing(_do_nothing, quantiles)
            if self._fits and self.recorder.autotune is Autotune.FIRST:
                return [float("inf")] * len(quantiles or (0.5,))
            self.tuning = True
            try:
                times = benchmark_nothing(call, quantiles)
            except CompilationError:
                # Recorded by the launch. The other configurations' facts are worth having all the same.
                return [float("inf")] * len(quantiles or (0.5,))
            finally:
                self.tuning = False
            self._fits = True
            return times

        return benchmark

    def _forget_on_exit(self, function: Any) -> None:  # noqa: ANN401 - untyped triton
        if function not in self._functions:
            self._functions.add(function)
            ordinal = triton.runtime.driver.active.get_current_device()
            self.restore.callback(function.device_caches.pop, ordinal, None)


class _Launching:
    """A launch on its way: its arguments, with a grid that notes what it came to; None while nothing is launched."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        self.kwargs = {**kwargs, "grid": self._noted}
        self.grid: tuple[int, ...] | None = None
        self.binary_hash = ""
        self.arguments: tuple[str, ...] = ()
        self.values: tuple[tuple[str, object], ...] = ()
        self._asked = kwargs["grid"]

    def _noted(self, bound: object) -> tuple[int, ...]:
        grid = self._asked(bound) if callable(self._asked) else self._asked
        self.grid = tuple(int(size) for size in grid)
        return self.grid


def _refuse_host_tensors(arguments: Iterable[object]) -> None:
    """Refuse what the device could not read, in the words of Triton's own launcher."""
    for index, argument in enumerate(arguments):
        tensor = argument.base if isinstance(argument, DESCRIPTORS) else argument
        if isinstance(tensor, torch.Tensor) and not tensor.is_cuda:
            raise ValueError(f"Pointer argument (at {index}) cannot be accessed from Triton (cpu tensor?)")


def _described(
    function: Any,  # noqa: ANN401 - untyped triton
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[str, str, dict[str, Any]]:
    """Return the texts of a launch's configuration and variant, and its arguments, as Triton itself binds them."""
    driver = triton.runtime.driver.active
    *_, binder = function.device_caches[driver.get_current_device()]
    bound, specialization, options = binder(*args, **kwargs)
    if driver.get_current_target().backend == "hip":
        options = {"num_stages": _AMD_STAGES} | options
    constants = {parameter.name: bound[parameter.name] for parameter in function.params if parameter.is_constexpr}
    others = [
        entry for parameter, entry in zip(function.params, specialization, strict=True) if not parameter.is_constexpr
    ]
    blocks = {name: value.block_shape for name, value in bound.items() if isinstance(value, DESCRIPTORS)}
    return config_text(constants, options, blocks), variant_text(others), {**bound, **options}


def _keep_ptxas_log(
    original: Callable[..., bytes],
    backend: object,
    source: str,
    metadata: dict[str, Any],
    *options: object,
) -> bytes:
    """Keep ptxas's own words in the kernel's metadata, which Triton's cache stores beside the binary.

    ptxas is never run a second time: Triton chooses the program and its options by version and architecture.
    """
    log = io.StringIO()
    with triton.knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        triton.knobs.nvidia.dump_ptxas_log = True
        binary = original(backend, source, metadata, *options)
    metadata[METADATA_KEY] = ptxas_facts(log.getvalue())
    return binary


def _function(tuner: Any) -> Any:  # noqa: ANN401 - untyped triton
    """Return what an autotuner tunes, without the heuristics around it."""
    function = tuner.fn
    while not isinstance(function, JITFunction | InterpretedFunction):
        function = function.fn
    return function


def _name(function: Any) -> str:  # noqa: ANN401 - untyped triton
    return cast("str", function.fn.__name__)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _reset(state: dict[str, Any], saved: dict[str, Any]) -> None:
    state.clear()
    state.update(saved)


def _do_nothing() -> None:
    pass
