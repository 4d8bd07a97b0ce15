from __future__ import annotations

import doctest
import importlib

import pytest

NAMES = ("document", "proportion", "record_power", "replay", "svg")


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_hold(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"evidence.{name}"))

    assert failed == 0
    assert tried > 0
