"""Which kernel a call takes: what a table says, and the plain one otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU

from flopwatch.compare.result import Speed
from flopwatch.kernels import routes
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION
from flopwatch.kernels.hopper_choice import product_config
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS
from flopwatch.kernels.hopper_matmul import CONFIGS
from flopwatch.kernels.hopper_short import SHORT, ShortConfig
from flopwatch.kernels.known import PLAIN, TABLES, known_choices
from flopwatch.kernels.thin_fp8 import THIN_FP8
from flopwatch.kernels.thin_matmul import THIN
from flopwatch.model import Case, Choice, to_json
from flopwatch.tune.table import Entry, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
GPU = "NVIDIA H200"
HOPPER, THIN_NAME = next(iter(CONFIGS)), next(iter(THIN))
ATTENTION = HOPPER_ATTENTION[64][0].name
#: With columns of two instructions, and with such rows.
WIDE, HIGH = (
    next(name for name, config in SHORT.items() if config.more and config.turned is turned) for turned in (False, True)
)
APART = next(name for name, config in SHORT.items() if config.row_step > 1)
#: A table's choices: kernel, configuration and key.
CHOICES = (
    ("hopper_matmul_kernel", HOPPER, "1536, 1536, 1536, float16, float16, float16"),
    ("hopper_matmul_kernel", next(name for name in CONFIGS if "wave" in name), "1544, 1536, 1536" + ", float16" * 3),
    ("hopper_matmul_kernel", HOPPER, "1536, 1536, 1024, float16, float16, float16, by columns"),
    ("hopper_matmul_kernel", "gone", "64, 64, 64, float16, float16, float16"),
    ("hopper_matmul_kernel", HOPPER, "64, 100, 64, float16, float16, float16"),
    ("hopper_short_kernel", next(iter(SHORT)), "768, 768, 1536, float16, float16, float16"),
    ("hopper_short_kernel", "gone", "768, 768, 512, float16, float16, float16"),
    ("hopper_short_kernel", WIDE, "768, 768, 896, float16, float16, float16"),
    ("hopper_short_kernel", HIGH, "768, 768, 1024, float16, float16, float16"),
    ("a_kernel_that_is_gone", "gone", "768, 768, 640, float16, float16, float16"),
    ("hopper_short_kernel", APART, "1004, 1000, 1000, float16, float16, float16"),
    ("thin_matmul_kernel", THIN_NAME, "16, 1536, 1536, float16, float16, float16"),
    ("thin_matmul_kernel", THIN_NAME, "128, 64, 64, float16, float16, float16"),
    ("hopper_attention_kernel", ATTENTION, "2, 4, 4, 256, 256, 64, True, float16, float16"),
    ("hopper_attention_kernel", ATTENTION, "2, 4, 4, 640, 640, 64, True, float16, float16"),
)


def write_table(folder: Path, choices: Sequence[tuple[str, str, str]] = CHOICES, gpu: str = GPU) -> Path:
    entries = [
        Entry(
            case=Case(suite="Matmul", values=(key,)),
            choices=(Choice(kernel=kernel, config=config, key=key),),
            listed=False,
            seconds=1e-5,
            instead_of="plain",
            gain=Speed(estimate=0.5, lower=0.4, upper=0.6, pairs=24),
            first_pass=None,
            date="2026-11-22",
            gpu=gpu,
            versions={"triton": "3.6.0"},
            command="none",
        )
        for kernel, config, key in choices
    ]
    (folder / "routes.json").write_bytes(to_json(Table(entries=tuple(entries))))
    return folder


#: Runs in a process of its own, in which kernels are not interpreted: prints what calls would launch.
PRETENDED = """
import sys
from pathlib import Path
import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from flopwatch.kernels import flash_attention, routes, triton_matmul
from flopwatch.static import kernel_facts, pretend_gpu

routes.FOLDER = Path(sys.argv[1])

def half(*shape, dtype=torch.float16):
    return torch.empty(shape, device="cuda", dtype=dtype)

CALLS = {
    "whole": lambda: triton_matmul(half(1536, 1536), half(1536, 1536)),
    "shared": lambda: triton_matmul(half(1544, 1536), half(1536, 1536)),
    "short": lambda: triton_matmul(half(768, 1536), half(1536, 768)),
    "short that is gone": lambda: triton_matmul(half(768, 512), half(512, 768)),
    "wide": lambda: triton_matmul(half(768, 896), half(896, 768)),
    "high": lambda: triton_matmul(half(768, 1024), half(1024, 768)),
    "kernel that is gone": lambda: triton_matmul(half(768, 640), half(640, 768)),
    "thin": lambda: triton_matmul(half(16, 1536), half(1536, 1536)),
    "attention": lambda: flash_attention(*[half(2, 4, 256, 64)] * 3, causal=True),
    "single": lambda: triton_matmul(half(1536, 1536, dtype=torch.float32), half(1536, 1536, dtype=torch.float32)),
    "another size": lambda: triton_matmul(half(2048, 1536), half(1536, 4096)),
    "another dtype": lambda: triton_matmul(*[half(1536, 1536, dtype=torch.bfloat16)] * 2),
    "A by columns": lambda: triton_matmul(half(1536, 1536).T, half(1536, 1536)),
    "B by columns, in a table": lambda: triton_matmul(half(1536, 1024), half(1536, 1024).T),
    "by columns in a table, by rows": lambda: triton_matmul(half(1536, 1024), half(1024, 1536)),
    "B by columns, in a table and misaligned": lambda: triton_matmul(
        half(1536, 1024), half(1536 * 1024 + 1)[1:].view(1536, 1024).T
    ),
    "B by wider columns": lambda: triton_matmul(half(1536, 1024), half(1536, 1032)[:, :1024].T),
    "B by columns": lambda: triton_matmul(half(1536, 1536), half(1536, 1536).T),
    "rows that no step divides": lambda: triton_matmul(half(1004, 1000), half(1000, 1000)),
    "a short one": lambda: triton_matmul(half(768, 768), half(768, 768)),
    "a short one by columns": lambda: triton_matmul(half(768, 768), half(768, 768).T),
    "few rows": lambda: triton_matmul(half(8, 2048), half(2048, 2048)),
    "a small one": lambda: triton_matmul(half(128, 128), half(128, 128)),
    "few rows of many columns": lambda: triton_matmul(half(8, 4096), half(4096, 8192)),
    "one row, expanded": lambda: triton_matmul(half(1, 4096).expand(4096, 4096), half(4096, 4096)),
    "one head, expanded": lambda: flash_attention(*[half(33, 1, 256, 64).expand(33, 4, 256, 64)] * 3, causal=True),
    "no tuning": lambda: triton_matmul(half(1536, 1536), half(1536, 1536), use_autotune=False),
    "blocks": lambda: triton_matmul(half(1536, 1536), half(1536, 1536), block_m=64),
    "a configuration that is gone": lambda: triton_matmul(half(64, 64), half(64, 64)),
    "rows of 200 bytes": lambda: triton_matmul(half(64, 64), half(64, 100)),
    "too many rows": lambda: triton_matmul(half(128, 64), half(64, 64)),
    "attention of lengths": lambda: flash_attention(
        *[half(8, 8, 1152, 64)] * 3, causal=True, seq_lens=half(8, dtype=torch.int32)
    ),
    "short lengths": lambda: flash_attention(
        *[half(2, 4, 256, 64)] * 3, causal=True, seq_lens=half(2, dtype=torch.int32)
    ),
    "a negative scale": lambda: flash_attention(*[half(2, 4, 256, 64)] * 3, causal=True, sm_scale=-1.0),
    "full attention": lambda: flash_attention(*[half(2, 4, 256, 64)] * 3),
    "attention of another batch": lambda: flash_attention(*[half(33, 4, 256, 64)] * 3, causal=True),
    "twice the length": lambda: flash_attention(*[half(33, 4, 512, 64)] * 3, causal=True),
    "many times the length": lambda: flash_attention(*[half(33, 4, 2048, 64)] * 3, causal=True),
    "few tiles": lambda: flash_attention(*[half(1, 4, 256, 64)] * 3, causal=True),
    "transposed": lambda: flash_attention(*[half(33, 256, 4, 64).transpose(1, 2)] * 3, causal=True),
}
for name in sys.argv[3:]:
    with pretend_gpu(sys.argv[2]) as recorder:
        if COMPILES:
            CALLS[name]()
            launched = [fact.kernel for fact in kernel_facts(recorder)]
        else:
            launched, run, tune = [], JITFunction.run, Autotuner.run
            JITFunction.run = lambda self, *_, **__: launched.append(self.__name__)
            Autotuner.run = lambda self, *_, **__: launched.append(self.base_fn.__name__)
            CALLS[name]()
            JITFunction.run, Autotuner.run = run, tune
    print(name, *launched, sep="|")
"""
TAKEN = {
    "whole": "hopper_matmul_kernel",
    "shared": "hopper_matmul_kernel",
    "B by columns, in a table": "hopper_matmul_kernel",
    "short": "hopper_short_kernel",
    "wide": "hopper_short_kernel",
    "high": "hopper_short_kernel",
    "thin": "thin_matmul_kernel",
    "attention": "hopper_attention_kernel",
    "attention of lengths": "hopper_attention_kernel",
    "single": "hopper_matmul_kernel",
}
GONE = ("short that is gone", "kernel that is gone")
#: What no table has, and a rule has for Hopper: products, and attention of lengths that are near.
RULED = {
    "another size": "hopper_matmul_kernel",
    **dict.fromkeys(("another dtype", "B by columns", "a short one", "a short one by columns"), "hopper_short_kernel"),
    **dict.fromkeys(("rows that no step divides", *GONE), "hopper_short_kernel"),
    **dict.fromkeys(("by columns in a table, by rows", "B by wider columns"), "hopper_short_kernel"),
    "B by columns, in a table and misaligned": "hopper_copying_short_kernel",
    "few rows": "thin_matmul_kernel",
    **dict.fromkeys(("attention of another batch", "twice the length", "transposed"), "hopper_attention_kernel"),
}
PLAIN_PRODUCTS = (
    *("A by columns", "no tuning", "blocks", "a small one", "one row, expanded"),
    *("a configuration that is gone", "rows of 200 bytes", "too many rows", "few rows of many columns"),
)
PLAIN_ATTENTION = (
    *("short lengths", "a negative scale", "full attention", "many times the length", "few tiles"),
    "one head, expanded",
)


def pretended(
    folder: Path,
    *names: str,
    device: str = "h200",
    compiles: bool = False,
    environment: dict[str, str] | None = None,
) -> dict[str, str]:
    """Return the kernels that calls would launch on a device."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", f"COMPILES = {compiles}\n{PRETENDED}", str(folder), device, *names],
        env=inherited | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (line.partition("|") for line in done.stdout.splitlines())
    return {name: kernels for name, _, kernels in lines}


def test_a_table_s_kernel_would_be_launched_on_its_gpu(tmp_path: Path) -> None:
    assert pretended(write_table(tmp_path), *TAKEN) == TAKEN


def test_a_table_s_kernel_is_what_is_compiled_where_there_is_no_gpu(tmp_path: Path) -> None:
    assert pretended(write_table(tmp_path), "thin", compiles=True) == {"thin": "thin_matmul_kernel"}


def test_what_is_not_as_it_was_measured_takes_the_plain_kernel(tmp_path: Path) -> None:
    found = pretended(write_table(tmp_path), *PLAIN_PRODUCTS, *PLAIN_ATTENTION)

    assert found == dict.fromkeys(PLAIN_PRODUCTS, "matmul_kernel") | dict.fromkeys(PLAIN_ATTENTION, "attention_kernel")


def test_what_no_table_has_takes_a_kernel_for_hopper_by_a_rule_where_it_is_fast(tmp_path: Path) -> None:
    assert pretended(write_table(tmp_path), *RULED) == RULED


def test_a_rule_asks_for_the_capability_and_not_for_the_name(tmp_path: Path) -> None:
    taken = {
        "another size": "hopper_matmul_kernel",
        "attention of another batch": "hopper_attention_kernel",
        "thin": "matmul_kernel",
    }
    assert pretended(write_table(tmp_path), *taken, device="h100") == taken


def test_where_the_plain_kernel_won_it_is_taken(tmp_path: Path) -> None:
    choices = (
        (PLAIN, PLAIN, "1536, 1536, 1536, float16, float16, float16"),
        (PLAIN, PLAIN, "2, 4, 4, 256, 256, 64, True, float16, float16"),
        ("hopper_attention_kernel", ATTENTION, "2, 4, 4, 512, 512, 64, True, float16, float16"),
    )
    found = pretended(write_table(tmp_path, choices), "whole", "attention", "twice the length")

    assert found == {
        "whole": "matmul_kernel",
        "attention": "attention_kernel",
        "twice the length": "hopper_attention_kernel",
    }


def test_kernels_for_hopper_are_not_taken_elsewhere_whatever_a_table_says(tmp_path: Path) -> None:
    folder = write_table(tmp_path, gpu="NVIDIA A100-SXM4-80GB")

    assert pretended(folder, "whole", "attention", "thin", device="a100") == {
        "whole": "matmul_kernel",
        "attention": "attention_kernel",
        "thin": "thin_matmul_kernel",
    }


@pytest.mark.parametrize("setting", [("FLOPWATCH_AUTOTUNE", "all"), ("FLOPWATCH_KERNELS", "plain")])
def test_who_asks_for_the_plain_kernel_gets_it(tmp_path: Path, setting: tuple[str, str]) -> None:
    found = pretended(write_table(tmp_path), "whole", "attention", "another size", environment=dict([setting]))

    assert found == {"whole": "matmul_kernel", "attention": "attention_kernel", "another size": "matmul_kernel"}


#: Public functions in another kernel: twice through Triton's dispatch, and again past it.
KEPT = """
import ctypes, sys
from pathlib import Path
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import flash_attention, launch as launch_module, routes, triton_matmul

routes.FOLDER = Path(sys.argv[1])
attention, matmul = (sys.modules[f"flopwatch.kernels.{name}"] for name in ("attention", "matmul"))
with stand_in.stand_in_gpu() as library:
    count, encoded = (ctypes.c_int.in_dll(library, name) for name in ("stand_in_count", "stand_in_encoded"))
    values = (ctypes.c_ulonglong * 64).in_dll(library, "stand_in_values")
    sizes = (ctypes.c_int * 64).in_dll(library, "stand_in_bytes")
    launch = (ctypes.c_ulonglong * 8).in_dll(library, "stand_in_launch")
    made = {}  # what a call allocates lies where it lay before
    empty = torch.empty
    def empty_there(*shape, device=None, dtype=None):
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        return made.setdefault((tuple(sizes), dtype), empty(*shape, device=device, dtype=dtype))
    torch.empty = empty_there
    launch_module.empty_on_gpu = lambda shape, _strides, dtype: empty_there(shape, device="cuda", dtype=dtype)
    a, b = stand_in.tensor(1544, 1536), stand_in.tensor(1536, 1536)
    c, d = stand_in.tensor(768, 1536), stand_in.tensor(1536, 768)
    e, f = stand_in.tensor(768, 1024), stand_in.tensor(1024, 768)
    g, h = stand_in.tensor(768, 896), stand_in.tensor(896, 768)
    q = stand_in.tensor(2, 4, 256, 64)
    long = stand_in.tensor(8, 8, 1152, 64)
    lengths = torch.tensor([1152, 100] * 4, dtype=torch.int32).as_subclass(stand_in.StandInTensor)
    attentions = [8, *[4] * 4, *[8] * 4] * 4
    products = [8, 4, 4, 8, 8] * 3 + [8, 8]  # bytes: three maps, each with two sizes and two strides, and a workspace
    for name, module, call, maps, given in (
        ("whole", matmul, lambda: triton_matmul(b, b), 3, products),
        ("shared", matmul, lambda: triton_matmul(a, b), 3, products),
        ("short", matmul, lambda: triton_matmul(c, d), 3, [8, 4, 4, 8, 8] * 3 + [4] * 3),
        ("wide", matmul, lambda: triton_matmul(g, h), 5, [8, 4, 4, 8, 8] * 5 + [4] * 3),
        ("high", matmul, lambda: triton_matmul(e, f), 5, [8, 4, 4, 8, 8] * 5 + [4] * 3),
        ("thin", matmul, lambda: triton_matmul(a[:16].as_subclass(stand_in.StandInTensor), b), 0, [8] * 5 + [4] * 3),
        ("attention", attention, lambda: flash_attention(q, q, q, causal=True), 4, attentions),
        ("lengths", attention, lambda: flash_attention(long, long, long, True, None, lengths), 4, [*attentions, 8]),
    ):
        seen = []
        call()
        for step in ("alone", "kept", "again"):
            if step == "alone":
                module._launches.forget()
            before, count.value, sizes[: len(given)] = encoded.value, len(given), given
            call()
            count.value = 0
            seen.append((encoded.value - before, len(module._launches), tuple(values[: len(given)]), *launch[1:]))
        assert [one[1:] for one in seen] == [seen[0][1:]] * 3, (name, seen)
        print(name, seen[0][0] >= maps, seen[2][0], seen[0][1])
"""


@pytest.mark.skipif(HAS_GPU, reason="the stand-in for libcuda cannot lie beside the real one")
@pytest.mark.skipif(compiler() is None, reason="no C compiler to build the stand-in for libcuda")
def test_a_later_call_launches_the_same_past_tritons_dispatch_and_encodes_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", KEPT, str(write_table(tmp_path, gpu="stand-in"))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "whole True 0 1",
        "shared True 0 1",
        "short True 0 1",
        "wide True 0 1",
        "high True 0 1",
        "thin True 0 1",
        "attention True 0 1",
        "lengths True 0 1",
    ]


def test_what_is_interpreted_is_the_plain_kernel(cuda: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if HAS_GPU:
        pytest.skip("nothing is interpreted beside a GPU")
    key = "16, 32, 48, float16, float16, float16"
    monkeypatch.setattr(routes, "FOLDER", write_table(tmp_path, (("thin_matmul_kernel", THIN_NAME, key),)))
    a, b = torch.randn(16, 48, device=cuda).half(), torch.randn(48, 32, device=cuda).half()

    assert routes.known_routes(routes.PRODUCTS, tmp_path) == {(GPU, key): ("thin_matmul_kernel", THIN_NAME)}
    assert routes.routed_product(a, b, torch.empty(16, 32, device=cuda).half()) is None


def test_the_rule_is_told_how_operands_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of A that follow each other, and others; B by rows, and by columns, which begin with lines of memory."""
    monkeypatch.setattr(routes, "_is_hopper", lambda _tensor: True)
    monkeypatch.setattr(routes, "_processors", lambda _tensor: 132)

    def ruled(a: torch.Tensor, b: torch.Tensor) -> ShortConfig:
        config = routes._ruled(a, b)
        assert isinstance(config, ShortConfig)
        return config

    a, gaps = (torch.empty(1000, width, dtype=torch.float16)[:, :1000] for width in (1000, 1008))
    assert [ruled(each, a).row_step for each in (a, gaps)] == [8, 1]
    a, b = torch.empty(512, 1024, dtype=torch.float16), torch.empty(1000, 1024, dtype=torch.float16)
    assert ruled(a, b.T) == product_config(512, 1000, 1024, processors=132, by_columns=True)
    assert ruled(a, b.T.contiguous()) == product_config(512, 1000, 1024, processors=132)
    assert ruled(a, b.T) != ruled(a, b.T.contiguous())


def test_all_that_tables_have_is_in_the_lists() -> None:
    named = {
        "hopper_matmul_kernel": {*CONFIGS, *FP8_CONFIGS[False]},
        "hopper_short_kernel": {*SHORT},
        "thin_matmul_kernel": {*THIN, *THIN_FP8[False]},
    }
    for kernel, config in routes.known_routes((*routes.PRODUCTS, *routes.FP8_PRODUCTS), TABLES).values():
        assert config in named[kernel]
    for (_, key), name in known_choices("hopper_attention_kernel", TABLES).items():
        head_dim = int(key.split(", ")[5])
        assert name in {config.name for config in HOPPER_ATTENTION[head_dim]}


#: What a call of a public function may cost the host after the first, where torch.matmul takes 10.7 us, or as much more
#: as that takes on the host at hand: hosts of H200s were seen to take 10.7, 12 and 15.0 us for it (to 2026-11-23).
HOST_US = 12.0
OF_TORCH = HOST_US / 10.7
#: A hang costs this: nine kernels are compiled, and traced by torch.compile.
DEADLINE_S = 240.0
#: Runs in a process of its own, since a kernel whose barriers are wrong hangs. Prints of each call its kernel; the
#: errors in eps of its first result and of one past Triton's dispatch, both into poisoned memory; how many of that one
#: and of what was captured were past it; whether all, and what was compiled, have the same bits; and what a later call
#: costs the host, in units of torch.matmul's and in us.
ON_GPU = """
import sys, time
from pathlib import Path
import torch
from flopwatch.kernels import flash_attention, launch, routes, triton_matmul
from flopwatch.kernels.launch import Launches
from flopwatch.kernels.reference import attention_reference, matmul_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

routes.FOLDER = Path(sys.argv[1])
attention, matmul = (sys.modules[f"flopwatch.kernels.{name}"] for name in ("attention", "matmul"))
a, b, c = (torch.randn(rows, 1536, device="cuda").half() for rows in (1544, 1536, 16))
e, f = (torch.randn(shape, device="cuda").half() for shape in ((768, 1536), (1536, 768)))
g, h = (torch.randn(768, depth, device="cuda").half() for depth in (896, 1024))
i, j = (each.T.contiguous() for each in (g, h))
m, n = (torch.randn(1536, 1024, device="cuda").half() for _ in range(2))
q, k, v = (torch.randn(2, 4, 256, 64, device="cuda").half() for _ in range(3))
long_q, long_k, long_v = (torch.randn(8, 8, 1152, 64, device="cuda").half() for _ in range(3))
lengths = torch.tensor([1100, 0] * 4, dtype=torch.int32, device="cuda")
small = torch.randn(256, 256, device="cuda").half()
multiply = lambda: torch.matmul(small, small)
found = []
for name, module, call, reference in (
    ("whole", matmul, lambda: triton_matmul(b, b), lambda: matmul_reference(b, b)),
    ("shared", matmul, lambda: triton_matmul(a, b), lambda: matmul_reference(a, b)),
    ("B by columns, in a table", matmul, lambda: triton_matmul(m, n.T), lambda: matmul_reference(m, n.T)),
    ("short", matmul, lambda: triton_matmul(e, f), lambda: matmul_reference(e, f)),
    ("wide", matmul, lambda: triton_matmul(g, i), lambda: matmul_reference(g, i)),
    ("high", matmul, lambda: triton_matmul(h, j), lambda: matmul_reference(h, j)),
    ("thin", matmul, lambda: triton_matmul(c, b), lambda: matmul_reference(c, b)),
    (
        "attention",
        attention,
        lambda: flash_attention(q, k, v, causal=True),
        lambda: attention_reference(q, k, v, causal=True),
    ),
    (
        "attention of lengths",
        attention,
        lambda: flash_attention(long_q, long_k, long_v, causal=True, seq_lens=lengths),
        lambda: attention_reference(long_q, long_k, long_v, causal=True, seq_lens=lengths),
    ),
):
    expected = reference()
    with PoisonedAllocations():
        first = call()
    call()  # kept, which it is not inside a mode of torch
    launched = list(module._launches._kept.values())[-1].function.__name__
    past, empty, launch_again = [], launch.empty_on_gpu, Launches.again
    launch.empty_on_gpu = lambda *asked: empty(*asked).fill_(float("nan"))
    Launches.again = lambda *asked: past.append(launch_again(*asked)) or past[-1]
    again = call()
    launch.empty_on_gpu = empty
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    Launches.again = launch_again
    past = [one for one in past if one is not None]
    for _ in range(3):
        captured.fill_(float("nan"))
        graph.replay()
    best_s = dict.fromkeys((call, multiply), float("inf"))
    for _ in range(20):
        for each in best_s:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(100):
                each()
            best_s[each] = min(best_s[each], (time.perf_counter() - begun) / 100)
    torch.cuda.synchronize()
    errors = [difference(result, expected).max_diff_eps for result in (first, again)]
    same = torch.equal(first, again) and torch.equal(first, captured)
    of_torch = best_s[call] / best_s[multiply]
    found.append((call, first, same, (name, launched, *errors, len(past)), (of_torch, best_s[call] * 1e6)))
for call, first, same, numbers, costs in found:  # last: right behind it one call took 1.16 for 1.07
    compiled = torch.compile(call, fullgraph=True)()
    print(*numbers, same and torch.equal(first, compiled), *costs, sep="|", flush=True)
"""


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
def test_public_functions_are_right_and_quick_in_a_table_s_kernels(tmp_path: Path) -> None:
    folder = write_table(tmp_path, gpu=torch.cuda.get_device_name())
    done = subprocess.run(
        [sys.executable, "-c", ON_GPU, str(folder)], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = {name: values for name, *values in (line.split("|") for line in done.stdout.splitlines())}
    assert {name: kernel for name, (kernel, *_) in found.items()} == {
        name: kernel for name, kernel in TAKEN.items() if name != "single"
    }
    for name, (_, first, again, past, same, _host, _us) in found.items():
        assert past == "2", name
        # As `tests/kernels/test_hopper_attention.py`: weights are rounded, too.
        assert max(float(first), float(again)) <= (4.0 if "attention" in name else 1.0), (name, first, again)
        assert same == "True", name
    slow = {
        name: f"{us} us, {host} of torch.matmul"
        for name, (*_, host, us) in found.items()
        if float(us) > HOST_US and float(host) > OF_TORCH
    }
    assert slow == {}
