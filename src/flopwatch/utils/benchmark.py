"""Time a kernel against PyTorch's on this GPU, and show both in a table.

For looking at a kernel while working on it. Whether a *commit* made it slower is another question, which needs pairs of
processes: ``flopwatch gate``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flopwatch.measure.inputs import input_bytes
from flopwatch.units import format_bytes, format_rate, format_seconds
from flopwatch.utils.gpu import require_cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_DEFAULT_QUANTILES = (0.5, 0.2, 0.8)

#: What is overwritten before each timed call, at least: twice the largest L2 of today (126 MB on a B200,
#: docs/devices.md) also keeps the GPU busy while the host prepares the call, so that launching is not timed with the
#: kernel: an H200 for 62 us, at the 4.3 TB/s that it moves (2026-11-22, `flopwatch.kernels.prediction.HOPPER`).
_FLUSH_BYTES = 256 * 2**20

#: More calls than these do not sharpen a quantile that the GPU's clock moves by a percent.
_MAX_CALLS = 10_000

_ESTIMATE_CALLS = 5
_BASELINE_PREFIX = "torch."
_SEED = 0


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """How fast one function was at one size.

    Attributes:
        name: the function, its dtype and mask.
        size: (m, n, k) of a matmul, (batch, heads, seq_len, head_dim) of an attention.
        time_ms: median time of one call in milliseconds.
        tflops: floating-point operations of the formula, per second, in 1e12.
        memory_mb: inputs and the most that one call allocated beside them, in MiB (2**20 bytes); workspaces that
            PyTorch keeps from call to call are not counted.
        block_config: the block sizes it was called with; None leaves them to the function.
    """

    name: str
    size: tuple[int, ...]
    time_ms: float
    tflops: float
    memory_mb: float = 0.0
    block_config: dict[str, int] | None = None


def benchmark_fn(
    fn: Callable[..., object],
    *args: Any,  # noqa: ANN401 - whatever `fn` takes
    warmup: int = 25,
    rep: int = 100,
    quantiles: list[float] | None = None,
    **kwargs: Any,  # noqa: ANN401 - whatever `fn` takes
) -> tuple[float, float, float]:
    """Time ``fn(*args, **kwargs)`` on the current CUDA device.

    Each call, the untimed ones too, starts with a cold L2, and a pair of CUDA events holds the call alone. A call whose
    host side takes longer than the flush is timed with what the GPU waits for it.

    Args:
        fn: the function; its first call compiles and tunes and is not timed.
        args: its arguments.
        warmup: how long to run it untimed, in milliseconds of its own time.
        rep: how long to run it timed, in milliseconds of its own time; 10 000 calls at most.
        quantiles: three numbers from 0 to 1 that replace 0.5, 0.2 and 0.8.
        kwargs: its keyword arguments.

    Returns:
        The quantiles of the time of one call in milliseconds: (median, 20th percentile, 80th percentile).

    Raises:
        ValueError: not three quantiles, one of them is no share, or a negative duration.
        RuntimeError: CUDA is not available.
    """
    levels = _checked_levels(quantiles)
    if warmup < 0 or rep < 0:
        raise ValueError(f"warmup and rep are milliseconds >= 0, not {warmup} and {rep}")
    require_cuda()

    def call() -> None:
        fn(*args, **kwargs)

    call()
    flush = torch.empty(_flush_bytes(), dtype=torch.int8, device="cuda")
    estimate_ms = float(np.median(_time_calls(call, flush, _ESTIMATE_CALLS)))
    _time_calls(call, flush, _calls_within(warmup, estimate_ms))
    times_ms = _time_calls(call, flush, _calls_within(rep, estimate_ms))
    median_ms, low_ms, high_ms = np.quantile(times_ms, levels).tolist()
    return median_ms, low_ms, high_ms


class BenchmarkRunner:
    """Benchmark functions over sizes, beside PyTorch's own, and collect the results.

    Args:
        device: the CUDA device to run on.
        warmup: milliseconds of untimed calls before each measurement.
        rep: milliseconds of timed calls.

    Attributes:
        results: everything measured so far, in order; the row of PyTorch comes first at each size.
    """

    def __init__(self, device: str = "cuda", warmup: int = 25, rep: int = 100) -> None:
        self.device = device
        self.warmup = warmup
        self.rep = rep
        self.results: list[BenchmarkResult] = []

    def benchmark_matmul(
        self,
        triton_fn: Callable[..., torch.Tensor],
        sizes: Sequence[tuple[int, int, int]],
        block_configs: Sequence[dict[str, int]] | None = None,
        dtype: torch.dtype = torch.float16,
    ) -> list[BenchmarkResult]:
        """Time C = A @ B by `triton_fn` and by `torch.matmul`, both in `dtype`, on random normal data.

        Args:
            triton_fn: called as ``triton_fn(a, b)``, or ``triton_fn(a, b, **config)`` for each block configuration.
            sizes: of (m, n, k): `a` is (m, k), `b` is (k, n).
            block_configs: keyword arguments, for example ``{"block_m": 128, "block_n": 256, "block_k": 64}``.
            dtype: of the inputs.

        Returns:
            For each size the row of `torch.matmul`, then one a configuration. TFLOPS count 2 m n k.

        Raises:
            RuntimeError: CUDA is not available.
            Exception: whatever `triton_fn` raises, with a note that says at which size and configuration.
        """
        results = []
        for m, n, k in sizes:
            with self._on_device():
                inputs = self._normal((m, k), (k, n), dtype=dtype)
                contenders: list[tuple[Callable[..., torch.Tensor], str, dict[str, int] | None]]
                contenders = [(torch.matmul, "torch.matmul", None)]
                contenders += [(triton_fn, _name(triton_fn), config) for config in block_configs or (None,)]
                for fn, name, config in contenders:
                    results.append(
                        self._measure(
                            fn,
                            inputs,
                            dict(config or {}),
                            name=f"{name} ({_dtype_name(dtype)})",
                            size=(m, n, k),
                            flops=2.0 * m * n * k,
                            block_config=config,
                        )
                    )
        return results

    def benchmark_attention(  # noqa: PLR0917 - the published signature
        self,
        flash_fn: Callable[..., torch.Tensor],
        seq_lengths: Sequence[int],
        batch_size: int = 4,
        num_heads: int = 8,
        head_dim: int = 64,
        causal: bool = False,  # noqa: FBT001, FBT002 - the published signature
        dtype: torch.dtype = torch.float16,
    ) -> list[BenchmarkResult]:
        """Time attention by `flash_fn` and by PyTorch's `scaled_dot_product_attention`, on random normal data.

        Args:
            flash_fn: called as ``flash_fn(q, k, v, causal=causal)`` with (batch_size, num_heads, seq_len, head_dim).
            seq_lengths: the lengths of the sequences.
            batch_size: sequences.
            num_heads: heads a sequence.
            head_dim: width of a head.
            causal: mask the keys after each query.
            dtype: of the inputs.

        Returns:
            For each length the row of PyTorch, then that of `flash_fn`. TFLOPS count 4 batch heads seq_len^2 head_dim,
            half of it when causal (the convention of FlashAttention).

        Raises:
            RuntimeError: CUDA is not available.
            Exception: whatever `flash_fn` raises, with a note that says at which size.
        """
        torch_attention = torch.nn.functional.scaled_dot_product_attention
        variant = f"({_dtype_name(dtype)}{', causal' if causal else ''})"
        results = []
        for seq_len in seq_lengths:
            size = (batch_size, num_heads, seq_len, head_dim)
            with self._on_device():
                inputs = self._normal(size, size, size, dtype=dtype)
                for fn, name, mask in (
                    (torch_attention, "torch.scaled_dot_product_attention", {"is_causal": causal}),
                    (flash_fn, _name(flash_fn), {"causal": causal}),
                ):
                    results.append(
                        self._measure(
                            fn,
                            inputs,
                            mask,
                            name=f"{name} {variant}",
                            size=size,
                            flops=4.0 * math.prod(size) * seq_len * (0.5 if causal else 1.0),
                            block_config=None,
                        )
                    )
        return results

    def print_comparison_table(
        self, results: Sequence[BenchmarkResult] | None = None, title: str = "Benchmark Results"
    ) -> None:
        """Print results as a table; the speed-up is against the last PyTorch row of the same size above.

        Args:
            results: what to show; None shows all that were collected.
            title: the heading.
        """
        Console().print(comparison_table(self.results if results is None else results, title))

    def _on_device(self) -> torch.cuda.device:
        require_cuda()
        return torch.cuda.device(torch.device(self.device))

    def _normal(self, *shapes: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator(device=self.device).manual_seed(_SEED)
        return tuple(torch.randn(shape, generator=generator, device=self.device).to(dtype) for shape in shapes)

    def _measure(
        self,
        fn: Callable[..., object],
        inputs: tuple[torch.Tensor, ...],
        options: Mapping[str, Any],
        *,
        name: str,
        size: tuple[int, ...],
        flops: float,
        block_config: dict[str, int] | None,
    ) -> BenchmarkResult:
        try:
            median_ms, _, _ = benchmark_fn(fn, *inputs, warmup=self.warmup, rep=self.rep, **options)
            torch.cuda.reset_peak_memory_stats()
            resident_bytes = torch.cuda.memory_allocated()
            fn(*inputs, **options)
            call_bytes = torch.cuda.max_memory_allocated() - resident_bytes
        except Exception as error:
            error.add_note(f"while benchmarking {name} at {size} with {dict(options)}")
            raise
        result = BenchmarkResult(
            name=name,
            size=size,
            time_ms=median_ms,
            tflops=flops / (median_ms * 1e-3) / 1e12,
            memory_mb=(input_bytes(inputs) + call_bytes) / 2**20,
            block_config=block_config,
        )
        self.results.append(result)
        return result


def comparison_table(results: Iterable[BenchmarkResult], title: str) -> Table:
    """Lay out results in the order given, with the speed-up over the PyTorch row of the same size that precedes."""
    table = Table(title=escape(title))
    table.add_column("function")
    table.add_column("size")
    table.add_column("blocks")
    for heading in ("time", "throughput", "memory", "speed-up"):
        table.add_column(heading, justify="right")
    baselines_ms: dict[tuple[int, ...], float] = {}
    for result in results:
        if result.name.startswith(_BASELINE_PREFIX):
            baselines_ms[result.size] = result.time_ms
        baseline_ms = baselines_ms.get(result.size)
        table.add_row(
            escape(result.name),
            "x".join(map(str, result.size)),
            " ".join(f"{key.removeprefix('block_')}{value}" for key, value in (result.block_config or {}).items())
            or "-",
            format_seconds(result.time_ms * 1e-3),
            format_rate(result.tflops * 1e12, "TFLOPS"),
            format_bytes(round(result.memory_mb * 2**20)),
            "-" if baseline_ms is None else f"{baseline_ms / result.time_ms:.2f}x",
        )
    return table


def _checked_levels(quantiles: Sequence[float] | None) -> tuple[float, ...]:
    levels = _DEFAULT_QUANTILES if quantiles is None else tuple(quantiles)
    if len(levels) != len(_DEFAULT_QUANTILES) or not all(0 <= level <= 1 for level in levels):
        raise ValueError(
            f"quantiles are three numbers from 0 to 1, not {list(levels)}\n"
            "  why: they replace the median, the 20th and the 80th percentile in the result\n"
            "  do:  pass for example quantiles=[0.5, 0.05, 0.95]"
        )
    return levels


def _flush_bytes() -> int:
    return max(_FLUSH_BYTES, 2 * torch.cuda.get_device_properties().L2_cache_size)


def _calls_within(budget_ms: float, call_ms: float) -> int:
    """Return how many calls fill the budget, at least one.

    >>> _calls_within(100, 0.25), _calls_within(0, 0.25), _calls_within(100, 0.0)
    (400, 1, 10000)
    """
    return min(max(math.ceil(budget_ms / max(call_ms, 1e-6)), 1), _MAX_CALLS)


def _time_calls(call: Callable[[], None], flush: torch.Tensor, calls: int) -> list[float]:
    events = []
    for _ in range(calls):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        flush.zero_()
        start.record()
        call()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def _name(fn: Callable[..., object]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
