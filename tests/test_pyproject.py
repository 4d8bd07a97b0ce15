from __future__ import annotations

import stat
import tomllib
from datetime import date
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopwatch.errors import UsageError
from flopwatch.pyproject import replace_file, waiver_block, with_waiver
from flopwatch.waivers import Waiver

if TYPE_CHECKING:
    from pathlib import Path

FILE = b'[tool.flopwatch]\npackages = ["mine"] # ours\n'
WAIVER = Waiver(case="Add*", reason="int64", owner="Ada", until=date(2026, 12, 31), limit_percent=5.0)
HOSTILE = (
    'quotes " and \'\'\' and """',
    "back\\slash \\n \\u0041 \\",
    "]]",
    "]]\n[[tool.flopwatch.waivers]]\ncase = '*'",
    '"\n[tool.flopwatch]\npackages = []\n"',
    "# no comment",
    "line\nbreak\r\nand\ttab",
    "\x00\x07\x1b[31m\x7f\x85",
    "grüße 测试 🚀 e\u0301",
    "\u202eright to left\u2066 \u200b \ufeff",
    "\U0010ffff\ue000",
    "[bold]markup[/bold] :warning: %s {x}",
    "x" * 100_000,
)


def waivers(data: bytes) -> list[Waiver]:
    return msgspec.convert(tomllib.loads(data.decode())["tool"]["flopwatch"]["waivers"], list[Waiver])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_it_was(text: str) -> None:
    waiver = Waiver(case=text, reason=text, owner=text, until=date(2026, 12, 31), limit_percent=0.1)
    data = with_waiver(FILE, waiver)

    assert waivers(data) == [waiver]
    assert data.startswith(FILE)


@given(st.text(), st.dates(), st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_any_text_date_and_limit_come_back_as_they_were(text: str, until: date, limit: float) -> None:
    waiver = Waiver(case=text, reason=text, owner=text, until=until, limit_percent=limit)

    assert waivers(with_waiver(FILE, waiver)) == [waiver]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_written_says_what_it_seems_to_say(text: str) -> None:
    waiver = Waiver(case=text, reason=text, owner=text, until=date(2026, 12, 31), limit_percent=5.0)
    lines = waiver_block(waiver).splitlines()

    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "data",
    [
        FILE,
        FILE.rstrip(b"\n"),
        FILE + b"\n\n",
        FILE + b"# the end, without a line end",
        FILE + b"  \t",
        FILE + b'[project]\nname = "mine"\n[[project.authors]]\nname = "Ada"\n',
        FILE + b'[[tool.flopwatch.waivers]]\ncase = "Sub*"\n',
        FILE.replace(b"\n", b"\r\n"),
        'notes = """\n[[tool.flopwatch.waivers]]\n"""\nfloat = nan\n# grüße\n'.encode() + FILE,
        b'[tool]\nflopwatch.packages = ["mine"]\n',
    ],
)
def test_the_rest_of_the_file_is_kept_byte_for_byte(data: bytes) -> None:
    changed = with_waiver(data, WAIVER)
    table = tomllib.loads(changed.decode())["tool"]["flopwatch"]

    assert changed.startswith(data)
    assert table["packages"] == ["mine"]
    assert msgspec.convert(table["waivers"][-1], Waiver) == WAIVER
    assert len(table["waivers"]) == 1 + data.count(b'case = "Sub*"')


def test_a_file_with_line_ends_of_windows_keeps_them_throughout() -> None:
    changed = with_waiver(FILE.replace(b"\n", b"\r\n"), WAIVER)

    assert changed.count(b"\n") == changed.count(b"\r\n") == FILE.count(b"\n") + 7


def test_two_waivers_follow_each_other() -> None:
    second = Waiver(case="Sub*", reason="b", owner="Bo", until=date(2027, 1, 1), limit_percent=1.0)

    assert waivers(with_waiver(with_waiver(FILE, WAIVER), second)) == [WAIVER, second]


@pytest.mark.parametrize(
    "data",
    [
        FILE + b"waivers = []\n",
        b'[tool]\nflopwatch = { packages = ["mine"] }\n',
        FILE + b'waivers.case = "*"\n',
    ],
)
def test_a_file_that_cannot_take_a_block_at_its_end_is_told_so(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"cannot be put at the end(.|\n)*the file is as it was"):
        with_waiver(data, WAIVER)


def test_text_that_is_no_unicode_is_refused() -> None:
    stray = Waiver(case="Add*", reason="\udcff", owner="Ada", until=date(2026, 12, 31), limit_percent=5.0)

    with pytest.raises(UsageError, match="not a Unicode scalar value"):
        with_waiver(FILE, stray)


def test_a_block_that_says_something_else_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.pyproject._string", lambda text: f'"{text}{text}"')

    with pytest.raises(UsageError, match="read differently"):
        with_waiver(FILE, WAIVER)


def test_a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(b"old")
    path.chmod(0o640)
    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.toml", tmp_path / "pyproject.toml"
    target.write_bytes(b"old")
    link.symlink_to(target)
    replace_file(link, b"new")

    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("failing", ["os.fsync", "shutil.copymode", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_on_the_way_leaves_the_old_file(
    failing: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise error

    path = tmp_path / "pyproject.toml"
    path.write_bytes(b"old")
    monkeypatch.setattr(failing, fail)
    with pytest.raises(error):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
