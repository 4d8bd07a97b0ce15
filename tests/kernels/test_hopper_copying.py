"""What the compiler makes of the kernel that copies operands, everywhere; its numbers, on a GPU of that architecture.

As of `test_hopper_matmul`, numbers are computed in processes that have a minute each.
"""

from __future__ import annotations

import gc
import math
import os
import re
import subprocess
import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.kernels import hopper_copying
from flopwatch.kernels.hopper_copies import shift
from flopwatch.kernels.hopper_copying import how_read, prepare_hopper_copying
from flopwatch.kernels.hopper_matmul import CONFIGS as PERSISTENT
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.hopper_rows import MOST_COLUMNS
from flopwatch.kernels.hopper_short import SHORT, ShortConfig
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import workspace_for
from flopwatch.model import KernelFacts, from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.kernels.prepared import Prepared

SHARED_BYTES, PROCESSORS = 232448, 132
#: A hang costs this. A process compiles two kernels or three, and computes small products, in about 20 s.
DEADLINE_S = 60.0
CONFIGS: dict[str, HopperConfig | ShortConfig] = {**PERSISTENT, **SHORT}
#: Of programs that share no tile, and that share some; and of those that have a tile each, in two parts or not.
WHOLE, SHARED = "128x256x64 s4 w2 c4/2 g8 whole", "128x256x64 s4 w2 c4/2 g8 wave"
SHORT_WIDE, SHORT_HIGH, SHORT_ONE = (
    "short 128x192x64 s5 w8 x1 tma",
    "short 144x128x64 s4 w4 x1 turned tma",
    "short 64x128x64 s3 w4 x3 tma",
)
#: A, B and C as (rows, columns, how it lies): by rows, by columns, in every other column, or in rows with room between.
LAYOUTS = {
    "odd": ((333, 1027, "rows"), (1027, 521, "rows")),
    "even": ((333, 1026, "rows"), (1026, 522, "rows")),
    "fours": ((333, 1028, "rows"), (1028, 524, "rows")),
    "zeros past the last piece": ((333, 1237, "rows"), (1237, 741, "rows")),
    "odd columns of B": ((333, 1027, "rows"), (1027, 521, "columns")),
    "odd columns of A": ((333, 1027, "columns"), (1027, 521, "rows")),
    "A alone": ((333, 1027, "rows"), (1027, 520, "rows")),
    "B alone": ((333, 1024, "rows"), (1024, 521, "rows")),
    "C alone": ((333, 1024, "rows"), (1024, 521, "columns")),
    "every other": ((333, 1027, "others"), (1027, 521, "others")),
    "room between": ((333, 1027, "room"), (1027, 520, "room")),
}


def operands(device: str, *matrices: tuple[int, int, str]) -> list[torch.Tensor]:
    found = []
    for rows, columns, lies in matrices:
        width = {"others": 2 * columns, "room": columns + 24}.get(lies, columns)
        shape = (columns, rows) if lies == "columns" else (rows, width)
        whole = torch.empty(shape, device=device, dtype=torch.float16)
        views = {"rows": whole, "columns": whole.T, "others": whole[:, ::2], "room": whole[:, :columns]}
        found.append(views[lies])
    return found


#: Compiles for sm_90. Prints a line of facts; of each kernel how wide it reads and writes global memory, where it does
#: so more than four times, and how many bytes come into shared memory at once; and in which order it has what makes
#: copies known: fences between the two ways to memory, barriers, what releases and acquires.
COMPILE = r"""
import re
import sys
import torch
from collections import Counter
from flopwatch.kernels.hopper_copying import hopper_copying_matmul
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.test_hopper_copying import CONFIGS, LAYOUTS, operands

with pretend_gpu("h200", tensors="meta") as recorder:
    for layout, config in zip(sys.argv[1::2], sys.argv[2::2]):
        in_lines = layout == "A alone"
        hopper_copying_matmul(*operands("cuda", *LAYOUTS[layout]), CONFIGS[config], copies_b=in_lines)
print("facts", to_json(kernel_facts(recorder)).decode())
for launch in recorder.launches:
    ptx = recorder.compiled[launch.binary_hash].asm["ptx"]
    found = (Counter(re.findall(rf"{kind}\.global\.((?:v\d\.)?b\d+)", ptx)) for kind in ("ld", "st"))
    loads, stores = (sorted(width for width, times in widths.items() if times > 4) for widths in found)
    at_once = sorted(set(re.findall(r"cp\.async\.\S+shared\.global \[[^]]*\], \[[^]]*\], 0x(\w+)", ptx)))
    print("memory", *at_once, *loads, "|", *stores)
    released, acquired = r"(?:atom|red)\.[\w.]*release\S*", r"(?:ld|atom)\.[\w.]*acquire\S*|atom\S*acq_rel\S*"
    waits = rf"fence\.proxy\.async;|bar\.sync|{released}|{acquired}"
    kinds = {"fence": "fence", "bar": "barrier", "ld": "acquire"}
    found = [kinds.get(each.split(".")[0]) or re.search("release|acquire|acq_rel", each)[0]
             for each in re.findall(waits, ptx)]
    fences = [place for place, each in enumerate(found) if each == "fence"]
    between = found[fences[0] : fences[-1] + 1] if fences else []
    print("order", *between, "acq_rel" in found)
"""


def in_a_process(program: str, *arguments: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    printed = subprocess.check_output(
        [sys.executable, "-c", program, *arguments], env=environment, text=True, timeout=DEADLINE_S
    )
    return printed.splitlines()


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    pairs = [
        ("odd", WHOLE),
        ("fours", "192x128x64 s5 w3 c2/1 g8 whole"),
        ("odd columns of A", SHARED),
        ("C alone", WHOLE),
        ("odd", "64x32x64 s8 w1 c1/1 g8 whole x2"),  # C in fewer columns than a step of A has
        ("A alone", WHOLE),  # and B in lines
        ("odd", SHORT_WIDE),
        ("even", SHORT_HIGH),
        ("C alone", SHORT_ONE),
    ]
    return in_a_process(COMPILE, *(each for pair in pairs for each in pair))


def test_it_fits_and_spills_nothing(compiled: list[str]) -> None:
    (line,) = [line for line in compiled if line.startswith("facts ")]
    facts = from_json(line.removeprefix("facts ").encode(), tuple[KernelFacts, ...])

    assert [fact.kernel for fact in facts] == 6 * ["hopper_copying_kernel"] + 3 * ["hopper_copying_short_kernel"]
    for fact in facts:
        assert fact.spill_bytes == 0
        assert fact.shared_bytes is not None
        assert fact.shared_bytes <= SHARED_BYTES


def test_it_reads_and_writes_as_wide_as_it_can(compiled: list[str]) -> None:
    """Rows are read, and copies stored, in 16 bytes; columns in two, and C, too, where nothing divides its columns."""
    assert [line for line in compiled if line.startswith("memory")] == [
        "memory 10 | b16 v4.b32",
        "memory 10 | v2.b32 v4.b32",
        "memory 10 b16 | b16 v4.b32",
        "memory | b16",
        "memory 10 | b16 v4.b32",
        "memory 10 | v4.b32",
        "memory 10 | b16 v4.b32",
        "memory 10 | b32 v4.b32",
        "memory | b16",
    ]


def test_what_is_loaded_comes_after_what_all_programs_have_stored(compiled: list[str]) -> None:
    """A thread orders what it stored, waits for those beside it, and says so; who has read that orders its loads."""
    orders = [line.removeprefix("order ") for line in compiled if line.startswith("order")]
    made = re.compile(r"fence (barrier )+release .*acquire (barrier )*fence True")

    assert [place for place, order in enumerate(orders) if not made.fullmatch(order)] == [3, 8], orders
    assert orders[3] == "False", "nothing is copied"
    assert "acquire" not in orders[8], "nor here"


@pytest.fixture
def prepared(cuda: str, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a function
    """Prepare a launch, of what no GPU has to hold."""
    monkeypatch.setattr(hopper_copying, "empty_on_gpu", lambda shape, _strides, dtype: torch.empty(shape, dtype=dtype))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(multi_processor_count=PROCESSORS)
    )

    def prepare(layout: str, config: str, **named: bool) -> tuple[Prepared, list[torch.Tensor]]:
        a, b = operands(cuda, *LAYOUTS[layout])
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=cuda)
        return prepare_hopper_copying(a, b, out, CONFIGS[config], **named), [a, b, out]

    return prepare


@pytest.mark.parametrize("config", [WHOLE, SHARED, SHORT_WIDE, SHORT_HIGH, SHORT_ONE])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_later_launch_is_handed_its_own_operands_and_copies_where_these_are_read(
    prepared: Any,  # noqa: ANN401 - as above
    layout: str,
    config: str,
) -> None:
    launch, operands_of_first = prepared(layout, config)
    given, later = [each.data_ptr() for each in operands_of_first], [place << 20 for place in (1, 2, 3)]
    pointers = [each for each in launch.arguments if hasattr(each, "block_shape") or isinstance(each, torch.Tensor)]
    (memory,) = (
        each
        for each in launch.arguments
        if isinstance(each, torch.Tensor) and each.dim() == 1 and each.dtype == torch.float16
    )
    workspace = workspace_for(Schedule(programs=1, shared=0), 0, device=memory.device)
    first = dict(zip(given, later, strict=True))

    arranged, (held, copies) = launch.arrange(0, *later)

    assert held is workspace
    assert copies.numel() == memory.numel()
    assert len(arranged) == len(pointers)
    for found, each in zip(arranged, pointers, strict=True):
        begins = (each.base if hasattr(each, "block_shape") else each).data_ptr()
        of_copies = begins - memory.data_ptr() + copies.data_ptr()
        of_workspace = begins in range(workspace.addresses[1], workspace.addresses[1] + workspace.flags.nbytes)
        expected = begins if of_workspace or begins == workspace.addresses[0] else first.get(begins, of_copies)
        assert found == expected


@pytest.mark.parametrize(
    ("layout", "copied"),
    [("odd", "A B C"), ("A alone", "A"), ("B alone", "B C"), ("C alone", "C"), ("odd columns of B", "A B C")],
)
def test_what_tensor_maps_describe_is_left_where_it_is(prepared: Any, layout: str, copied: str) -> None:  # noqa: ANN401
    launch, _ = prepared(layout, WHOLE)
    needed = {"A": launch.constants["A_READS"], "B": launch.constants["B_READS"], "C": launch.constants["C_WIDTH"]}

    assert [name for name, need in needed.items() if need] == copied.split()


def test_b_is_copied_into_lines_where_that_is_asked_for(prepared: Any) -> None:  # noqa: ANN401 - as above
    as_it_is, _ = prepared("A alone", WHOLE)
    in_lines, _ = prepared("A alone", WHOLE, copies_b=True)

    assert as_it_is.constants["B_READS"] == ""
    assert in_lines.constants["B_READS"] == "eights"
    assert in_lines.arguments[1].strides[0] % 64 == 0


def test_counters_lie_behind_the_flags_of_shared_tiles(prepared: Any) -> None:  # noqa: ANN401 - as above
    launch, _ = prepared("odd", SHARED)
    flags, counters = launch.arguments[4], launch.arguments[8]

    first = (counters.data_ptr() - flags.data_ptr()) // 4
    assert launch.constants["SHARES"]
    assert first >= launch.constants["CONSUMERS"] * launch.grid[0]
    assert flags.numel() >= first + 3


@pytest.mark.parametrize("config", [WHOLE, SHARED, SHORT_WIDE, SHORT_HIGH, SHORT_ONE])
@pytest.mark.parametrize("layout", ["odd", "A alone", "C alone"])
def test_what_is_kept_of_a_launch_keeps_no_tensor_of_it(prepared: Any, layout: str, config: str) -> None:  # noqa: ANN401 - as above
    launch, tensors = prepared(layout, config)
    tensors += [each for each in launch.arguments if isinstance(each, torch.Tensor) and each.dtype == torch.float16]
    alive = [weakref.ref(tensor) for tensor in tensors]
    arrange = launch.arrange
    del launch, tensors

    gc.collect()

    assert arrange is not None
    assert [each() for each in alive] == len(alive) * [None]


@pytest.mark.parametrize("config", [WHOLE, SHARED, SHORT_WIDE])
def test_there_are_programs_for_tiles_alone_where_nothing_is_copied(prepared: Any, config: str) -> None:  # noqa: ANN401 - as above
    launch, (a, _, out) = prepared("C alone", config)

    tiles = math.prod(CONFIGS[config].tiles(a.shape[0], out.shape[1]))
    shared = launch.constants.get("SHARES", False)
    assert math.prod(launch.grid) == (PROCESSORS if shared else tiles)


@pytest.mark.parametrize("config", [WHOLE, SHORT_WIDE, SHORT_ONE])
def test_there_are_programs_for_all_multiprocessors_to_copy(prepared: Any, config: str) -> None:  # noqa: ANN401 - as above
    """One each, where no multiprocessor has two tiles; and there are as many shares of the copies as programs."""
    launch, (a, _, out) = prepared("odd", config)

    tiles = math.prod(CONFIGS[config].tiles(a.shape[0], out.shape[1]))
    assert tiles < math.prod(launch.grid) == PROCESSORS
    assert launch.arguments[-1] == PROCESSORS


@pytest.mark.parametrize(("processors", "copiers"), [(8, 24), (12, 36), (24, 48), (30, 30)])
def test_as_many_programs_copy_as_fit_a_multiprocessor_that_has_several_tiles(
    prepared: Any,  # noqa: ANN401 - as above
    processors: int,
    copiers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = SimpleNamespace(multi_processor_count=processors)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: found)

    launch, (a, _, out) = prepared("odd", SHORT_ONE)

    tiles = math.prod(CONFIGS[SHORT_ONE].tiles(a.shape[0], out.shape[1]))
    assert (tiles, launch.arguments[-1], math.prod(launch.grid)) == (30, copiers, max(30, copiers))


def test_rows_that_are_apart_are_not_copied(prepared: Any) -> None:  # noqa: ANN401 - as above
    with pytest.raises(ValueError, match=r"no operands are copied for 'short .* r8 tma'\n  why: .*\n  do:  choose"):
        prepared("odd", "short 128x64x64 s5 w4 x1 r8 tma")


def test_operands_that_are_far_apart_are_read_alone() -> None:
    """Of a piece of them 32 bits do not count the bytes; and only rows that are apart end where the matrix does."""

    def read(*strides: int, columns: int = 9) -> str:
        return how_read(torch.empty(1, dtype=torch.float16, device="meta").as_strided((3, columns), strides))

    assert [read(2**22 - 1, 1), read(2**22 + 1, 1)] == ["words", "elements"]
    assert [read(1, 2**22 - 1), read(1, 2**22 + 1)] == ["down", "elements"]
    assert [read(2**22 - 8, 1, columns=16), read(2**22 + 8, 1, columns=16)] == ["eights", "elements"]
    assert read(16, 2) == "elements"
    assert [read(9, 1), read(7, 1), read(0, 1), read(9, 1, columns=7)] == ["words", *3 * ["elements"]]


#: What the instructions that shift words compute, of their operands.
INSTRUCTIONS: dict[str, Callable[..., int]] = {
    "and.b32": lambda x, y: x & y,
    "shl.b32": lambda x, y: x << y,
    "setp.ne.b32": lambda x, y: x != y,
    "selp.b32": lambda x, y, chosen: x if chosen else y,
    "shf.r.wrap.b32": lambda low, high, bits: (low | high << 32) >> bits & 0xFFFFFFFF,
}


def run_shift(words: list[list[int]], begin: int) -> list[list[int]]:
    """Run what shifts the four words of each thread of a warp, for a row that begins at that byte."""
    threads = [{f"${4 + place}": word for place, word in enumerate([*mine, *4 * [begin]])} for mine in words]
    for line in shift().strip().strip("{}").split(";"):
        name, _, rest = line.strip().partition(" ")
        if name in {"", ".reg"}:
            continue
        to, *given = [each.strip() for each in rest.split(",")]
        if name == "shfl.sync.down.b32":
            assert given[1:] == ["1", "31", "-1"]
            following = [*threads[1:], threads[-1]]
            found = [thread[given[0]] for thread in following]
        else:
            operands_of = [[int(each) if each.isdigit() else thread[each] for each in given] for thread in threads]
            found = [INSTRUCTIONS[name](*each) for each in operands_of]
        for thread, value in zip(threads, found, strict=True):
            thread[to] = value
    return [[thread[f"${place}"] for place in range(4)] for thread in threads]


@pytest.mark.parametrize("begin", range(0, 16, 2))
def test_words_of_a_row_are_shifted_to_where_it_begins(begin: int) -> None:
    row = bytes((7 * place + place // 256) % 256 for place in range(512))
    words = [[int.from_bytes(row[16 * lane + 4 * i :][:4], "little") for i in range(4)] for lane in range(32)]

    shifted = run_shift(words, begin)

    found = b"".join(word.to_bytes(4, "little") for thread in shifted for word in thread)
    assert found[:496] == row[begin:][:496]


def test_a_product_of_too_many_columns_is_refused() -> None:
    a, b, out = (
        torch.empty(shape, dtype=torch.float16, device="meta")
        for shape in ((1, 8), (8, MOST_COLUMNS + 1), (1, MOST_COLUMNS + 1))
    )

    with pytest.raises(ValueError, match=r"too wide\n  why: .*\n  do:  multiply B in parts"):
        prepare_hopper_copying(a, b, out, CONFIGS[WHOLE])


#: Draws operands, multiplies them twice past poison and with other numbers, prints the largest error of each product:
#: on all multiprocessors, and on eight of them, whose shares are of many pieces, or which take three each; then the
#: same from streams that overlap.
PROGRAM = """
import sys
import torch
from dataclasses import replace
from types import SimpleNamespace
from flopwatch.kernels.hopper_copying import hopper_copying_matmul, prepare_hopper_copying
from flopwatch.kernels.reference import matmul_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations
from tests.kernels.test_hopper_copying import CONFIGS, LAYOUTS, operands

config = CONFIGS[sys.argv[1]]

def check(name, a, b, c):
    torch.cuda.synchronize()
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    print(name, "inf" if error is None else error, flush=True)

"""
NUMBERS = """
found = torch.cuda.get_device_properties()
eight = {name: getattr(found, name) for name in dir(found) if name[0] != "_"} | {"multi_processor_count": 8}

def on_eight(a, b, copies_b, shares):
    all_of_them = torch.cuda.get_device_properties
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(**eight)
    try:
        c = torch.empty(a.shape[0], b.shape[1], device="cuda", dtype=a.dtype)
        launch = prepare_hopper_copying(a, b, c, config, copies_b=copies_b)
        replace(launch, arguments=(*launch.arguments[:-1], shares * launch.arguments[-1])).launch()
    finally:
        torch.cuda.get_device_properties = all_of_them
    return c

for name, matrices in LAYOUTS.items():
    for copies_b in (False, True):
        a, b = operands("cuda", *matrices)
        for call in range(2):
            a.normal_(), b.normal_()
            with PoisonedAllocations():
                c = hopper_copying_matmul(a, b, config, copies_b=copies_b)
            check(f"{name}, {call}", a, b, c)
        for shares in (1, 3):
            with PoisonedAllocations():
                c = on_eight(a, b, copies_b, shares)
            check(f"{name}, on eight in {shares}", a, b, c)
a, b = (each.to(torch.bfloat16) for each in (a, b))
check("bfloat16", a, b, hopper_copying_matmul(a, b, config))
"""
STREAMS = """
a, b = (torch.randn(shape, device="cuda").half() for shape in ((2047, 1027), (1027, 2049)))
streams = [torch.cuda.Stream() for _ in range(4)]
found = []
torch.cuda.synchronize()
for _ in range(20):
    for stream in streams:
        with torch.cuda.stream(stream):
            found.append(hopper_copying_matmul(a, b, config))
torch.cuda.synchronize()
print("differ", max(0.0, *(float(not torch.equal(found[0], each)) for each in found)))
check("the last", a, b, found[-1])
"""


#: What calls launch, again and again: from streams that overlap, and in graphs that are replayed on them.
CALLS = """
from flopwatch.kernels import triton_matmul

m, n, k = map(int, sys.argv[1].split("x"))
sets = [tuple(torch.randn(shape, device="cuda").half() for shape in ((m, k), (k, n))) for _ in range(4)]
streams = [torch.cuda.Stream() for _ in sets]
expected = [triton_matmul(a, b) for a, b in sets]
for (a, b), c in zip(sets, expected):
    check("once", a, b, c)
found, graphs = [], []
for _ in range(20):
    for stream, (a, b) in zip(streams, sets):
        with torch.cuda.stream(stream):
            found.append(triton_matmul(a, b))
torch.cuda.synchronize()
for stream, (a, b) in zip(streams, sets):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        graphs.append((graph, [triton_matmul(a, b) for _ in range(2)]))
for _ in range(20):
    for stream, (graph, _) in zip(streams, graphs):
        with torch.cuda.stream(stream):
            graph.replay()
torch.cuda.synchronize()
found += [each for pair in zip(*(results for _, results in graphs)) for each in pair]
print("differ", float(sum(not torch.equal(expected[place % 4], each) for place, each in enumerate(found))))
"""


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", ["4095x4097x515", "777x1235x2307", "777x1235x3001"])
def test_calls_that_overlap_and_graphs_give_the_same_bits(sizes: str) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is for the architecture sm_90")

    printed = in_a_process(PROGRAM.replace("config = CONFIGS[sys.argv[1]]", "") + CALLS, sizes)

    wrong = [line for line in printed if not float(re.findall(r"\S+$", line)[0]) <= 1.0]
    assert len(printed) == 5
    assert wrong == []
    assert printed[-1] == "differ 0.0"


@pytest.mark.gpu
@pytest.mark.parametrize("program", [NUMBERS, STREAMS], ids=["numbers", "streams"])
@pytest.mark.parametrize(
    "config",
    [
        *(WHOLE, SHARED, "192x128x64 s5 w3 c2/1 g8 whole", "64x128x64 s4 w1 c2/1 g8 whole x2"),
        *(SHORT_WIDE, SHORT_HIGH, SHORT_ONE, "short 128x128x64 s3 w8 x2 tma", "short 64x256x64 s5 w4 x1 tma"),
        *("short 96x128x64 s4 w4 x2 turned tma", "short 192x64x64 s6 w4 x1 turned tma", "short 64x32x128 s8 w4 x1 tma"),
    ],
)
def test_products_are_right(config: str, program: str) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is for the architecture sm_90")

    printed = in_a_process(PROGRAM + program, config)

    assert printed
    wrong = [line for line in printed if not float(re.findall(r"\S+$", line)[0]) <= 1.0]
    assert wrong == []
