from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

from flopwatch.measure.tuning import TunerLog, time_launch
from flopwatch.model import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Where the interpreter runs kernels in place of a GPU, they take what lies in the host's memory.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KERNEL = "import triton\n{}\n@triton.jit\ndef kernel(x, n: triton.language.constexpr):\n    {}\n"
PROGRAM = """\
import importlib, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "ignored":
    from flopwatch.measure.tuning import ignore_line_numbers
    ignore_line_numbers()
print(*(importlib.import_module(name).kernel.cache_key for name in ("plain", "moved", "edited")), sep="\\n")
"""


def keys(folder: Path, how: str) -> list[str]:
    # In a child, because this process may interpret kernels, which then have no key.
    (folder / "plain.py").write_text(KERNEL.format("", "pass"), encoding="utf-8")
    (folder / "moved.py").write_text(KERNEL.format("# a comment\n", "pass"), encoding="utf-8")
    (folder / "edited.py").write_text(KERNEL.format("", "x + n"), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, str(folder), how]
    return subprocess.check_output(command, env=environment, text=True).split()


def test_a_comment_above_a_kernel_does_not_change_its_key(tmp_path: Path) -> None:
    plain, moved, edited = keys(tmp_path, "ignored")
    assert plain == moved
    assert plain != edited


def test_it_would_change_it_otherwise(tmp_path: Path) -> None:
    plain, moved, _ = keys(tmp_path, "kept")
    assert plain != moved


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _add_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, N803 - Triton's
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + 1, mask=mask)


def fail(_: object) -> None:
    raise ArithmeticError


class Tuned:
    """A kernel of three configurations with a timer of its author's: the times are planted."""

    def __init__(self, times_ms: Sequence[float] | None) -> None:
        self.timed = 0

        def bench(launch: Callable[[], object], quantiles: Sequence[float]) -> list[float]:
            launch()
            self.timed += 1
            assert times_ms is not None
            return [times_ms[(self.timed - 1) % 3]] * len(quantiles)

        self.tuner = Autotuner(
            _add_kernel,
            _add_kernel.arg_names,
            [triton.Config({"BLOCK": block}) for block in (16, 32, 64)],
            ["n"],
            None,
            None,
            do_bench=None if times_ms is None else bench,
        )
        self.names = [str(config) for config in self.tuner.configs]

    def run(self, n: int = 8) -> None:
        x = torch.zeros(n, device=DEVICE)
        out = torch.empty_like(x)
        self.tuner[(1,)](x, out, n)
        assert out.tolist() == [1.0] * n


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> TunerLog:
    """A log that is taken out of Triton again."""
    monkeypatch.setattr(Autotuner, "run", Autotuner.run)
    installed = TunerLog()
    installed.install()
    return installed


def test_a_choice_is_recorded_with_what_the_candidates_took(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, float("inf")])
    tuned.run()

    (choice,) = log.choices
    assert (choice.kernel, choice.config) == ("_add_kernel", tuned.names[1])
    assert list(choice.timings_us.items()) == [(tuned.names[1], 1.0), (tuned.names[0], 3.0)]


def test_a_choice_that_was_made_before_is_recorded_without_times(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    tuned.run()
    log.start()
    assert not log.choices
    tuned.run()

    assert log.choices == (Choice(kernel="_add_kernel", config=tuned.names[1]),)
    assert tuned.timed == 3


def test_the_times_are_kept_when_the_same_choice_runs_again(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    tuned.run()
    tuned.run()

    assert len(log.choices[0].timings_us) == 3


def test_a_pin_is_honoured_for_as_long_as_it_lasts_and_nothing_is_timed(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    log.start([Choice(kernel="_add_kernel", config=tuned.names[2])])
    tuned.run()
    assert (log.choices, tuned.timed) == ((Choice(kernel="_add_kernel", config=tuned.names[2]),), 0)

    log.start()
    tuned.run()
    assert (log.choices[0].config, tuned.timed) == (tuned.names[1], 3)


@pytest.mark.parametrize(("kernel", "config"), [("_add_kernel", "BLOCK: 128"), ("other_kernel", "")])
def test_a_pin_that_names_no_candidate_is_ignored(log: TunerLog, kernel: str, config: str) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    log.start([Choice(kernel=kernel, config=config or tuned.names[0])])
    tuned.run()

    assert (log.choices[0].config, tuned.timed) == (tuned.names[1], 3)


def test_a_launch_that_fails_leaves_the_candidates_as_they_were(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    log.start([Choice(kernel="_add_kernel", config=tuned.names[2])])
    tuned.tuner.configs[2].pre_hook = fail
    with pytest.raises(ArithmeticError):
        tuned.run()

    assert [str(config) for config in tuned.tuner.configs] == tuned.names


def test_kernels_are_timed_by_the_gpu_unless_their_author_chose_a_timer(log: TunerLog) -> None:
    own, none = Tuned([0.003, 0.001, 0.002]), Tuned(None)
    log.start([Choice(kernel="_add_kernel", config=own.names[0])])
    own.run()
    none.run()

    assert none.tuner.do_bench is time_launch
    assert own.tuner.do_bench is not time_launch


@pytest.mark.gpu
def test_a_launch_is_timed_by_the_gpu_and_not_by_its_host() -> None:
    x = torch.zeros(1 << 28, device="cuda")

    def launch() -> None:
        time.sleep(2e-3)
        x.add_(1)

    middle, low, high = time_launch(launch, quantiles=(0.5, 0.2, 0.8))
    assert low <= middle <= high
    assert 5e11 < 2 * 4 * x.numel() / (middle * 1e-3) < 2e13


@pytest.mark.gpu
def test_a_launch_that_synchronises_is_timed_nevertheless() -> None:
    x = torch.zeros(1 << 20, device="cuda")

    def launch() -> None:
        x.add_(1)
        torch.cuda.synchronize()

    times_ms = time_launch(launch, quantiles=(0.5, 0.2, 0.8))
    assert all(1e-3 < time_ms < 10 for time_ms in times_ms)
