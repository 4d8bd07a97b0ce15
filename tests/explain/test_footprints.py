from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import UndecidedError, UsageError
from flopwatch.explain.footprints import FootprintOptions, run_footprints

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

    from flopwatch.static.traffic.footprint import Footprint


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def columns(footprint: Footprint, argument: str) -> list[list[tuple[int, int]]]:
    """Return the columns of each rectangle of each layer, from the first to the one after the last."""
    (panel,) = (panel for panel in footprint.panels if panel.argument == argument)
    return [[(each.column, each.column + each.columns) for each in layer] for layer in panel.layers]


def test_each_program_of_a_small_case_has_its_part_of_a_vector(toy: ToyRepository) -> None:
    """1000 elements, of which 16 are told of together, by 4 programs of 256."""
    found = run_footprints(FootprintOptions(select="float16", small=True, programs=(1, 3)), toy.root)
    ((case, footprint),) = found.launches
    assert case.id == "Scale[1000,float16,flopwatch]"
    assert (footprint.kernel, footprint.grid, footprint.programs) == ("scale_kernel", (4,), 4)
    assert [(panel.argument, panel.access, panel.box) for panel in footprint.panels] == [
        ("x", "load", (1, 16)),
        ("out", "store", (1, 16)),
    ]
    parts = [(0, 256), (256, 512), (512, 768), (768, 1000)]
    assert columns(footprint, "x") == columns(footprint, "out") == [parts, [parts[1]], [parts[3]]]
    assert footprint.unknown == found.failures == ()


def test_the_size_is_the_case_s_own_and_the_device_is_the_one_asked_for(toy: ToyRepository) -> None:
    found = run_footprints(FootprintOptions(select="1000000,float32", device="a100"), toy.root)
    ((case, footprint),) = found.launches
    assert (case.id, footprint.device) == ("Scale[1000000,float32,flopwatch]", "a100")
    assert footprint.programs == 3907
    assert footprint.layers[:2] == ((0, 3906), (0, footprint.wave - 1))
    assert footprint.layers[2:] == ((0, 0), (1, 1), (3906, 3906))


def test_what_makes_the_inputs_is_not_shown(toy: ToyRepository) -> None:
    text = toy.suite.read_text(encoding="utf-8")
    made = 'return scale(torch.randn(int(n), device="cuda", generator=generator).to(getattr(torch, dtype)), 2.0), 3.0'
    line = next(line for line in text.splitlines() if "torch.randn" in line)
    toy.suite.write_text(text.replace(line.strip(), made), encoding="utf-8")

    found = run_footprints(FootprintOptions(select="float16", small=True), toy.root)

    assert [footprint.kernel for _, footprint in found.launches] == ["scale_kernel"]


def test_a_case_that_cannot_be_compiled_is_told(toy: ToyRepository) -> None:
    toy.edit("tl.program_id(0) * BLOCK", "tl.no_such_thing(0) * BLOCK")
    with pytest.raises(UndecidedError, match="nothing to draw") as caught:
        run_footprints(FootprintOptions(select="Scale", small=True), toy.root)
    assert "Scale[1000,float16,flopwatch]" in caught.value.why


def test_a_program_that_no_launch_has_is_refused(toy: ToyRepository) -> None:
    with pytest.raises(UsageError, match="there is no program 4"):
        run_footprints(FootprintOptions(select="float16", small=True, programs=(0, 4)), toy.root)
