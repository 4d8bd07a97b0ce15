from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.study.conftest import DECLARATION, FakeWorker, Gpu, declared

from flopwatch.errors import SuiteError, UndecidedError, UsageError
from flopwatch.study import Conclusion
from flopwatch.study.declaration import Declaration
from flopwatch.study.lines import Layout, lay_out, lines_of

if TYPE_CHECKING:
    from flopwatch.measure.protocol import Hello

LINES = ("flopwatch none", "flopwatch 4", "flopwatch 8", "torch")


def hello(gpu: Gpu) -> Hello:
    return FakeWorker(gpu).hello


def laid_out(gpu: Gpu, *, suite: str = "Swizzle", parameter: str = "", select: str = "") -> Layout:
    return lay_out(hello(gpu), suite=suite, parameter=parameter, select=select)


def test_a_line_is_a_provider_and_a_value_or_a_provider_with_one_value(gpu: Gpu) -> None:
    found = laid_out(gpu)
    assert (found.suite, found.lines, found.points) == ("Swizzle", LINES, ("1", "2"))
    assert (found.across, found.base, found.declaration) == ("size", "flopwatch 8", DECLARATION)


def test_another_parameter_may_take_turns_and_then_nothing_is_concluded(gpu: Gpu) -> None:
    found = laid_out(gpu, suite="", parameter="size")
    assert found.lines == ("flopwatch 1", "torch 1", "flopwatch 2", "torch 2")
    assert (found.points, found.base, found.declaration.conclusions) == (("none", "4", "8"), "flopwatch 1", ())


def test_what_is_not_selected_keeps_the_names_of_the_rest(gpu: Gpu) -> None:
    found = laid_out(gpu, select="[2,none")
    assert (found.lines, found.points, found.base) == (("flopwatch none", "torch"), ("2",), "flopwatch none")


def test_a_suite_that_is_no_study_is_compared_by_the_parameter_that_is_named(gpu: Gpu) -> None:
    gpu.studies = {}
    assert laid_out(gpu, suite="", parameter="order").base == "flopwatch none"
    with pytest.raises(UsageError, match="Swizzle has no parameter 'color'"):
        laid_out(gpu, suite="", parameter="color")


def test_a_provider_does_not_take_turns_as_a_parameter(gpu: Gpu) -> None:
    with pytest.raises(UsageError, match="no parameter 'provider'"):
        laid_out(gpu, parameter="provider")


def test_several_suites_at_once_are_refused(gpu: Gpu) -> None:
    gpu.declared = (*gpu.declared, declared("Other", "1", "flopwatch"))
    with pytest.raises(UsageError) as caught:
        laid_out(gpu, suite="", parameter="size")
    assert caught.value.why == "Swizzle, Other"


def test_a_suite_whose_name_is_written_out_is_meant_alone(gpu: Gpu) -> None:
    gpu.declared = (*gpu.declared, declared("WideSwizzle", "7", "9", "torch"))
    gpu.parameters["WideSwizzle"] = gpu.parameters["Swizzle"]
    for select, points in (("Swizzle", ("1", "2")), ("Swizzle[1", ("1",))):
        found = laid_out(gpu, suite="", parameter="order", select=select)
        assert (found.suite, found.points, found.lines) == ("Swizzle", points, LINES)


def test_nothing_selected_is_undecided_and_says_what_there_is(gpu: Gpu) -> None:
    with pytest.raises(UndecidedError) as caught:
        laid_out(gpu, select="nothing like it")
    assert caught.value.why == "there are Swizzle"
    gpu.declared = ()
    with pytest.raises(UndecidedError) as caught:
        laid_out(gpu, suite="", parameter="order")
    assert caught.value.why == "there are none"


def test_a_study_that_there_is_not_is_refused_and_those_that_there_are_are_named(gpu: Gpu) -> None:
    with pytest.raises(UsageError, match="there is no study Nope") as caught:
        laid_out(gpu, suite="Nope")
    assert caught.value.why == "there are Swizzle"


def test_a_study_that_cannot_be_imported_is_told(gpu: Gpu) -> None:
    gpu.import_failures = {"studies.bad": "LookupError: no licence"}
    with pytest.raises(SuiteError, match="cannot be imported"):
        laid_out(gpu, suite="Bad")


def test_a_conclusion_about_no_line_is_refused(gpu: Gpu) -> None:
    wrong = Conclusion(says="it is so", line="flopwatch 16", than=("*",), percent=1.0)
    gpu.studies = {"Swizzle": Declaration(line="order", base="", conclusions=(wrong,))}
    with pytest.raises(SuiteError, match="Swizzle has no line flopwatch 16"):
        laid_out(gpu)


def test_a_conclusion_is_held_against_all_that_its_patterns_name_but_itself() -> None:
    conclusion = Conclusion(says="", line="flopwatch 8", than=("flopwatch *", "torch"), percent=1.0)
    assert lines_of(conclusion, LINES) == ("flopwatch none", "flopwatch 4", "torch")
    assert lines_of(DECLARATION.conclusions[0], LINES) == ("flopwatch none", "flopwatch 4")
