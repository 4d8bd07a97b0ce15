from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from flopwatch.errors import SuiteError
from flopwatch.model import Case
from flopwatch.suite import METRICS, Suite, discover

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Toy(Suite):
    params = (["16", "32"], ["float16"])
    param_names = ("n", "dtype")
    small: ClassVar[Mapping[str, str]] = {"n": "3"}
    providers: ClassVar[Mapping[str, Any]] = {"peer": abs}
    skip_params = (("32", "float16", "peer"),)

    def flops(self, *values: str) -> float:
        return 2.0 * int(values[0])

    def bytes_moved(self, *values: str) -> float:
        return 4.0 * int(values[0])


def test_the_provider_is_the_last_parameter() -> None:
    assert list(Toy.params) == [["16", "32"], ["float16"], ["flopwatch", "peer"]]
    assert list(Toy.param_names) == ["n", "dtype", "provider"]


def test_skipped_combinations_are_no_cases() -> None:
    assert [case.id for case in Toy.cases()] == [
        "Toy[16,float16,flopwatch]",
        "Toy[16,float16,peer]",
        "Toy[32,float16,flopwatch]",
    ]


def test_a_small_case_keeps_what_small_does_not_name() -> None:
    case = Case(suite="Toy", values=("32", "float16", "flopwatch"))
    assert Toy.small_case(case).id == "Toy[3,float16,flopwatch]"


def test_a_suite_has_one_asv_benchmark_a_metric() -> None:
    assert {name for name in dir(Toy) if name.startswith("track_")} == {f"track_{metric}" for metric in METRICS}


def test_the_time_knows_the_work_of_every_combination() -> None:
    track = vars(Toy)["track_time"]
    assert (track.unit, track.flops, track.bytes_moved) == (
        "seconds",
        [32.0, 32.0, 64.0, 64.0],
        [64.0, 64.0, 128.0, 128.0],
    )


def test_a_subclass_does_not_gain_a_second_provider() -> None:
    class Child(Toy):
        pass

    assert list(Child.param_names) == ["n", "dtype", "provider"]


def test_a_subclass_may_change_the_values_of_its_parameters_alone() -> None:
    class Child(Toy):
        params = (["64"], ["float16", "bfloat16"])

    assert list(Child.params) == [["64"], ["float16", "bfloat16"], ["flopwatch", "peer"]]
    assert list(Child.param_names) == ["n", "dtype", "provider"]


def test_a_subclass_may_have_other_peers_or_none() -> None:
    class Child(Toy):
        providers: ClassVar[Mapping[str, Any]] = {}

    assert list(Child.params) == [["16", "32"], ["float16"], ["flopwatch"]]
    assert list(Toy.params[-1]) == ["flopwatch", "peer"]


def test_a_subclass_counts_its_own_work() -> None:
    class Child(Toy):
        params = (["64"], ["float16"])

    assert vars(Child)["track_time"].flops == [128.0, 128.0]
    assert vars(Toy)["track_time"].flops == [32.0, 32.0, 64.0, 64.0]


def test_params_without_names_are_refused() -> None:
    with pytest.raises(SuiteError, match="2 lists in params, 1 in param_names"):
        type("Odd", (Suite,), {"params": (["1"], ["2"]), "param_names": ("n",)})


def test_a_subclass_with_another_number_of_parameters_must_name_them() -> None:
    with pytest.raises(SuiteError, match="1 lists in params, 2 in param_names"):
        type("Odd", (Toy,), {"params": (["1"],)})


def test_small_must_name_parameters() -> None:
    with pytest.raises(SuiteError, match="small names no parameter: m"):
        type("Odd", (Suite,), {"params": (["1"],), "param_names": ("n",), "small": {"m": "1"}})


def write_suites(tmp_path: Path, **modules: str) -> Path:
    folder = tmp_path / f"suites_{tmp_path.name}"
    folder.mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


SUITE = """\
from flopwatch import Suite
class {name}(Suite):
    params = (["1"],)
    param_names = ("n",)
    def flops(self, n): return 1
    def bytes_moved(self, n): return 1
"""


@pytest.fixture(autouse=True)
def _clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_module_that_cannot_be_imported_does_not_hide_the_others(tmp_path: Path) -> None:
    found = discover(write_suites(tmp_path, good=SUITE.format(name="Good"), bad="import no_such_module"))
    assert list(found.suites) == ["Good"]
    assert [type(error) for error in found.failures.values()] == [ModuleNotFoundError]


def test_a_class_with_a_leading_underscore_is_what_suites_share_and_no_suite(tmp_path: Path) -> None:
    shared = SUITE.format(name="_Shared") + 'class One(_Shared):\n    params = (["2"],)\n'
    assert list(discover(write_suites(tmp_path, both=shared)).suites) == ["One"]


def test_two_suites_of_one_name_are_refused(tmp_path: Path) -> None:
    folder = write_suites(tmp_path, one=SUITE.format(name="Same"), two=SUITE.format(name="Same"))
    with pytest.raises(SuiteError, match="two suites are called Same"):
        discover(folder)


def test_a_folder_without_an_init_is_not_hidden_by_a_package_of_its_name_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = SUITE.format(name="Toy")
    hidden = {tmp_path / "installed" / "mysuites": {"__init__": "", "toy": ""}, tmp_path / "mysuites": {"toy": suite}}
    for folder, modules in hidden.items():
        folder.mkdir(parents=True)
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "installed")

    found = discover(tmp_path / "mysuites")
    assert (list(found.suites), found.failures) == (["Toy"], {})


def test_a_folder_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="does not exist"):
        discover(tmp_path / "nowhere")
