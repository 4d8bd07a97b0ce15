from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flopwatch.kernels import hopper_attention_workspace, workspace
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, hopper_attention, prepare
from flopwatch.kernels.hopper_attention_softmax import marked, rescaled, rounded
from flopwatch.kernels.hopper_choice import _OF_LENGTHS
from flopwatch.kernels.reference import attention_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.kernels.hopper_attention import HopperAttentionConfig

    Normal = Callable[..., torch.Tensor]

#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints as JSON the spills, ptxas's
#: warnings, what was linked from libdevice, the order of what matters in the code, what packs weights where three
#: warpgroups share the registers, where products take their rows from with and without a held Q, how `round_pairs`
#: packs and `rescale_rows` rescales.
COMPILE = """
import json
import re
import torch
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, hopper_attention
from flopwatch.kernels.hopper_choice import _OF_LENGTHS
from flopwatch.static import kernel_facts, pretend_gpu
from flopwatch.static.nvdisasm import run_nvdisasm
from flopwatch.static.sass import _executable_sections, parse_listing
from tests.kernels.assembled import serialised
from tests.kernels.test_hopper_attention import rescale_rows, round_pairs

def empty(*shape):
    return torch.empty(shape, device="cuda", dtype=torch.float16)

def instructions(binary):
    code = b"".join(_executable_sections(binary))
    return parse_listing(run_nvdisasm(code, "--no-dataflow", "--binary", "SM90a"))

def order(binary):
    for instruction in instructions(binary):
        if instruction.opcode == "MUFU.EX2":
            yield "exp2"
        elif instruction.name == "HGMMA":
            yield "product"
        elif instruction.opcode.startswith("WARPGROUP.DEPBAR"):
            yield "wait " + instruction.operands.rpartition(" ")[2]
        elif instruction.name in ("VOTE", "BRA", "FMUL", "STSM", "UTMASTG", "DEPBAR"):
            yield instruction.name

def rows_from(config):
    with pretend_gpu("h200", tensors="meta") as recorder:
        q = empty(1, 4, 1024, 64)
        hopper_attention(q, q, q, config)
    (kernel,) = recorder.compiled.values()
    products = [each.operands for each in instructions(kernel.asm["cubin"]) if each.name == "HGMMA"]
    return ["memory" if operands.split(", ")[1].startswith("gdesc") else "registers" for operands in products]

def clearing(ptx):
    lines = [line.strip() for line in ptx.splitlines()]
    starts = ("ld.shared.v4", "st.shared.v4", "fence.proxy", "bar.sync", "mbarrier.arrive.shared")
    bare = [line.partition(" ")[2].strip() if line.startswith("@") else line for line in lines]
    return [line.split()[0] for line in bare if line.startswith(starts)]

def exchange(ptx):
    starts = {"mbarrier.try_wait": "wait", "bar.": "barrier", "mbarrier.arrive.shared::cta.b64": "arrive"}
    starts |= {"ld.volatile.global": "load", "st.global": "store"}
    starts |= {"atom.global.gpu.relaxed": "count", "atom.global.gpu.acq_rel": "end"}
    lines = [line.strip() for line in ptx.splitlines()]
    bare = [line.partition(" ")[2].strip() if line.startswith("@") else line for line in lines]
    return [what for line in bare for start, what in starts.items() if line.startswith(start)]

spills, stack, warnings, linked, orders, cleared, exchanged = 0, 0, set(), set(), {}, {}, {}
for head_dim, name in (
    (128, "128x128 s2 pp"), (128, "128x128 s2 q2 h128 pp"),
    (256, "128x64 s2"), (256, "128x64 s2 o2"), (64, "192x128 s2"),
):
    (config,) = [each for each in HOPPER_ATTENTION[head_dim] if each.name == name]
    with pretend_gpu("h200", tensors="meta") as recorder:
        k = empty(1, 2, 1024, head_dim)
        hopper_attention(empty(1, 4, 1024, head_dim), k, k, config, causal=True)
    (facts,) = kernel_facts(recorder)
    (kernel,) = recorder.compiled.values()
    spills, stack = spills + facts.spill_store_bytes, stack + facts.stack_bytes
    warnings |= set(serialised(kernel))
    linked |= set(re.findall(r"__nv_\\w+", kernel.asm["llir"]))
    orders[f"{head_dim}: {name}"] = list(order(kernel.asm["cubin"]))
for head_dim, causal, name in {
    (*of, name) for of, names in _OF_LENGTHS.items() for name in names.values() if name
}:
    (config,) = [each for each in HOPPER_ATTENTION[head_dim] if each.name == name]
    with pretend_gpu("h200", tensors="meta") as recorder:
        q = empty(2, 4, 1024, head_dim)
        lengths = torch.empty(2, device="cuda", dtype=torch.int32)
        hopper_attention(q, q, q, config, causal=causal, seq_lens=lengths)
    (facts,) = kernel_facts(recorder)
    (kernel,) = recorder.compiled.values()
    spills, stack = spills + facts.spill_store_bytes, stack + facts.stack_bytes
    warnings |= set(serialised(kernel))
    linked |= set(re.findall(r"__nv_\\w+", kernel.asm["llir"]))
    cleared[f"{head_dim} {causal} {name}"] = clearing(kernel.asm["ptx"])
    exchanged[f"{head_dim} {causal} {name}"] = exchange(kernel.asm["ptx"])
named = {each.name: each for each in HOPPER_ATTENTION[64]}
three = named["192x128 s2 pp"]
packed, pairs = {}, {}
for dtype in (torch.float16, torch.bfloat16):
    with pretend_gpu("h200", tensors="meta") as recorder:
        q = torch.empty(1, 4, 1024, 64, device="cuda", dtype=dtype)
        hopper_attention(q, q, q, three)
    (of_three,) = recorder.compiled.values()
    opcodes = [each.opcode for each in instructions(of_three.asm["cubin"])]
    packed[str(dtype)] = [opcode for opcode in opcodes if opcode.startswith(("F2FP", "PRMT"))]
    with pretend_gpu("h200", tensors="meta") as recorder:
        weights, halves = (torch.empty(256, device="cuda", dtype=each) for each in (torch.float32, dtype))
        round_pairs[(1,)](weights, halves, num_warps=4)
    (of_pairs,) = recorder.compiled.values()
    pairs[str(dtype)] = of_pairs.asm["ptx"]
with pretend_gpu("h200", tensors="meta") as recorder:
    rescale_rows[(1,)](empty(64, 16).float(), empty(64).float(), num_warps=4)
(of_rows,) = recorder.compiled.values()
print(json.dumps({
    "cleared": cleared, "exchanged": exchanged,
    "spills": spills, "stack": stack, "warnings": sorted(warnings), "linked": sorted(linked),
    "orders": orders,
    "packed": packed, "pairs": pairs, "rescaled": of_rows.asm["ptx"],
    "rows": {name: rows_from(named[name]) for name in ("192x128 s2", "192x128 s2 h16")},
}))
"""


@gluon.jit
def round_pairs(x_ptr, y_ptr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - Triton types them
    """Round 256 elements, of which a thread has two that are neighbours."""
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    place = gl.arange(0, 256, layout=layout)
    gl.store(y_ptr + place, rounded(gl.load(x_ptr + place), y_ptr.dtype.element_ty))


@gluon.jit
def rescale_rows(x_ptr, factor_ptr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - Triton types them
    """Rescale 64 rows of 16 elements, as those of a warpgroup are, of which a thread has 4 in either of 2 rows."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 16, 16])
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 16, layout=gl.SliceLayout(0, layout))
    place = gl.expand_dims(rows, 1) * 16 + gl.expand_dims(columns, 0)
    factors = marked(gl.load(factor_ptr + rows), True)  # noqa: FBT003 - Triton's
    gl.store(x_ptr + place, rescaled(gl.load(x_ptr + place), factors, True))  # noqa: FBT003 - as above


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    found = subprocess.run(
        [sys.executable, "-c", COMPILE], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr
    facts: dict[str, Any] = json.loads(found.stdout)
    return facts


def test_nothing_is_spilled_and_no_product_is_serialised(compiled: dict[str, Any]) -> None:
    assert (0, 0, []) == (compiled["spills"], compiled["stack"], compiled["warnings"])


def test_nothing_is_linked_from_libdevice(compiled: dict[str, Any]) -> None:
    assert compiled["linked"] == []


def loops(order: list[str]) -> list[tuple[list[str], list[str]]]:
    """Return of each warpgroup's loop what stands between the waits for its products, and what behind them."""
    begun = [place + 1 for place, what in enumerate(order) if what == "wait 0x1"]
    ends = [order.index("wait 0x0", place) for place in begun]
    return [(order[place:end], order[end + 1 :]) for place, end in zip(begun, ends, strict=True)]


@pytest.mark.parametrize(
    ("name", "exponentials", "groups"),
    [
        ("128: 128x128 s2 pp", 64, 2),
        ("128: 128x128 s2 q2 h128 pp", 64, 2),
        ("256: 128x64 s2", 32, 2),
        ("64: 192x128 s2", 64, 3),
    ],
)
def test_the_second_product_is_waited_for_behind_the_exponentials_of_the_next_block(
    compiled: dict[str, Any], name: str, exponentials: int, groups: int
) -> None:
    between = [[what for what in each if what in ("exp2", "product")] for each, _ in loops(compiled["orders"][name])]

    # A thread has half as many of a block's weights of 64 rows as that has keys, and 2 rows to rescale.
    assert [["exp2"] * (exponentials + 2)] * groups == between


@pytest.mark.parametrize(
    ("name", "elements"), [("128: 128x128 s2 pp", 64), ("128: 128x128 s2 q2 h128 pp", 64), ("256: 128x64 s2", 128)]
)
def test_a_warp_votes_before_that_wait_and_may_skip_what_rescales_the_output_behind_it(
    compiled: dict[str, Any], name: str, elements: int
) -> None:
    both = loops(compiled["orders"][name])

    assert [1, 1] == [between.count("VOTE") for between, _ in both]
    for _, behind in both:
        skipped = behind.index("FMUL")
        assert ["BRA"] + ["FMUL"] * elements == behind[skipped - 1 : skipped + elements]
        assert "FMUL" != behind[skipped + elements]


def test_half_an_output_is_written_once_the_other_half_has_left(compiled: dict[str, Any]) -> None:
    stores = [what for what in compiled["orders"]["256: 128x64 s2 o2"] if what in ("STSM", "UTMASTG", "DEPBAR")]

    # Of 64 rows, 128 columns: 64 elements a thread, 8 at a time, once what was there before has left.
    half = ["DEPBAR", *["STSM"] * 8, "UTMASTG"]
    assert [*half, *half, "DEPBAR"] * 2 == stores


#: All that calls with lengths take.
OF_LENGTHS = sorted(
    {f"{d} {causal} {name}" for (d, causal), names in _OF_LENGTHS.items() for name in names.values() if name}
)


@pytest.mark.parametrize("taken", OF_LENGTHS)
def test_the_compiler_moves_no_access_past_the_barriers_at_which_a_tile_is_told(
    compiled: dict[str, Any], taken: str
) -> None:
    groups = 3 if "192x" in taken else 2
    order = " ".join(compiled["exchanged"][taken])

    assert order.count("wait load load load barrier arrive") == 2 * groups
    assert order.count("load") == 6 * groups
    assert order.count("wait store store store barrier arrive") == 2
    assert order.count("store") == 2 * 3 + 2
    told, ended = order.rsplit("wait store store store barrier arrive", 1)
    assert told.count("count") == 1  # the next tile's number
    assert [what for what in ended.split() if what in {"count", "end", "store"}][:3] == ["end", "store", "store"]


@pytest.mark.parametrize("taken", OF_LENGTHS)
def test_all_threads_have_cleared_values_before_the_others_are_told(compiled: dict[str, Any], taken: str) -> None:
    """And their writes are made known to what multiplies; one warpgroup clears."""
    order = compiled["cleared"][taken]
    telling = ["st.shared.v4.b32", "fence.proxy.async.shared::cta;", "bar.sync", "mbarrier.arrive.shared::cta.b64"]

    assert sum(order[place : place + 4] == telling for place in range(len(order))) == 1


def test_three_warpgroups_rescale_without_a_vote(compiled: dict[str, Any]) -> None:
    assert [0, 0, 0] == [between.count("VOTE") for between, _ in loops(compiled["orders"]["64: 192x128 s2"])]


def test_a_warp_skips_its_rows_where_all_their_factors_are_one(compiled: dict[str, Any]) -> None:
    """PTX: either row's factor that is not 1 votes for all of the warp, without which both are -1, and that skips."""
    lines = [line.strip() for line in compiled["rescaled"].splitlines()]
    vote = lines.index("vote.sync.any.pred other, other, 0xFFFFFFFF;")
    first, second = (
        re.fullmatch(r"(?:@!other )?setp\.neu\.f32 other, (%r\d+), 0f3F800000;", line)
        for line in lines[vote - 2 : vote]
    )
    assert first is not None
    assert second is not None
    assert "@!other" in second[0]
    assert "@" not in first[0]
    marks = [
        re.fullmatch(r"selp\.f32 (%r\d+), (%r\d+), 0fBF800000, other;", line) for line in lines[vote + 1 : vote + 3]
    ]
    assert [first[1], second[1]] == [mark[2] for mark in marks if mark is not None]

    test = next(place for place, line in enumerate(lines) if line.startswith("setp.lt.f32 skipped"))
    of_first, of_second = (mark[1] for mark in marks if mark is not None)
    assert [f"setp.lt.f32 skipped, {of_first}, 0f00000000;", "@skipped bra.uni done;"] == lines[test : test + 2]
    products = [re.fullmatch(r"mul\.f32 (%r\d+), (%r\d+), (%r\d+);", line) for line in lines[test + 2 : test + 10]]
    assert all(each is not None and each[1] == each[2] for each in products)
    # A thread has 2 elements in a row, and 2 in one 8 below.
    assert [of_first, of_first, of_second, of_second] * 2 == [each[3] for each in products if each is not None]
    assert "done:" == lines[test + 10]


def test_what_is_held_of_q_is_not_read_again(compiled: dict[str, Any]) -> None:
    rows = compiled["rows"]

    # Of 64 columns in steps of 16, of the first block and in the loop, for each of three warpgroups; weights are in
    # registers, too: of 128 keys in steps of 16, in the loop and behind it.
    assert {"memory": 3 * 2 * 4, "registers": 3 * 2 * 8} == Counter(rows["192x128 s2"])
    assert {"memory": 3 * 2 * 3, "registers": 3 * 2 * (8 + 1)} == Counter(rows["192x128 s2 h16"])


def test_where_two_loops_mask_no_q_is_held(cuda: str) -> None:
    (held,) = [config for config in HOPPER_ATTENTION[64] if config.name == "192x128 s2 h16"]
    q, k = (torch.empty(1, 2, length, 64, device=cuda, dtype=torch.float16) for length in (1000, 1001))

    assert {(False, True): 16, (True, True): 16, (False, False): 16, (True, False): 0} == {
        (causal, aligned): prepare(q, of, of, q, held, causal=causal).constants["Q_HELD"]
        for causal in (False, True)
        for aligned, of in ((True, q), (False, k))
    }


@pytest.mark.parametrize(("dtype", "kind"), [("float16", "F16"), ("bfloat16", "BF16")])
def test_weights_are_rounded_two_by_two_and_not_swapped_afterwards(
    compiled: dict[str, Any], dtype: str, kind: str
) -> None:
    # Of each of three warpgroups: 32 pairs of the first block, 32 in the loop, and 16 of the output.
    assert [f"F2FP.{kind}.F32.PACK_AB"] * 3 * (32 + 32 + 16) == compiled["packed"][f"torch.{dtype}"]


@pytest.mark.parametrize(("dtype", "kind"), [("float16", "f16x2"), ("bfloat16", "bf16x2")])
def test_of_a_pair_the_first_is_the_lower_half(compiled: dict[str, Any], dtype: str, kind: str) -> None:
    """PTX's ``cvt.rn.f16x2.f32 d, a, b`` puts a into the upper half of d, which is the second element in memory."""
    ptx = compiled["pairs"][f"torch.{dtype}"]
    loaded = re.search(r"ld\.global\.v2\.b32 \{ (%r\d+), (%r\d+) \}", ptx)
    (converted,) = re.findall(r"cvt\.rn\.(\w+)\.f32 (%r\d+), (%r\d+), (%r\d+);", ptx)
    stored = re.search(r"st\.global\.b32 \[[^]]+\], \{ (%r\d+) \}", ptx)

    assert loaded is not None
    assert stored is not None
    assert converted == (kind, stored[1], loaded[2], loaded[1])


def test_the_default_stream_is_not_asked_whether_it_is_captured(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper_attention_workspace, "_kept", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", None)
    arranged = hopper_attention_workspace.arrange(132, torch.empty(0, device=cuda).device)

    assert arranged(0, 1, 2, 3, 4, 5) == arranged(0, 1, 2, 3, 4, 5)


def test_each_stream_has_counters_of_its_own_and_so_has_each_capture(
    cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "_workspaces", {})
    monkeypatch.setattr(hopper_attention_workspace, "_kept", {})
    arranged = hopper_attention_workspace.arrange(132, torch.empty(0, device=cuda).device)

    found = {stream: arranged(stream, 1, 2, 3, 4, 5) for stream in (7, 8, 7)}
    again, other = arranged(7, 1, 2, 3, 4, 5), arranged(8, 1, 2, 3, 4, 5)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    captured = arranged(7, 1, 2, 3, 4, 5)

    assert again == found[7]
    assert other == found[8]
    for pointers, held in (again, other, captured):
        assert isinstance(held, workspace.Workspace)
        assert pointers == (1, 2, 3, 5, 4, held.flags.data_ptr(), held.parts.data_ptr())
        assert held.parts.numel() == 4 * 132
        assert held.flags.tolist() == [0, 0], "of tiles, and of programs that have ended"
    assert len({pointers[-2:] for pointers, _ in (again, other, captured)}) == 3


def test_lengths_have_an_output_of_their_own_and_hold_no_q_in_three_warpgroups(cuda: str) -> None:
    seq_lens = torch.zeros(2, dtype=torch.int32, device=cuda)

    def constants(head_dim: int, name: str, lengths: torch.Tensor | None) -> dict[str, Any]:
        (config,) = [each for each in HOPPER_ATTENTION[head_dim] if each.name == name]
        q = torch.empty(2, 2, 512, head_dim, device=cuda, dtype=torch.float16)
        return prepare(q, q, q, q, config, causal=True, seq_lens=lengths).constants

    for lengths, own_out, held, whole in ((None, False, 16, True), (seq_lens, True, 0, False)):
        assert own_out == constants(256, "128x64 s2", lengths)["OWN_OUT"]
        assert held == constants(64, "192x128 s2 h16", lengths)["Q_HELD"]
        assert whole == constants(64, "192x128 s2 h16", lengths)["WHOLE"]
        assert constants(64, "128x128 s3 q2 h64 pp", lengths)["Q_HELD"] == 64


def test_what_tma_cannot_read_is_refused(cuda: str) -> None:
    q = torch.empty(1, 2, 64, 64, device=cuda, dtype=torch.float16)
    odd = torch.empty(1, 2, 64, 65, device=cuda, dtype=torch.float16)[..., :64]
    wrong = {
        "k of strides": (q, odd, q),
        "v is of torch.bfloat16": (q, q, q.bfloat16()),
        "not (B, H, S, D)": (q[0], q, q),
        "head_dim=48": (q[..., :48], q[..., :48], q[..., :48]),
        "2 heads cannot share 3": (q, *[torch.empty(1, 3, 64, 64, device=cuda, dtype=torch.float16)] * 2),
        "do not match": (q, q, q[:, :, :32]),
    }

    for text, operands in wrong.items():
        with pytest.raises(ValueError, match=r"why: blocks are loaded by TMA") as caught:
            hopper_attention(operands[0], operands[1], operands[2], HOPPER_ATTENTION[64][0])
        assert text in str(caught.value)
    with pytest.raises(ValueError, match="negative"):
        hopper_attention(q, q, q, HOPPER_ATTENTION[64][0], sm_scale=-1.0)
    with pytest.raises(ValueError, match=r"seq_lens must be between 0 and 64, got 65"):
        hopper_attention(q, q, q, HOPPER_ATTENTION[64][0], seq_lens=torch.tensor([65], dtype=torch.int32, device=cuda))


@pytest.mark.parametrize("head_dim", HOPPER_ATTENTION)
def test_every_configuration_fits_the_shared_memory_of_a_program(head_dim: int, cuda: str) -> None:
    q = torch.empty(1, 2, 256, head_dim, device=cuda, dtype=torch.float16)
    for config in HOPPER_ATTENTION[head_dim]:
        q_desc, k_desc, *_ = prepare(q, q, q, q, config, causal=True).arguments
        rows = config.groups * (config.q_stages + config.own_out / config.out_parts) * q_desc.block_shape[2]
        keys = 2 * config.stages * k_desc.block_shape[2]

        assert config.resident * ((rows + keys) * head_dim * 2 + 2048) <= 232448


# On a GPU -------------------------------------------------------------------------------------------------------------

#: Batch, heads, heads of keys, queries, keys: odd ones, several turns of 132 programs, shared heads, more of either.
SHAPES = [
    (1, 2, 2, 256, 256),
    (2, 3, 3, 200, 200),
    (1, 40, 40, 1024, 1024),
    (1, 8, 2, 333, 333),
    (2, 4, 1, 77, 500),
    (1, 4, 4, 500, 77),
    (1, 4, 2, 192, 448),
    (1, 2, 2, 448, 192),
]
#: Batch, heads, heads of keys, positions, and how many of each batch entry count.
LENGTHS = [
    (4, 3, 3, 333, (0, 1, 200, 333)),
    (3, 8, 2, 1024, (1024, 129, 640)),
    (2, 40, 40, 1000, (999, 64)),
    (6, 2, 1, 256, (256, 128, 64, 32, 192, 255)),
    (2, 24, 24, 1536, (1500, 1)),
]
#: One of these a process, which is killed when it hangs: a wrong barrier costs this and not the session.
DEADLINE_S = 60
NUMBERS = """
import sys
import torch
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, hopper_attention
sys.path.insert(0, {folder!r})
from test_hopper_attention import check_on_gpu
check_on_gpu(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("head_dim", "place"), [(d, place) for d in HOPPER_ATTENTION for place in range(len(HOPPER_ATTENTION[d]))]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_configuration_computes_attention(head_dim: int, place: int, dtype: str) -> None:
    code = NUMBERS.format(folder=os.path.dirname(__file__))  # noqa: PTH120 - of this file

    found = subprocess.run(
        [sys.executable, "-c", code, str(head_dim), str(place), dtype],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"


def check_on_gpu(head_dim: int, place: int, dtype_name: str) -> None:
    """Compare one configuration with float64 on all shapes, twice each, into poisoned outputs."""
    config, dtype = HOPPER_ATTENTION[head_dim][place], getattr(torch, dtype_name)
    eps = torch.finfo(dtype).eps
    generator = torch.Generator(device="cuda")
    print("seed", generator.seed())  # noqa: T201 - shown with a failure
    for shape, causal in product(LENGTHS, (False, True)):
        check_lengths_on_gpu(shape, head_dim, config, dtype, causal=causal)
    for (batch, heads, key_heads, queries, keys), causal, size in product(SHAPES, (False, True), (1.0, 200.0)):
        draws = [(heads, queries), (key_heads, keys), (key_heads, keys)]
        # (B, S, H, D) in memory, as projections leave it.
        q, k, v = (
            torch.randn(batch, n, h, head_dim, device="cuda", generator=generator).to(dtype).transpose(1, 2)
            for h, n in draws
        )
        q = q * size  # scores up to 1e3
        print((batch, heads, key_heads, queries, keys), causal, size, flush=True)  # noqa: T201 - names what hangs
        expected = attention_reference(q, k, v, causal=causal)
        for _ in range(2):
            out = torch.full((batch, heads, queries, head_dim), float("nan"), device="cuda", dtype=dtype)
            found = hopper_attention(q, k, v, config, causal=causal, out=out).double()
            error = float((found - expected).abs().max() / expected.abs().max())
            # The weights are rounded once, the result once; of scores of 1e3 the exponent is rounded to 2**-14 besides.
            assert error <= 4 * eps + (2e-3 if size > 1 else 0.0), f"error {error:.1e}"


def check_lengths_on_gpu(
    shape: tuple[int, int, int, int, tuple[int, ...]],
    head_dim: int,
    config: HopperAttentionConfig,
    dtype: torch.dtype,
    *,
    causal: bool,
) -> None:
    """Compare with float64 twice, where what lies past a length is NaN, into poisoned outputs."""
    batch, heads, key_heads, positions, lengths = shape
    print(shape, causal, flush=True)  # noqa: T201 - names what hangs
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    drawn = [torch.randn(batch, h, positions, head_dim, device="cuda").to(dtype) for h in (heads, key_heads, key_heads)]
    expected = attention_reference(drawn[0], drawn[1], drawn[2], causal=causal, seq_lens=seq_lens)
    for tensor, (entry, length) in product(drawn, enumerate(lengths)):
        tensor[entry, :, length:] = float("nan")
    q, k, v = drawn
    for _ in range(2):
        out = torch.full((batch, heads, positions, head_dim), float("nan"), device="cuda", dtype=dtype)
        found = hopper_attention(q, k, v, config, causal=causal, seq_lens=seq_lens, out=out).double()
        error = float((found - expected).abs().max() / expected.abs().max())
        assert error <= 4 * torch.finfo(dtype).eps, f"error {error:.1e}"
        assert all(not found[entry, :, length:].any() for entry, length in enumerate(lengths))
