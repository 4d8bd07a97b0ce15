from __future__ import annotations

import argparse

import pytest

from flopwatch.cli import build_parser
from flopwatch.cli.device_option import KEYS
from flopwatch.static.devices import DEVICES


def options() -> dict[str, argparse.Action]:
    """Return what `--device` is to each verb that has it."""
    (verbs,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return {
        name: action
        for name, verb in verbs.choices.items()
        for action in verb._actions
        if "--device" in action.option_strings
    }


def test_the_keys_are_those_of_the_devices() -> None:
    assert list(DEVICES) == list(KEYS)


@pytest.mark.parametrize("verb", options())
def test_the_help_of_every_verb_names_every_device(verb: str) -> None:
    text = options()[verb].help or ""
    assert [key for key in DEVICES if key not in text] == []


def test_the_verbs_that_compile_can_be_told_for_what() -> None:
    assert options().keys() >= {"gate", "static", "explain", "ir", "bisect"}
