from __future__ import annotations

import pytest

from flopwatch.errors import UsageError
from flopwatch.tune.space import MOST, config_of, configurations, parse_space, settings_of

OWN = (
    "B: 64, EVEN: True, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None",
    "B: 128, EVEN: True, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None",
)


def test_a_configuration_is_written_as_it_was_read() -> None:
    assert [config_of(settings_of(config)) for config in OWN] == list(OWN)


def test_without_a_space_the_kernels_own_list_is_searched() -> None:
    assert configurations(OWN, {}) == OWN


def test_the_own_list_comes_first_and_nothing_comes_twice() -> None:
    found = configurations(OWN, {"B": ("64", "128"), "num_warps": ("4", "8")})
    assert found[:2] == OWN
    assert len(found) == len(set(found)) == 4


def test_what_a_space_does_not_name_is_of_each_configuration_of_the_list() -> None:
    found = configurations(OWN, {"num_stages": ("2",)})[2:]
    assert [(settings_of(one)["B"], settings_of(one)["num_warps"]) for one in found] == [("64", "4"), ("128", "8")]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            {"BLOCK": ("64",)},
            "BLOCK, which the kernel's configurations do not have\n  why: they have B, EVEN, num_warps",
        ),
        ({"B": ("wide",)}, "gives B the value 'wide'"),
        ({"EVEN": ("1",)}, "gives EVEN the value '1'"),
        ({"num_warps": ("0",)}, "gives num_warps the value '0'"),
        ({"maxnreg": ("many",)}, "gives maxnreg the value 'many'"),
        ({"B": tuple(map(str, range(MOST)))}, f"has {2 * MOST} configurations, {MOST} at most"),
        (dict.fromkeys(("B", "num_warps", "num_stages", "maxnreg"), tuple(map(str, range(1, 1001)))), f"has {10**12} "),
    ],
)
def test_a_space_that_is_not_the_kernels_is_refused(space: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        configurations(OWN, space)
    assert said in str(refused.value)


def test_a_launch_may_have_no_limit_of_registers() -> None:
    assert len(configurations(OWN, {"maxnreg": ("None", "128")})) == 4


@pytest.mark.parametrize("argument", ["num_warps", "=4", "num_warps=", "num_warps=4,,8"])
def test_what_declares_no_values_is_refused(argument: str) -> None:
    with pytest.raises(UsageError, match="declares no values"):
        parse_space([argument])


def test_a_setting_is_named_once() -> None:
    with pytest.raises(UsageError, match="names B twice"):
        parse_space(["B=1", "B=2"])
