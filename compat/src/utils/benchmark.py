"""The benchmark tools of `flopwatch.utils`, under a shorter name."""

from flopwatch.utils.benchmark import BenchmarkResult, BenchmarkRunner, benchmark_fn

__all__ = ["BenchmarkResult", "BenchmarkRunner", "benchmark_fn"]
