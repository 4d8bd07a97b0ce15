from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from flopwatch.report.junit import junit
from flopwatch.report.reported import Reported

if TYPE_CHECKING:
    from tests.report.conftest import Gates

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["slower", "broken", "concluded"])
def test_the_file_is_the_golden_one(name: str, gates: Gates) -> None:
    text = junit([Reported(result=getattr(gates, name))])
    assert text == (GOLDEN / f"junit-{name}.xml").read_text(encoding="utf-8")


def test_a_file_fails_if_the_gate_does(gates: Gates) -> None:
    for field in fields(gates):
        result = getattr(gates, field.name)
        tree = ET.fromstring(junit([Reported(result=result)]))  # noqa: S314 - our own text
        failed = [node for node in tree.iter() if node.tag in {"failure", "error"}]
        assert bool(failed) == (result.exit_code != 0), field.name


def test_the_counts_are_those_of_the_cases(gates: Gates) -> None:
    (suite,) = ET.fromstring(junit([Reported(result=gates.broken)]))  # noqa: S314 - our own text
    assert int(suite.attrib["tests"]) == len(suite)
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == 4
    assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) == 1
