from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from asv_runner.discovery import disc_benchmarks

from flopwatch.errors import SuiteError
from flopwatch.measure.protocol import Mode
from flopwatch.measure.session import Session
from flopwatch.study import Conclusion, Study
from flopwatch.study.declaration import Declaration
from flopwatch.study.lines import lay_out
from flopwatch.suite import Suite, discover

if TYPE_CHECKING:
    from pathlib import Path

CONCLUSION = Conclusion(says="it is so", line="flopwatch a", than=("*",), percent=1.0)


class Orders(Study):
    params = (["16", "32"], ["a", "b"])
    param_names = ("n", "order")
    line = "order"
    conclusions = (CONCLUSION,)

    def flops(self, *values: str) -> float:
        return float(values[0])

    bytes_moved = flops


def test_a_study_is_a_suite_with_cases() -> None:
    assert issubclass(Orders, Suite)
    assert [case.id for case in Orders.cases()][:2] == ["Orders[16,a,flopwatch]", "Orders[16,b,flopwatch]"]


def test_a_study_has_nothing_for_asv_to_record() -> None:
    assert [name for name in dir(Orders) if name.startswith(("track_", "setup_cache"))] == []


def test_a_study_declares_its_line_and_conclusions() -> None:
    assert Orders.declaration() == Declaration(line="order", base="", conclusions=(CONCLUSION,))


@pytest.mark.parametrize("line", ["", "color", "provider"])
def test_the_line_must_be_a_parameter(line: str) -> None:
    body: dict[str, Any] = {"params": (["1"],), "param_names": ("n",), "line": line}
    with pytest.raises(SuiteError, match="study Odd: line is"):
        type("Odd", (Study,), body)


def test_the_gate_discovers_suites_and_no_studies(pytestconfig: pytest.Config) -> None:
    folder = pytestconfig.rootpath / "benchmarks"
    everyday, studies = discover(folder), discover(folder / "studies")
    assert (everyday.failures, studies.failures) == ({}, {})
    assert [name for name, suite in everyday.suites.items() if issubclass(suite, Study)] == []
    assert list(studies.suites) == ["L2Swizzle"]
    assert issubclass(studies.suites["L2Swizzle"], Study)


def test_a_worker_tells_what_a_study_declares(pytestconfig: pytest.Config) -> None:
    hello = Session(Mode.INTERPRET, pytestconfig.rootpath / "benchmarks" / "studies", "h200").hello()
    assert hello.parameters == {"L2Swizzle": ("size", "order", "provider")}
    assert (hello.studies["L2Swizzle"].line, hello.studies["L2Swizzle"].base) == ("order", "flopwatch 8")
    found = lay_out(hello, suite="L2Swizzle", parameter="", select="")
    assert (len(found.lines), len(found.points), len(found.spots)) == (12, 6, 72)
    assert {"tilelang 0", "torch", "flopwatch none"} < {*found.lines}


def test_asv_finds_the_suites_and_nothing_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = (
        "from flopwatch{module} import {base}\nclass {name}({base}):\n    params = (['1'],)\n    param_names = ('n',)\n"
    )
    suite += "    line = 'n'\n    def flops(self, n): return 1\n    bytes_moved = flops\n"
    folder = tmp_path / "asvsuites"
    (folder / "studies").mkdir(parents=True)
    for path in (folder, folder / "studies"):
        (path / "__init__.py").write_text("", encoding="utf-8")
    everyday = suite.format(module="", base="Suite", name="Everyday")
    (folder / "everyday.py").write_text(everyday, encoding="utf-8")
    study = suite.format(module=".study", base="Study", name="Asked")
    (folder / "studies" / "asked.py").write_text(study, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    found = {benchmark.name for benchmark in disc_benchmarks("asvsuites")}

    assert "everyday.Everyday.track_time" in found
    assert [name for name in found if name.startswith("studies")] == []
