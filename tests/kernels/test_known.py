from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.kernels.configs import MATMUL_AUTOTUNE
from flopwatch.kernels.known import TABLES, key_text, known_choices
from flopwatch.measure import tuning
from flopwatch.model import Choice, to_json
from flopwatch.tune.table import Table, pins_of, read_table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KEY = (4096, True, "torch.float16", "torch.int32")


def test_the_tables_are_what_a_gate_pins() -> None:
    pinned = [path for path in TABLES.glob("*.json") if path.name != "routes.json"]  # of no autotuner
    assert pinned
    for path in pinned:
        pins = pins_of(read_table(path), path)
        assert {choice.kernel for choices in pins.values() for choice in choices} == {"matmul_kernel"}


def test_the_tables_have_configurations_of_the_list_alone() -> None:
    listed = {tuple(config.constants().items()) for config in MATMUL_AUTOTUNE}
    for text in known_choices("matmul_kernel").values():
        settings = dict(item.split(": ") for item in text.split(", "))
        assert tuple((name, int(settings[name])) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")) in listed


def test_a_key_is_written_as_the_gate_writes_it() -> None:
    assert key_text(KEY) == tuning.key_text(KEY)


def test_a_choice_without_a_key_is_of_no_call(tmp_path: Path) -> None:
    (entry,) = read_table(TABLES / "h200.json").entries[:1]
    keyed, unkeyed = Choice(kernel="k", key="8", config="wide"), Choice(kernel="k", config="tall")
    for name, choice in (("keyed", keyed), ("unkeyed", unkeyed)):
        (tmp_path / f"{name}.json").write_bytes(to_json(Table(entries=(replace(entry, choices=(choice,)),))))
    assert known_choices("k", tmp_path) == {("NVIDIA H200", "8"): "wide"}


def test_a_choice_counts_from_its_triton_on_until_that_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = read_table(TABLES / "h200.json").entries[:1]
    entries = tuple(
        replace(entry, choices=(Choice(kernel="k", key="8", config=version),), versions={"triton": version})
        for version in ("3.10.0", "3.7.1", "3.6.0")
    )
    (tmp_path / "table.json").write_bytes(to_json(Table(entries=entries)))
    counts = {}
    for version in ("3.5.1", "3.6.2", "3.9.0", "3.10.0"):
        monkeypatch.setattr("triton.__version__", version)
        counts[version] = known_choices("k", tmp_path).get(("NVIDIA H200", "8"))

    assert counts == {"3.5.1": None, "3.6.2": "3.6.0", "3.9.0": "3.7.1", "3.10.0": "3.10.0"}
