from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.utils import benchmark
from flopwatch.utils.benchmark import BenchmarkResult, BenchmarkRunner, benchmark_fn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TABLE = """\
                                             Benchmark Results
┏━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━┓
┃ function                 ┃ size           ┃ blocks        ┃     time ┃   throughput ┃ memory ┃ speed-up ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━┩
│ torch.matmul (float16)   │ 4096x4096x4096 │ -             │ 200.0 µs │ 687.2 TFLOPS │ 96 MiB │    1.00x │
│ mine [bold] (float16)    │ 4096x4096x4096 │ m128 n256 k64 │ 160.0 µs │ 859.0 TFLOPS │ 96 MiB │    1.25x │
│ mine [bold] (float16)    │ 4096x4096x4096 │ m64 n64 k32   │ 400.0 µs │ 343.6 TFLOPS │ 96 MiB │    0.50x │
│ flash_attention (causal) │ 4x8x512x64     │ -             │ 1.000 ms │ 1.000 TFLOPS │    0 B │        - │
└──────────────────────────┴────────────────┴───────────────┴──────────┴──────────────┴────────┴──────────┘
"""


class SimulatedGpu:
    """A GPU whose clock moves only by what it is told to do; a call is fast unless the L2 was flushed before it."""

    flush_ms = 5.0
    warm_share = 0.1

    def __init__(self, *, l2_bytes: int = 50 * 2**20) -> None:
        self.now_ms = 0.0
        self.is_cold = False
        self.l2_bytes = l2_bytes
        self.flush_bytes = 0
        self.calls = 0

    def kernel(self, *durations_ms: float, first_ms: float = 0.0) -> Callable[..., torch.Tensor]:
        """Return a function that takes these times in turn, after a first call of `first_ms`."""
        durations = itertools.chain([first_ms], itertools.cycle(durations_ms))

        def simulated(*_args: object, **_options: object) -> torch.Tensor:
            self.calls += 1
            self.now_ms += next(durations) * (1.0 if self.is_cold else self.warm_share)
            self.is_cold = False
            return torch.zeros(())

        return simulated

    def zero_(self) -> None:
        self.now_ms += self.flush_ms
        self.is_cold = True

    def event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at_ms=float("nan"))

        def record() -> None:
            event.at_ms = self.now_ms

        event.record = record
        event.elapsed_time = lambda end: end.at_ms - event.at_ms
        return event

    def empty(self, size: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch.empty
        assert options == {"dtype": torch.int8, "device": "cuda"}
        self.flush_bytes = size
        return self


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    simulated = SimulatedGpu()
    properties = SimpleNamespace(L2_cache_size=simulated.l2_bytes)
    monkeypatch.setattr(benchmark, "require_cuda", lambda: None)
    monkeypatch.setattr(torch, "empty", simulated.empty)
    for name, replacement in {
        "Event": simulated.event,
        "synchronize": lambda: None,
        "get_device_properties": lambda: properties,
        "device": lambda _: contextlib.nullcontext(),
        "memory_allocated": lambda: 2**20,
        "max_memory_allocated": lambda: 7 * 2**20,
        "reset_peak_memory_stats": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    return simulated


@pytest.fixture
def torch_takes_2_ms(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "matmul", gpu.kernel(2.0))
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", gpu.kernel(2.0))


def rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 9) for value in values]


def test_a_call_is_timed_cold_and_without_the_flush(gpu: SimulatedGpu) -> None:
    assert rounded(benchmark_fn(gpu.kernel(1.0))) == [1.0, 1.0, 1.0]


def test_the_first_call_is_not_timed(gpu: SimulatedGpu) -> None:
    assert rounded(benchmark_fn(gpu.kernel(1.0, first_ms=30_000.0), quantiles=[0.5, 0.0, 1.0])) == [1.0, 1.0, 1.0]


def test_warmup_and_rep_count_the_time_of_the_function_not_of_the_flush(gpu: SimulatedGpu) -> None:
    benchmark_fn(gpu.kernel(0.5), warmup=25, rep=100)
    first, estimate, warm_up, timed = 1, 5, 50, 200
    assert first + estimate + warm_up + timed == gpu.calls


def test_the_result_is_the_median_and_the_20th_and_80th_percentile(gpu: SimulatedGpu) -> None:
    durations_ms = [float(value) for value in range(1, 12)]
    calls = 6 * 11  # the median of the estimate is 3 ms, so 198 ms are 66 calls: six whole turns
    result = benchmark_fn(gpu.kernel(*durations_ms), warmup=0, rep=3 * calls)
    assert rounded(result) == [6.0, 3.0, 9.0]


def test_one_slow_call_in_ten_does_not_move_the_median(gpu: SimulatedGpu) -> None:
    median_ms, _, _ = benchmark_fn(gpu.kernel(*[1.0] * 9, 50.0))
    assert round(median_ms, 9) == 1.0


def test_quantiles_replace_the_three_in_their_order(gpu: SimulatedGpu) -> None:
    assert rounded(benchmark_fn(gpu.kernel(1.0, 2.0, 3.0, 4.0, 5.0), rep=600, quantiles=[1.0, 0.0, 0.5])) == [
        5.0,
        1.0,
        3.0,
    ]


@pytest.mark.parametrize("quantiles", [[], [0.5], [0.5, 0.2], [0.5, 0.2, 0.8, 0.9], [50, 20, 80], [0.5, -0.1, 0.8]])
def test_anything_but_three_shares_is_a_value_error(gpu: SimulatedGpu, quantiles: list[float]) -> None:
    with pytest.raises(ValueError, match="quantiles are three numbers from 0 to 1, not"):
        benchmark_fn(gpu.kernel(1.0), quantiles=quantiles)
    assert gpu.calls == 0


@pytest.mark.parametrize(("warmup", "rep"), [(-1, 100), (25, -1)])
def test_a_negative_duration_is_a_value_error(gpu: SimulatedGpu, warmup: int, rep: int) -> None:
    with pytest.raises(ValueError, match="milliseconds >= 0"):
        benchmark_fn(gpu.kernel(1.0), warmup=warmup, rep=rep)


@pytest.mark.parametrize(("l2_mib", "flush_mib"), [(50, 256), (126, 256), (200, 400)])
def test_at_least_twice_the_l2_is_flushed(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch, l2_mib: int, flush_mib: int
) -> None:
    properties = SimpleNamespace(L2_cache_size=l2_mib * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    benchmark_fn(gpu.kernel(1.0))
    assert flush_mib * 2**20 == gpu.flush_bytes


def test_the_function_gets_its_arguments(gpu: SimulatedGpu) -> None:
    seen = set()

    def remember(*args: int, **options: int) -> None:
        seen.add((args, tuple(options.items())))
        gpu.now_ms += 10.0

    benchmark_fn(remember, 1, 2, causal=3)
    assert {((1, 2), (("causal", 3),))} == seen


def test_without_cuda_it_says_so_before_it_calls_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="CUDA is not available"):
        benchmark_fn(pytest.fail, "called")
    with pytest.raises(RuntimeError, match="CUDA is not available"):
        BenchmarkRunner().benchmark_matmul(pytest.fail, [(1, 1, 1)])


@pytest.mark.usefixtures("torch_takes_2_ms")
def test_a_matmul_has_a_row_of_pytorch_and_one_of_the_function_at_each_size(gpu: SimulatedGpu) -> None:
    runner = BenchmarkRunner(device="cpu")
    results = runner.benchmark_matmul(gpu.kernel(1.0), [(64, 32, 16), (8, 8, 8)])
    flops = 2 * 64 * 32 * 16
    names = ["torch.matmul (float16)", "simulated (float16)"]
    assert [result.name for result in results] == names * 2
    assert [result.time_ms for result in results[:2]] == pytest.approx([2.0, 1.0])
    assert [result.tflops for result in results[:2]] == pytest.approx([flops / 2e-3 / 1e12, flops / 1e-3 / 1e12])
    inputs_mb = (64 * 16 + 16 * 32) * 2 / 2**20
    assert [result.memory_mb for result in results[:2]] == [6.0 + inputs_mb] * 2
    assert [result.size for result in results] == [(64, 32, 16), (64, 32, 16), (8, 8, 8), (8, 8, 8)]


@pytest.mark.usefixtures("torch_takes_2_ms")
def test_each_block_configuration_is_passed_on_and_has_its_row(gpu: SimulatedGpu) -> None:
    configs = [{"block_m": 64, "block_n": 32, "block_k": 16}, {"block_m": 16, "block_n": 16, "block_k": 16}]
    seen: list[tuple[object, ...]] = []
    kernel = gpu.kernel(1.0)

    def mine(a: torch.Tensor, b: torch.Tensor, **config: int) -> torch.Tensor:
        seen.append((a.shape, b.shape, a.dtype, config))
        return kernel()

    results = BenchmarkRunner(device="cpu", rep=10).benchmark_matmul(mine, [(4, 5, 6)], configs, torch.bfloat16)
    assert [None, *configs] == [result.block_config for result in results]
    assert all(call[:3] == ((4, 6), (6, 5), torch.bfloat16) for call in seen)
    assert configs == [call[3] for call, before in zip(seen, [None, *seen], strict=False) if call != before]


@pytest.mark.usefixtures("torch_takes_2_ms")
@pytest.mark.parametrize(("causal", "share"), [(False, 1.0), (True, 0.5)])
def test_an_attention_counts_half_the_work_when_causal(gpu: SimulatedGpu, *, causal: bool, share: float) -> None:
    runner = BenchmarkRunner(device="cpu")
    results = runner.benchmark_attention(gpu.kernel(1.0), [128], batch_size=2, num_heads=3, head_dim=32, causal=causal)
    flops = 4 * 2 * 3 * 128 * 128 * 32 * share
    assert [result.size for result in results] == [(2, 3, 128, 32)] * 2
    assert [flops / 2e-3 / 1e12, flops / 1e-3 / 1e12] == pytest.approx([result.tflops for result in results])


def test_both_sides_of_an_attention_get_the_same_mask(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[str, object]] = set()
    kernel = gpu.kernel(1.0)

    def spy(*_inputs: torch.Tensor, **options: object) -> torch.Tensor:
        seen.update(options.items())
        return kernel()

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    BenchmarkRunner(device="cpu", rep=10).benchmark_attention(spy, [16], causal=True)
    assert {("is_causal", True), ("causal", True)} == seen


@pytest.mark.usefixtures("torch_takes_2_ms")
def test_an_error_of_the_function_says_what_was_being_benchmarked(gpu: SimulatedGpu) -> None:
    def broken(*_inputs: torch.Tensor, **_config: int) -> torch.Tensor:
        raise RuntimeError("out of resources")

    runner = BenchmarkRunner(device="cpu")
    with pytest.raises(RuntimeError, match="out of resources") as caught:
        runner.benchmark_matmul(broken, [(4, 5, 6)], [{"block_m": 512}])
    assert caught.value.__notes__ == ["while benchmarking broken (float16) at (4, 5, 6) with {'block_m': 512}"]
    assert [result.name for result in runner.results] == ["torch.matmul (float16)"]
    assert gpu.calls > 0


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


def test_the_table_compares_with_pytorch_at_the_same_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "130")
    size, flops = (4096, 4096, 4096), 2 * 4096**3
    wide, narrow = {"block_m": 128, "block_n": 256, "block_k": 64}, {"block_m": 64, "block_n": 64, "block_k": 32}
    results = [
        BenchmarkResult("torch.matmul (float16)", size, 0.2, flops / 0.2e-3 / 1e12, 96.0),
        BenchmarkResult("mine [bold] (float16)", size, 0.16, flops / 0.16e-3 / 1e12, 96.0, wide),
        BenchmarkResult("mine [bold] (float16)", size, 0.4, flops / 0.4e-3 / 1e12, 96.0, narrow),
        BenchmarkResult("flash_attention (causal)", (4, 8, 512, 64), 1.0, 1.0),
    ]
    BenchmarkRunner().print_comparison_table(results)
    assert printed(capsys) == TABLE


def test_the_baseline_is_the_last_row_of_pytorch_above() -> None:
    size = (16, 16, 16)
    table = benchmark.comparison_table(
        [
            BenchmarkResult("torch.matmul (float16)", size, 1.0, 1.0),
            BenchmarkResult("mine (float16)", size, 1.0, 1.0),
            BenchmarkResult("torch.matmul (float32)", size, 8.0, 1.0),
            BenchmarkResult("mine (float32)", size, 4.0, 1.0),
        ],
        "two dtypes",
    )
    assert list(table.columns[-1].cells) == ["1.00x", "1.00x", "1.00x", "2.00x"]


@pytest.mark.usefixtures("torch_takes_2_ms")
def test_without_results_the_table_shows_all_that_were_collected(
    gpu: SimulatedGpu, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    runner = BenchmarkRunner(device="cpu", rep=10)
    runner.benchmark_matmul(gpu.kernel(1.0), [(16, 16, 16)])
    runner.benchmark_attention(gpu.kernel(4.0), [16])
    runner.print_comparison_table(title="All of it")
    lines = printed(capsys).splitlines()
    assert lines[0].strip() == "All of it"
    assert [line.split()[1] for line in lines if line.startswith("│")] == [
        "torch.matmul",
        "simulated",
        "torch.scaled_dot_product_attention",
        "simulated",
    ]
    assert [line.split()[-2] for line in lines if line.startswith("│")] == ["1.00x", "2.00x", "1.00x", "0.50x"]


def test_with_an_empty_list_the_table_is_empty(gpu: SimulatedGpu, capsys: pytest.CaptureFixture[str]) -> None:
    runner = BenchmarkRunner(device="cpu", rep=10)
    runner.results.append(BenchmarkResult("kept", (1, 1, 1), 1.0, 1.0))
    runner.print_comparison_table([])
    assert "kept" not in printed(capsys)
    assert gpu.calls == 0


@pytest.mark.gpu
def test_twice_the_cycles_take_twice_the_time_on_a_real_gpu() -> None:
    once_ms, _, _ = benchmark_fn(torch.cuda._sleep, 1_000_000)
    twice_ms, low_ms, high_ms = benchmark_fn(torch.cuda._sleep, 2_000_000)
    assert pytest.approx(2.0, rel=0.05) == twice_ms / once_ms
    assert low_ms <= twice_ms <= high_ms


@pytest.mark.gpu
def test_the_bundled_kernels_are_benchmarked_beside_pytorch_on_a_real_gpu() -> None:
    from flopwatch.kernels import flash_attention, triton_matmul  # noqa: PLC0415 - imports Triton

    runner = BenchmarkRunner()
    runner.benchmark_matmul(triton_matmul, [(1024, 1024, 1024)], [{"block_m": 64, "block_n": 64, "block_k": 32}])
    runner.benchmark_attention(flash_attention, [512], causal=True)
    assert [int(result.tflops > 1.0) for result in runner.results] == [1, 1, 1, 1]
    # Two inputs and an output of 2 MiB; q, k, v and an output of 2 MiB.
    assert [result.memory_mb for result in runner.results[:2]] == [6.0, 6.0]
    assert runner.results[3].memory_mb >= 8.0
