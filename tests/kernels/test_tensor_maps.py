from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.kernels import tensor_maps
from flopwatch.kernels.tensor_maps import geometry_of, tensor_map

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Descriptor:
    """As far as Triton's and Gluon's are alike."""

    base: Any
    shape: list[int]
    block_shape: list[int]


@pytest.fixture
def encoded() -> Iterator[list[tuple[int, list[int]]]]:
    """What was encoded, in order; nothing is known before."""
    made: list[tuple[int, list[int]]] = []

    def make(descriptor: Descriptor, metadata: object, _more: object) -> list[object]:
        made.append((descriptor.base.data_ptr(), descriptor.shape))
        return [(len(made), metadata), *descriptor.shape]

    make_of[:] = [make]
    tensor_map.cache_clear()
    yield made
    tensor_map.cache_clear()


make_of: list[Any] = []


def geometry(descriptor: Descriptor, metadata: object = "swizzled") -> tensor_maps.Geometry:
    return geometry_of(descriptor, metadata, make_of[0])


def test_a_map_is_encoded_once_for_each_address_and_geometry(encoded: list[tuple[int, list[int]]]) -> None:
    one = Descriptor(torch.zeros(8), [8], [4])
    kinds = [one, replace(one, shape=[4]), one, replace(one, base=torch.zeros(8))]

    maps = [tensor_map(geometry(kind), address) for kind in kinds for address in (1024, 2048)]

    assert encoded == [(1024, [8]), (2048, [8]), (1024, [4]), (2048, [4])]
    assert maps[:2] == maps[4:6] == maps[6:] != maps[2:4]


def test_what_a_map_is_made_of_tells_geometries_apart(encoded: list[tuple[int, list[int]]]) -> None:
    one = Descriptor(torch.zeros(8), [8], [4])
    kinds = [one, replace(one, shape=[4]), replace(one, block_shape=[8]), replace(one, base=torch.zeros(8).half())]

    assert len({geometry(kind) for kind in kinds} | {geometry(one, "plain")}) == 5
    assert geometry(one) is geometry(replace(one, base=torch.zeros(8)))
    assert encoded == []


@pytest.mark.usefixtures("encoded")
def test_a_geometry_keeps_no_memory_alive() -> None:
    tensor = torch.zeros(8)
    freed: list[bool] = []
    weakref.finalize(tensor, freed.append, True)  # noqa: FBT003 - an element
    descriptor = Descriptor(tensor, [8], [4])
    kept = geometry(descriptor)
    tensor_map(kept, tensor.data_ptr())

    del descriptor, tensor

    assert freed


def test_maps_and_geometries_are_kept_up_to_a_bound(
    encoded: list[tuple[int, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_maps, "CAPACITY", 4)
    one = Descriptor(torch.zeros(8), [8], [4])
    for size in range(10):
        geometry(replace(one, shape=[size]))

    assert 0 < len(tensor_maps._geometries) <= 4
    assert tensor_map.cache_info().maxsize == 8192
    assert encoded == []
