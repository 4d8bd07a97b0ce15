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

from flopwatch.measure.tuning import TunerLog, config_text, key_text, time_launch
from flopwatch.model import Choice, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Where the interpreter runs kernels in place of a GPU, they take what lies in the host's memory.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: What the tuner below knows the launches by, and the text of that.
N, OTHER_N = 8, 16
KEY, OTHER_KEY = "8, float32, float32", "16, float32, float32"
KERNEL = "import triton\n{}\n@triton.jit\ndef kernel(x, n: triton.language.constexpr):\n    {}\n"
PROGRAM = """\
import importlib, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "ignored":
    from flopwatch.measure.tuning import ignore_line_numbers
    ignore_line_numbers()
print(*(importlib.import_module(name).kernel.cache_key for name in ("plain", "moved", "edited")), sep="\\n")
"""


SESSION = """\
import pathlib, sys
from flopwatch.measure.protocol import Mode
from flopwatch.measure.session import Session
sys.path.insert(0, sys.argv[1])
Session(Mode.GPU, pathlib.Path(sys.argv[1], "suites"), "h200")
import moved, triton
print(moved.kernel.starting_line_number, getattr(triton.knobs.cache.manager_class, "__name__", None))
"""


def keys(folder: Path, how: str) -> list[str]:
    # In a child, because this process may interpret kernels, which then have no key.
    (folder / "plain.py").write_text(KERNEL.format("", "pass"), encoding="utf-8")
    (folder / "moved.py").write_text(KERNEL.format("# a comment\n", "pass"), encoding="utf-8")
    (folder / "edited.py").write_text(KERNEL.format("", "x + n"), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, str(folder), how]
    return subprocess.check_output(command, env=environment, text=True).split()


@pytest.mark.parametrize(("kept", "words"), [("", ["4", "CompiledBefore"]), ("1", ["1", "None"])])
def test_lines_count_but_for_choices_that_are_kept_so_that_what_was_compiled_without_a_gpu_is_found(
    tmp_path: Path, kept: str, words: list[str]
) -> None:
    (tmp_path / "moved.py").write_text(KERNEL.format("# a comment\n", "pass"), encoding="utf-8")
    (tmp_path / "suites").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_AUTOTUNING": kept, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", SESSION, str(tmp_path)]
    assert subprocess.check_output(command, env=environment, text=True).split() == words


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
            return [times_ms[(self.timed - 1) % len(times_ms)]] * len(quantiles)

        self.tuner = Autotuner(
            _add_kernel,
            _add_kernel.arg_names,
            [triton.Config({"BLOCK": block}) for block in (16, 32, 64)],
            ["n"],
            None,
            None,
            do_bench=None if times_ms is None else bench,
        )
        self.names = [config_text(config) for config in self.tuner.configs]

    def run(self, n: int = N) -> None:
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
    assert (choice.kernel, choice.key, choice.config) == ("_add_kernel", KEY, tuned.names[1])
    assert list(choice.timings_us.items()) == [(tuned.names[1], 1.0), (tuned.names[0], 3.0)]


def test_a_choice_that_was_made_before_is_recorded_without_times(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    tuned.run()
    log.start()
    assert not log.choices
    tuned.run()

    assert log.choices == (Choice(kernel="_add_kernel", key=KEY, config=tuned.names[1]),)
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
    assert (log.choices, tuned.timed) == ((Choice(kernel="_add_kernel", key=KEY, config=tuned.names[2]),), 0)

    log.start()
    tuned.run()
    assert (log.choices[0].config, tuned.timed) == (tuned.names[1], 3)


@pytest.mark.parametrize(
    ("kernel", "key", "config"),
    [("_add_kernel", "", "BLOCK: 128"), ("other_kernel", "", ""), ("_add_kernel", OTHER_KEY, "")],
)
def test_a_pin_that_names_no_candidate_or_another_launch_is_ignored(
    log: TunerLog, kernel: str, key: str, config: str
) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    log.start([Choice(kernel=kernel, key=key, config=config or tuned.names[0])])
    tuned.run()

    assert (log.choices[0].config, tuned.timed) == (tuned.names[1], 3)


def test_launches_with_other_keys_have_choices_and_times_of_their_own(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002, 0.004, 0.006, 0.005])
    tuned.run()
    tuned.run(OTHER_N)
    tuned.run()

    assert [(choice.key, choice.config) for choice in log.choices] == [
        (KEY, tuned.names[1]),
        (OTHER_KEY, tuned.names[0]),
    ]
    assert [sorted(choice.timings_us.values()) for choice in log.choices] == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_the_times_of_one_key_are_not_taken_for_those_of_another(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    tuned.run()
    log.start()
    tuned.run(OTHER_N)
    tuned.run()

    assert [(choice.key, len(choice.timings_us)) for choice in log.choices] == [(OTHER_KEY, 3), (KEY, 0)]


def test_each_launch_is_pinned_by_its_own_key(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    pins = [
        Choice(kernel="_add_kernel", key=key, config=tuned.names[index]) for key, index in ((KEY, 2), (OTHER_KEY, 0))
    ]
    log.start(pins)
    tuned.run()
    tuned.run(OTHER_N)

    assert (list(log.choices), tuned.timed) == (pins, 0)


def test_a_pin_from_before_there_were_keys_is_for_every_launch_that_has_none_of_its_own(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    old = from_json(f'{{"kernel": "_add_kernel", "config": "{tuned.names[2]}", "timings_us": {{}}}}', Choice)
    log.start([old])
    tuned.run()
    tuned.run(OTHER_N)
    assert ([choice.config for choice in log.choices], tuned.timed) == ([tuned.names[2]] * 2, 0)

    log.start([Choice(kernel="_add_kernel", key=OTHER_KEY, config=tuned.names[0]), old])
    tuned.run()
    tuned.run(OTHER_N)
    assert [choice.config for choice in log.choices] == [tuned.names[2], tuned.names[0]]


def test_a_kernel_with_a_single_candidate_has_no_key(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    del tuned.tuner.configs[1:]
    tuned.run()
    tuned.run(OTHER_N)

    assert (log.choices, tuned.timed) == ((Choice(kernel="_add_kernel", config=tuned.names[0]),), 0)


def test_what_is_forgotten_is_chosen_anew_for_every_key(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    for _ in range(2):
        log.start()
        log.forget()
        tuned.run()
        tuned.run(OTHER_N)

    assert [len(choice.timings_us) for choice in log.choices] == [3, 3]
    assert tuned.timed == 12


def test_what_was_chosen_while_nobody_watched_is_forgotten_too(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    log.step_aside()
    tuned.run()
    log.start()
    log.forget()
    tuned.run()
    tuned.run()

    assert (len(log.choices[0].timings_us), tuned.timed) == (3, 6)


def test_a_tuner_whose_choices_were_thrown_away_is_still_watched(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    tuned.run()
    tuned.tuner.cache = {}
    log.start([Choice(kernel="_add_kernel", key=KEY, config=tuned.names[2])])
    tuned.run()

    assert [(choice.key, choice.config) for choice in log.choices] == [(KEY, tuned.names[2])]


def test_aside_the_log_is_out_of_the_way_and_its_pins_hold(log: TunerLog) -> None:
    watching, tuned = Autotuner.run, Tuned([0.003, 0.001, 0.002])
    log.start([Choice(kernel="_add_kernel", key=KEY, config=tuned.names[2])])
    tuned.run()
    before = log.choices
    log.step_aside()
    assert Autotuner.run is not watching
    tuned.run()
    assert (tuned.tuner.best_config, tuned.timed) == (tuned.tuner.configs[2], 0)
    tuned.run(OTHER_N)
    assert (tuned.tuner.best_config, tuned.timed) == (tuned.tuner.configs[1], 3)
    assert log.choices == before

    log.start()
    assert Autotuner.run is watching
    tuned.run(OTHER_N)
    assert log.choices == (Choice(kernel="_add_kernel", key=OTHER_KEY, config=tuned.names[1]),)


def test_pins_hold_aside_also_where_another_case_was_prepared_since(log: TunerLog) -> None:
    tuned, other = Tuned([0.003, 0.001, 0.002]), Tuned([0.003, 0.001, 0.002])
    pins = [Choice(kernel="_add_kernel", config=tuned.names[2])]
    log.start(pins)
    tuned.run()
    log.step_aside()
    log.start(pins)
    other.run()
    log.step_aside()
    tuned.run()

    assert (tuned.tuner.best_config, tuned.timed) == (tuned.tuner.configs[2], 0)


def test_what_stands_before_the_log_is_left_there(log: TunerLog, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Autotuner.run

    def other(*arguments: object, **options: object) -> object:
        return watching(*arguments, **options)

    monkeypatch.setattr(Autotuner, "run", other)
    tuned = Tuned([0.003, 0.001, 0.002])
    log.step_aside()
    assert Autotuner.run is other
    tuned.run()
    log.start()
    assert Autotuner.run is other
    assert tuned.timed == 3


@pytest.mark.parametrize("change", [TunerLog.start, TunerLog.forget])
def test_answers_are_another_object_once_they_may_be_others(log: TunerLog, change: Callable[[TunerLog], None]) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    tuned.run()
    before = tuned.tuner.cache
    tuned.run()
    assert tuned.tuner.cache is before

    change(log)

    assert tuned.tuner.cache is not before


def test_a_launch_that_fails_is_no_choice(log: TunerLog) -> None:
    tuned = Tuned([0.003, 0.001, 0.002])
    log.start([Choice(kernel="_add_kernel", config=tuned.names[2])])
    tuned.tuner.configs[2].pre_hook = fail
    with pytest.raises(ArithmeticError):
        tuned.run()

    assert log.choices == ()


def test_a_key_is_written_without_addresses_and_without_what_lies_on_the_gpu() -> None:
    key = (object(), len, torch.float16, torch.zeros(2), (tl.float16, 1.5))
    assert key_text(key) == "<object object>, len, float16, Tensor, (fp16, 1.5)"


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


@pytest.mark.gpu
def test_a_call_that_launches_a_kernel_twice_is_tuned_and_pinned_launch_by_launch(log: TunerLog) -> None:
    tuned = Tuned(None)
    tuned.run()
    tuned.run(OTHER_N)
    assert [(choice.key, set(choice.timings_us)) for choice in log.choices] == [
        (KEY, set(tuned.names)),
        (OTHER_KEY, set(tuned.names)),
    ]

    pins = (
        Choice(kernel="_add_kernel", key=KEY, config=tuned.names[2]),
        Choice(kernel="_add_kernel", key=OTHER_KEY, config=tuned.names[0]),
    )
    log.start(pins)
    tuned.run()
    tuned.run(OTHER_N)
    assert log.choices == pins
