from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from flopwatch.config import MAX_CONCLUSIONS, Config, WatchedClaim, load_config
from flopwatch.errors import ConfigError
from flopwatch.waivers import Waiver

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, text: str) -> Path:
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    return root


def test_a_table_sets_its_keys_and_leaves_the_rest(tmp_path: Path) -> None:
    root = write(tmp_path, '[tool.flopwatch]\npackages = ["mine"]\nmargin_percent = 1.5\n')
    assert load_config(root) == Config(packages=("mine",), margin_percent=1.5)


def test_all_problems_are_shown_together(tmp_path: Path) -> None:
    root = write(tmp_path, '[tool.flopwatch]\nsource = 3\nspeed = "fast"\nmargin_percent = -1\n')
    with pytest.raises(ConfigError) as caught:
        load_config(root)
    message = str(caught.value)
    assert "4 problems" in message
    assert "speed: no such key" in message
    assert "source: Expected `str`, got `int`" in message
    assert "margin_percent: -1 is not" in message
    assert "packages: missing" in message


def test_margins_and_waivers_are_read(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        """
[tool.flopwatch]
packages = ["mine"]
margin_percent = 0
same_within_percent = 2
margins = { "Attention*lengths*" = 2, "Attention*" = 0 }

[[tool.flopwatch.waivers]]
case = "Add*"
reason = "int64"
owner = "Ada"
until = 2026-12-31
limit_percent = 5

[[tool.flopwatch.waivers]]
case = "Sub*"
reason = "likewise"
owner = "Bo"
until = "2027-01-31"
limit_percent = 0.5
""",
    )
    assert load_config(root) == Config(
        packages=("mine",),
        margin_percent=0.0,
        same_within_percent=2.0,
        margins={"Attention*lengths*": 2.0, "Attention*": 0.0},
        waivers=(
            Waiver(case="Add*", reason="int64", owner="Ada", until=date(2026, 12, 31), limit_percent=5.0),
            Waiver(case="Sub*", reason="likewise", owner="Bo", until=date(2027, 1, 31), limit_percent=0.5),
        ),
    )


MARGINS = {"*": 3.0, "Attention*": 1.0, "Attention*lengths*": 2.0, "Attention[2x8,lengths,float16,flopwatch]": 0.0}


@pytest.mark.parametrize(
    ("case_id", "percent"),
    [
        ("Attention[2x8,lengths,float16,flopwatch]", 0.0),
        ("Attention[4x8,lengths,float16,flopwatch]", 2.0),
        ("Attention[4x8,causal,float16,flopwatch]", 1.0),
        ("Matmul[64,float16,flopwatch]", 3.0),
    ],
)
def test_the_most_specific_margin_decides_in_any_order(case_id: str, percent: float) -> None:
    assert Config(margins=MARGINS).margin_of(case_id) == percent
    assert Config(margins=dict(reversed(MARGINS.items()))).margin_of(case_id) == percent


def test_of_two_equally_specific_margins_the_smaller_decides() -> None:
    for margins in ({"Add[*": 2.0, "*d[1]": 1.0}, {"*d[1]": 1.0, "Add[*": 2.0}):
        assert Config(margins=margins).margin_of("Add[1]") == 1.0


def test_a_case_that_no_pattern_names_has_the_margin_of_the_repository() -> None:
    config = Config(margin_percent=0.0, margins={"Add*": 2.0})
    assert config.margin_of("Sub[1]") == 0.0


def test_the_problems_of_margins_and_waivers_are_shown_with_all_others(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        """
[tool.flopwatch]
packages = ["mine"]
speed = 1
margin_percent = inf
same_within_percent = 0
max_diff_eps = nan

[tool.flopwatch.margins]
Matmul = 1
"Add*" = -0.5

[[tool.flopwatch.waivers]]
case = "Add*"
reason = "int64"
owner = "Ada"
until = 2026-12-31
limit_percent = 5

[[tool.flopwatch.waivers]]
case = "Add*"
reason = ""
until = "soon"
limit = 5
limit_percent = nan

[[tool.flopwatch.conclusions]]
study = "Tiles"
says = "128 is the best"

[[tool.flopwatch.conclusions]]
study = "Tiles"
says = "128 is the best"
point = "4096"
""",
    )
    with pytest.raises(ConfigError) as caught:
        load_config(root)
    assert caught.value.what.endswith("has 14 problems")
    known = (
        "anchor, benchmarks, conclusions, device, launch_margin_percent, main, margin_percent, margins, max_diff_eps,"
        " packages, same_within_percent, source"
    )
    names = "names are like Matmul[4096,float16,flopwatch], and * stands for any text, as in Matmul*"
    assert caught.value.why.split("; ") == [
        f"speed: no such key (known: {known}, waivers)",
        "margin_percent: inf is not a finite number >= 0",
        "max_diff_eps: nan is not a finite number >= 0",
        "same_within_percent: 0 is not a finite number > 0",
        f"margins: the pattern 'Matmul' matches no case: {names}",
        "margins.'Add*': -0.5 is not a finite number >= 0",
        "waivers[1].limit: no such key (known: case, reason, owner, until, limit_percent)",
        "waivers[1].reason: is blank",
        "waivers[1].owner: missing, every waiver has one",
        "waivers[1].until: 'soon' is no date such as 2026-12-31",
        "waivers[1].limit_percent: nan is not a finite number > 0",
        "waivers[1].case: waivers[0] is of the same cases, keep one",
        "conclusions[1].point: no such key (known: study, says, at)",
        "conclusions[1]: there before",
    ]


def conclusions(*tables: str) -> str:
    return '[tool.flopwatch]\npackages = ["mine"]\n' + "".join(
        f"[[tool.flopwatch.conclusions]]\n{table}\n" for table in tables
    )


def test_watched_conclusions_are_read(tmp_path: Path) -> None:
    root = write(tmp_path, conclusions('study = "A"\nsays = "x"', 'study = "A"\nsays = "y"\nat = ["4096", "8*"]'))
    assert load_config(root).conclusions == (
        WatchedClaim(study="A", says="x"),
        WatchedClaim(study="A", says="y", at=("4096", "8*")),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[tool.flopwatch]\npackages = ["mine"]\nconclusions = 3\n', "conclusions: Expected `array`"),
        (conclusions('study = "A"'), "conclusions: Object missing required field `says`"),
        (
            conclusions(*(f'study = "A"\nsays = "{number}"' for number in range(MAX_CONCLUSIONS + 1))),
            f"conclusions: {MAX_CONCLUSIONS + 1}, and {MAX_CONCLUSIONS} at most can be watched",
        ),
    ],
)
def test_a_problem_of_watched_conclusions_is_shown(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text))
    assert problem in caught.value.why


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("margins = 3", "margins: Expected `object`, got `int`"),
        ("margins.'Add*' = '1%'", "margins: Expected `float`, got `str`"),
        ("margins.'Add*' = true", "margins: Expected `float`, got `bool`"),
        ("waivers = 3", "waivers: not a list"),
        ("waivers = [3]", "waivers[0]: 3 is not a table"),
        ("waivers.case = 'Add*'", "waivers: not a list; each is headed [[tool.flopwatch.waivers]], in double brackets"),
        ("waivers = [{ case = ['Add*'] }]", "waivers[0].case: Expected `str`, got `array`"),
    ],
)
def test_a_value_of_another_kind_is_told_so(line: str, problem: str, tmp_path: Path) -> None:
    root = write(tmp_path, f'[tool.flopwatch]\npackages = ["mine"]\n{line}\n')
    with pytest.raises(ConfigError) as caught:
        load_config(root)
    assert problem in caught.value.why


def test_a_file_that_is_no_text_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.flopwatch]\n# \xff\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(tmp_path)


def test_a_repository_without_pyproject_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no pyproject\.toml"):
        load_config(tmp_path)


def test_broken_toml_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(write(tmp_path, "[tool.flopwatch\n"))
