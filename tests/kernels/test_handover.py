"""What is handed to the driver again is what Triton's own dispatch hands to it, down to the bytes of tensor maps.

Triton compiles, dispatches, encodes and launches by its own code; only libcuda is a stand-in, which tells what it got.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU

from flopwatch.kernels.handover import handover_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
#: Runs in a process of its own, in which kernels are compiled and not interpreted.
PROGRAM = r"""
import ctypes, random, sys
import torch, triton
from benchmarks_host import stand_in
from tests.kernels.described import described_kernel, describing_kernel
from triton.tools.tensor_descriptor import TensorDescriptor
from flopwatch.kernels import tensor_maps
from flopwatch.kernels.launch import Launched, Launches

def bytes_of(signature):
    # Of each of a kernel's arguments, as its signature tells them: of maps the hash with which they begin.
    for kind in signature.values():
        if kind.startswith("tensordesc"):
            yield from (8, 4, 4, 8, 8)  # the map, two sizes, two strides
        elif kind != "constexpr":
            yield 8 if kind[0] == "*" or kind == "i64" else 4

def arguments(x, flags, out, padding):
    maps = [TensorDescriptor(t, list(t.shape), list(t.stride()), [32, 32], padding) for t in (x, out)]
    return maps[0], flags, maps[1], 0.5, 1, 2**40, None

def launched(compiled, given):
    return Launched(
        compiled=compiled, grid=(3, 2), pointers=3, numbers=given[3:], descriptors={0: given[0], 2: given[2]}
    )

def seen():
    return tuple(values[:count.value]), tuple(launch)[1:]

if PLANTED == "geometry":  # maps are kept by address alone
    first = []
    one = tensor_maps.geometry_of
    def geometry_of(*all):
        first.append(one(*all))
        return first[0]
    sys.modules["flopwatch.kernels.handover"].geometry_of = geometry_of
if PLANTED == "address":  # and by geometry alone
    maps = {}
    map_of = tensor_maps.tensor_map
    sys.modules["flopwatch.kernels.handover"].tensor_map = lambda g, a: maps.setdefault(g, map_of(g, a))

draw = random.Random(1)
with stand_in.stand_in_gpu() as library:
    count, encoded = (ctypes.c_int.in_dll(library, name) for name in ("stand_in_count", "stand_in_encoded"))
    values = (ctypes.c_ulonglong * 64).in_dll(library, "stand_in_values")
    launch = (ctypes.c_ulonglong * 8).in_dll(library, "stand_in_launch")
    places = [stand_in.tensor(96 * 128) for _ in range(3)]
    flags = stand_in.tensor(1, dtype=torch.int32)
    launches, examples = Launches(), 0
    for columns in (64, 128, 56):
        for rows in (96, 33):
            for padding in ("zero", "nan"):
                shapes = [torch.as_strided(t, (rows, columns), (128, 1)).as_subclass(stand_in.StandInTensor)
                          for t in places]
                key = rows, columns, padding
                for x, out in ((shapes[0], shapes[1]), (shapes[1], shapes[0]), (shapes[2], shapes[2])):
                    given = arguments(x, flags, out, padding)
                    compiled = described_kernel[(3, 2)](*given, BLOCK=32)
                    sizes = list(bytes_of(compiled.src.signature))
                    (ctypes.c_int * 64).in_dll(library, "stand_in_bytes")[: len(sizes)] = sizes
                    if key not in launches._kept:
                        launches.keep(key, launched(compiled, given), out)
                    handover = launches._kept[key].handover
                    again = lambda *pointers: handover.launch(*handover.given(0, *pointers))
                    for _ in range(2):
                        count.value = len(sizes)
                        described_kernel[(3, 2)](*given, BLOCK=32)
                        theirs = seen()
                        again(x.data_ptr(), flags.data_ptr(), out.data_ptr())
                        assert seen() == theirs, (seen(), theirs)
                        count.value = 0
                        examples += 1
                    before = encoded.value
                    again(x.data_ptr(), flags.data_ptr(), out.data_ptr())
                    assert encoded.value == before, "encoded once more"
    assert len(launches) == 12
    triton.set_allocator(lambda size, _alignment, _stream: stand_in.tensor(size, dtype=torch.int8))
    compiled = describing_kernel[(1,)](places[0], 64, 64, BLOCK=32)
    launches.forget()
    launches.keep("memory", Launched(compiled=compiled, grid=(1,), pointers=1, numbers=(64, 64)), places[0])
    assert compiled.metadata.global_scratch_size > 0
    print(examples, len(launches))
"""


def run(planted: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", f"PLANTED = {planted!r}\n{PROGRAM}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


needs_stand_in = [
    pytest.mark.skipif(HAS_GPU, reason="the stand-in for libcuda cannot lie beside the real one"),
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the stand-in for libcuda"),
]


@pytest.mark.parametrize(
    ("planted", "code", "words"),
    [
        pytest.param("", 0, "", marks=needs_stand_in, id="nothing"),
        pytest.param("geometry", 1, "AssertionError", marks=needs_stand_in, id="a map of another geometry"),
        pytest.param("address", 1, "AssertionError", marks=needs_stand_in, id="a map of another address"),
    ],
)
def test_the_driver_is_given_the_same_maps_as_by_tritons_dispatch(planted: str, code: int, words: str) -> None:
    done = run(planted)

    assert (done.returncode, words in done.stderr) == (code, True), done.stderr[-3000:]
    if not planted:
        assert done.stdout == "72 0\n"  # examples, and none kept of a kernel that is given memory


class Launcher:
    """Stands for Triton's, of a kernel of one address and two numbers."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self, launch: Callable[..., None]) -> None:
        self.launch = launch

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        x, y, z, stream, function, metadata, *hooks = arguments[:9]
        self.launch(x, y, z, stream, function, False, metadata, *hooks, arguments[9:])  # noqa: FBT003 - as Triton's


class Noted:
    """Stands for the function of C."""

    def __init__(self) -> None:
        self.given: list[object] = []

    def __call__(self, *arguments: object) -> None:
        self.given += arguments


def compiled(run: object) -> SimpleNamespace:
    return SimpleNamespace(run=run, function=7, packed_metadata="packed", metadata=SimpleNamespace())


def test_what_is_handed_over_again_is_in_the_order_of_the_launcher() -> None:
    noted = Noted()
    found = handover_of(compiled(Launcher(noted)), (5, 1, 1), [None], (2, 0.5, None))
    assert found is not None
    assert noted.given == []

    found.launch(*found.given(11, 1024))

    assert noted.given == [5, 1, 1, 11, 7, False, "packed", None, None, None, [1024, 2, 0.5, None]]


class Flat(Launcher):
    """Hands over the kernel's arguments one by one, as that of triton 3.6."""

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        self.launch(*arguments)


def test_arguments_may_be_handed_over_one_by_one() -> None:
    noted = Noted()
    found = handover_of(compiled(Flat(noted)), (5, 1, 1), [None], (2, 0.5, None))
    assert found is not None

    found.launch(*found.given(11, 1024))

    assert noted.given == [5, 1, 1, 11, 7, "packed", None, None, None, 1024, 2, 0.5, None]


class Memory(Launcher):
    """Gives each launch memory."""

    global_scratch_size = 128


class Unsized(Launcher):
    """Does not say whether it gives any."""

    global_scratch_size = profile_scratch_size = None  # type: ignore[assignment] # as one that is not known


class Counting(Launcher):
    """Counts launches for a sanitizer, as that of triton 3.9."""

    gsan_enabled = True


class More(Launcher):
    """Hands over more than it was given."""

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        super().__call__(*arguments, 1)


class Other(Launcher):
    """Hands over something else than it was given."""

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        super().__call__(*arguments[:-1], 3)


class Twice(Launcher):
    """Launches twice."""

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        super().__call__(*arguments)
        super().__call__(*arguments)


class Streamless(Launcher):
    """Asks itself for the stream."""

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        super().__call__(*arguments[:3], 0, *arguments[4:])


class Picky(Launcher):
    """Wants other arguments."""

    def __call__(self, *_arguments: Any) -> None:  # noqa: ANN401 - as Triton's
        raise TypeError


class Fixed(Launcher):
    """Cannot be copied, so that nothing can watch it."""

    def __copy__(self) -> Fixed:
        raise TypeError


@pytest.mark.parametrize("kind", [Memory, Unsized, Counting, More, Other, Twice, Streamless, Picky, Fixed])
def test_a_launcher_that_does_more_or_otherwise_is_not_imitated(kind: type[Launcher]) -> None:
    noted = Noted()
    assert handover_of(compiled(Launcher(noted)), (5, 1, 1), [None], (2, 0.5)) is not None

    assert handover_of(compiled(kind(noted)), (5, 1, 1), [None], (2, 0.5)) is None
    assert noted.given == []


def test_a_function_that_stands_before_that_of_c_is_known_by_its_name_for_it() -> None:
    noted = Noted()

    def wrapped(launcher: Noted) -> Callable[..., None]:
        return lambda *arguments: launcher(*arguments)  # noqa: PLW0108 - a function that has a cell

    def foreign(function: Noted) -> Callable[..., None]:
        return lambda *arguments: function(*arguments)  # noqa: PLW0108 - likewise

    found = handover_of(compiled(Launcher(wrapped(noted))), (5, 1, 1), [None], (2, 0.5))
    assert found is not None
    assert found.launch is noted
    assert handover_of(compiled(Launcher(foreign(noted))), (5, 1, 1), [None], (2, 0.5)) is None
    assert handover_of(compiled(lambda *_: None), (5, 1, 1), [None], (2, 0.5)) is None
    assert noted.given == []


def test_descriptors_that_triton_makes_no_maps_of_are_left_to_it() -> None:
    descriptor = SimpleNamespace(base=torch.zeros(1), shape=[1], strides=[1], block_shape=[1])

    assert handover_of(compiled(Launcher(Noted())), (5, 1, 1), [descriptor], (2, 0.5)) is None
