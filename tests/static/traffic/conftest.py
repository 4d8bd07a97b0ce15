"""Kernels whose traffic is counted, and the interpreter that counts it again, element by element.

Triton compiles a function or interprets it, as it was told when it was imported: each has a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.static.conftest import run_child

from flopwatch.static.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

# Each of CASES launches on a device; a comment at the end of a line names it for the tests.
KERNELS = """\
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def empty(*shape, device, dtype=torch.float16):
    return torch.zeros(*shape, device=device, dtype=dtype)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


def launch_add(device, n, dtype=torch.float16, block=256, room=0):
    x, y, out = (empty(n + room, device=device, dtype=dtype)[room:] for _ in range(3))
    add[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)


@triton.jit
def unmasked_load(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)  # unmasked load
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def one_too_far(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x, mask=at <= n)  # one too far


@triton.jit
def one_before(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at - 1, mask=at < n)  # one before
    tl.store(out_ptr + at, x, mask=at < n)


def launch_stray(kernel, device, n=1000, block=256):
    kernel[(triton.cdiv(n, block),)](empty(n, device=device), empty(n, device=device), n, BLOCK=block)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first_m = pid // (GROUP_M * tiles_n) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + pid % (GROUP_M * tiles_n) % rows
    tile_n = pid % (GROUP_M * tiles_n) // rows
    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + m[:, None] * stride_am + k[None, :]
    b = b_ptr + k[:, None] * stride_bk + n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a, mask=k[None, :] < K - start, other=0.0),
                       tl.load(b, mask=k[:, None] < K - start, other=0.0), total)
        a += BLOCK_K
        b += BLOCK_K * stride_bk
    m, n = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c = c_ptr + m[:, None] * stride_cm + n[None, :]
    tl.store(c, total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def launch_matmul(device, M, N, K, group=8, blocks=(64, 64, 32)):
    a, b, c = empty(M, K, device=device), empty(K, N, device=device), empty(M, N, device=device)
    grid = triton.cdiv(M, blocks[0]) * triton.cdiv(N, blocks[1])
    matmul[(grid,)](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BLOCK_M=blocks[0], BLOCK_N=blocks[1],
                    BLOCK_K=blocks[2], GROUP_M=group)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, S, D: tl.constexpr, BLOCK: tl.constexpr, CAUSAL: tl.constexpr,
              SKIP: tl.constexpr):
    rows, dims = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    head = tl.program_id(1) * S * D
    q = tl.load(q_ptr + head + rows[:, None] * D + dims[None, :], mask=rows[:, None] < S, other=0.0)
    total = tl.zeros((BLOCK, D), tl.float32)
    end = tl.minimum(S, (tl.program_id(0) + 1) * BLOCK) if CAUSAL and SKIP else S
    for start in range(0, end, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + head + keys[None, :] * D + dims[:, None], mask=keys[None, :] < S, other=0.0)
        v = tl.load(v_ptr + head + keys[:, None] * D + dims[None, :], mask=keys[:, None] < S, other=0.0)
        scores = tl.dot(q, k)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= keys[None, :], scores, 0.0)
        total = tl.dot(scores.to(tl.float16), v, total)
    at = out_ptr + head + rows[:, None] * D + dims[None, :]
    tl.store(at, total.to(tl.float16), mask=rows[:, None] < S)


def launch_attention(device, S, heads, causal, skip=True, D=64, block=64):
    tensors = [empty(heads, S, D, device=device) for _ in range(4)]
    attention[(triton.cdiv(S, block), heads)](*tensors, S, D=D, BLOCK=block, CAUSAL=causal, SKIP=skip)


@triton.jit
def layer_norm(x_ptr, w_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    mean = tl.sum(total, 0) / columns
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        w = tl.load(w_ptr + at, mask=at < columns)
        tl.store(out_ptr + row * columns + at, (x - mean) * w, mask=at < columns)


def launch_layer_norm(device, rows, columns, block=128):
    x, out = (empty(rows, columns, device=device, dtype=torch.float32) for _ in range(2))
    layer_norm[(rows,)](x, empty(columns, device=device, dtype=torch.float32), out, columns, BLOCK=block)


@triton.jit
def softmax(x_ptr, out_ptr, rows, columns, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, COLUMNS)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row[:, None] < rows) & (at[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * stride + at[None, :], mask=mask, other=0.0)
        x = tl.exp(x - tl.max(x, 1)[:, None])
        tl.store(out_ptr + row[:, None] * columns + at[None, :], x / tl.sum(x, 1)[:, None], mask=mask)


def launch_softmax(device, rows, columns, stride, programs):
    x = empty(rows, stride, device=device, dtype=torch.float32)
    out = empty(rows, columns, device=device, dtype=torch.float32)
    softmax[(programs,)](x, out, rows, columns, stride, ROWS=4, COLUMNS=triton.next_power_of_2(columns))


@triton.jit
def transpose(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (m < M) & (n < N)
    x = tl.load(x_ptr + m * N + n, mask=inside)
    tl.store(tl.trans(out_ptr + n * M + m), tl.trans(x), mask=tl.trans(inside))


def launch_transpose(device, M, N, block=32):
    grid = (triton.cdiv(M, block), triton.cdiv(N, block))
    transpose[grid](empty(M, N, device=device), empty(N, M, device=device), M, N, BLOCK=block)


@triton.jit
def triangle(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    m = tl.arange(0, BLOCK)[:, None]
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    lower = ((m >= n) | (n % 5 == 0)) & (n < N) & (m != 3)
    x = tl.load(x_ptr + (m ^ 1) * N + n, mask=lower, other=0.0)
    tl.store(out_ptr + (m * (m + 1) // 2 + n), x, mask=(m >= n) & (n < N))


def launch_triangle(device, N, block=32):
    x, out = empty(block, N, device=device), empty(block * (block + 1) // 2 + N, device=device)
    triangle[(triton.cdiv(N, block),)](x, out, N, BLOCK=block)


@triton.jit(noinline=True)
def guarded(x_ptr, at, n):
    if at < n:
        return tl.load(x_ptr + at)
    return 0.0


@triton.jit
def control(x_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 3:
        return
    at = pid * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    turn = 0
    while turn < rounds - pid:
        total += guarded(x_ptr, pid * 7 + turn, n)
        turn += 2
    pointer = out_ptr
    if pid % 2 == 0:
        total += tl.load(x_ptr + at, mask=at < n)
        pointer += 1
    else:
        if pid > 4:
            total += tl.load(x_ptr + (at // 3) * 2, mask=at // 3 * 2 < n)
    for turn in range(pid, 3):
        pointer += turn
    last = tl.max(at, 0)
    if last < n:
        tl.atomic_add(out_ptr + last, tl.sum(total, 0))
    tl.store(pointer + at, total, mask=(at < n - 4) & (at != 5))


def launch_control(device, n, rounds, block=64):
    x, out = (empty(n, device=device, dtype=torch.float32) for _ in range(2))
    control[(triton.cdiv(n, block),)](x, out, n, rounds, BLOCK=block)


@triton.jit
def laid_out(x_ptr, out_ptr, tiles, W: tl.constexpr, BLOCK: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        square = tl.reshape(at, (BLOCK // W, W))
        pairs = tl.join(at, at + BLOCK * tiles)
        first, second = tl.split(pairs)
        turned = tl.permute(tl.reshape(pairs, (BLOCK // W, W, 2)), (2, 1, 0))
        x = tl.load(x_ptr + tl.reshape(turned, (2 * W, BLOCK // W)))
        y = tl.load(x_ptr + tl.sum(tl.join(first, second - BLOCK * tiles), 1) // 2)
        tl.store(out_ptr + tl.trans(square), tl.reshape(tl.sum(tl.reshape(x, (2, W, BLOCK // W)), 0), (W, BLOCK // W)))
        tl.store(out_ptr + at, y)


def launch_laid_out(device, tiles, programs, block=64):
    x, out = empty(2 * tiles * block, device=device), empty(tiles * block, device=device)
    laid_out[(programs,)](x, out, tiles, W=16, BLOCK=block)


@triton.jit
def described(a_ptr, b_desc, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([m, k]), b_desc.load([n, k]).T, total)
    c.store([m, n], total.to(tl.float16))


def launch_described(device, M, N, K, blocks=(64, 32, 32)):
    a, b, c = empty(M, K, device=device), empty(N, K, device=device), empty(M, N, device=device)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
    grid = (triton.cdiv(M, blocks[0]), triton.cdiv(N, blocks[1]))
    described[grid](a, TensorDescriptor.from_tensor(b, list(blocks[1:])), c, M, N, K, BM=blocks[0], BN=blocks[1],
                    BK=blocks[2])


@triton.jit
def gather(x_ptr, at_ptr, out_ptr, n, D: tl.constexpr):
    row = tl.load(at_ptr + tl.program_id(0))
    dims = tl.arange(0, D)
    tl.store(out_ptr + tl.program_id(0) * D + dims, tl.load(x_ptr + row * D + dims))  # gathered


@triton.jit
def ragged(x_ptr, lengths_ptr, out_ptr, BLOCK: tl.constexpr):
    length = tl.load(lengths_ptr + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, length, BLOCK):
        x = tl.load(x_ptr + start * BLOCK + at[:, None] * BLOCK + at[None, :])
        total = tl.dot(x, x, total)
    tl.store(out_ptr + at[:, None] * BLOCK + at[None, :], total)


@triton.jit
def padded(x_ptr, lengths_ptr, out_ptr, BLOCK: tl.constexpr):
    length = tl.load(lengths_ptr + tl.program_id(0))
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < length))


@triton.jit(noinline=True)
def picked(lengths_ptr, at):
    if at == 0:
        return 5
    if tl.load(lengths_ptr + at) > 0:
        return 7
    return 9


@triton.jit
def branching(x_ptr, lengths_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + picked(lengths_ptr, tl.program_id(0)) + at, tl.load(x_ptr + at))
    if tl.load(lengths_ptr) > 0:
        return
    tl.store(out_ptr + at, tl.load(x_ptr + at))


def launch_on_data(kernel, device, **constants):
    x, out = empty(4096, device=device), empty(4096, device=device, dtype=torch.float32)
    lengths = empty(8, device=device, dtype=torch.int32)
    extra = (1000,) if kernel is gather else ()
    kernel[(8,)](x, lengths, out, *extra, **constants)


@triton.jit
def narrow(x_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.zeros((BLOCK,), tl.int8))  # wraps


def launch_narrow(device, n, block=4096):
    narrow[(triton.cdiv(n, block),)](torch.empty(n, device=device, dtype=torch.int8), BLOCK=block)


@triton.jit
def by_float(x_ptr, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + (tl.program_id(0) * scale).to(tl.int32)
    tl.store(x_ptr + at, tl.zeros((BLOCK,), tl.float16))


CASES = {
    "add": lambda device: launch_add(device, 1000),
    "add of a view": lambda device: launch_add(device, 777, torch.float32, 128, room=3),
    "unmasked load": lambda device: launch_stray(unmasked_load, device),
    "one too far": lambda device: launch_stray(one_too_far, device),
    "one before": lambda device: launch_stray(one_before, device),
    "matmul": lambda device: launch_matmul(device, 192, 256, 96),
    "odd matmul": lambda device: launch_matmul(device, 130, 77, 45, group=2),
    "attention": lambda device: launch_attention(device, 192, 2, causal=False),
    "causal attention": lambda device: launch_attention(device, 200, 3, causal=True),
    "layer norm": lambda device: launch_layer_norm(device, 5, 300),
    "softmax": lambda device: launch_softmax(device, 30, 27, 29, 3),
    "transpose": lambda device: launch_transpose(device, 70, 45),
    "triangle": lambda device: launch_triangle(device, 90),
    "control": lambda device: launch_control(device, 500, 9),
    "laid out": lambda device: launch_laid_out(device, 7, 3),
    "described": lambda device: launch_described(device, 100, 80, 72),
}
"""

_COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
import kernels, torch
from kernels import *
from flopwatch.model import to_json
from flopwatch.static import pretend_gpu
from flopwatch.static.traffic import traffic_of

device, *calls = sys.argv[2:]
told = {}
for call in calls:
    with pretend_gpu(device) as recorder:
        CASES[call]("cuda") if call in CASES else eval(call, vars(kernels) | {"device": "cuda"})
    (told[call],) = traffic_of(recorder)
print(to_json(told).decode())
"""

# Notes every address that the interpreter reads or writes, by the tensor that it is nearest to.
_INTERPRET = """
import json, sys
sys.path.insert(0, sys.argv[1])
import kernels, numpy as np, torch
from kernels import CASES
from triton.runtime import interpreter

tensors, events, flops = [], [], [0]
made = kernels.empty


def noted(*shape, **options):
    near = []
    while True:  # a stray between two neighbours would be either's
        tensor = made(*shape, **options)
        start, length = tensor.data_ptr(), tensor.untyped_storage().nbytes()
        if all(start + length + 4096 <= other or other + size + 4096 <= start for other, size in tensors):
            break
        near.append(tensor)  # while it lives, its memory is not given out again
    tensors.append((start, length))
    return tensor


class Noting:
    def __getattr__(self, name):
        return getattr(real, name)

    def note(self, kind, pointers, mask, size):
        pointers, mask = np.atleast_1d(pointers).astype(np.int64), np.atleast_1d(mask)
        addresses = np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, mask.shape))[mask.astype(bool)]
        inside = np.zeros(pointers.shape, bool)
        for start, length in tensors:
            inside |= (pointers >= start) & (pointers + size <= start + length)
        if addresses.size:
            events.append((kind, addresses, size))
        return np.broadcast_to(inside, mask.shape) & mask.astype(bool)

    def load(self, pointers, mask, other, dtype):
        safe = self.note("load", pointers, mask, dtype.itemsize)
        return real.load(pointers, safe.reshape(np.shape(mask)), other, dtype)

    def store(self, pointers, value, mask):
        safe = self.note("store", pointers, mask, value.dtype.itemsize)
        return real.store(pointers, value, safe.reshape(np.shape(mask)))

    def atomic_rmw(self, operation, pointers, value, mask, sem):
        self.note("atomic", pointers, mask, value.dtype.itemsize)
        return real.atomic_rmw(operation, pointers, value, mask, sem)


def dot(original):
    def counted(self, a, b, *others):
        flops[0] += 2 * a.data.shape[0] * a.data.shape[1] * b.data.shape[1]
        return original(self, a, b, *others)
    return counted


real, interpreter._interpreter = interpreter._interpreter, Noting()
interpreter.InterpreterBuilder.create_dot = dot(interpreter.InterpreterBuilder.create_dot)
kernels.empty = noted
told = {}
for name, launch in CASES.items():
    tensors.clear(), events.clear()
    flops[0] = 0
    launch("cpu")
    counts = {"load": 0, "store": 0, "atomic": 0}
    touched = {"load": set(), "store": set()}
    strays = {}
    for kind, addresses, size in events:
        counts[kind] += addresses.size * size
        outside = [np.maximum(start - addresses, addresses - start - length + 1) for start, length in tensors]
        for which, address in zip(np.argmin(outside, axis=0).tolist(), addresses.tolist()):
            start, length = tensors[which]
            offset = address - start
            for byte in range(offset, offset + size):
                for side in ("load", "store"):
                    if kind in (side, "atomic"):
                        touched[side].add((which, byte))
            if offset < 0 or offset + size > length:
                before, past = strays.get(f"{kind} {which}", (0, 0))
                strays[f"{kind} {which}"] = (max(before, -offset), max(past, offset + size - length))
    told[name] = {
        **counts,
        "flops": flops[0],
        "unique load": len(touched["load"]),
        "unique store": len(touched["store"]),
        "compulsory": sum(32 * len({(which, byte // 32) for which, byte in side}) for side in touched.values()),
        "strays": sorted(map(list, strays.values())),
    }
print(json.dumps(told))
"""


@pytest.fixture(scope="session")
def kernels() -> str:
    """The source of the kernels."""
    return KERNELS


@pytest.fixture(scope="session")
def compile_traffic(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Traffic]]:
    """Count what calls launch: ``compile_traffic("h200", "launch_add(device, 7)")``; one of CASES by its name."""
    folder = tmp_path_factory.mktemp("traffic")
    (folder / "kernels.py").write_text(KERNELS)

    def compiled(device: str, *calls: str) -> dict[str, Traffic]:
        text = run_child(_COMPILE, str(folder), device, *calls, cache=folder / "cache")
        return msgspec.json.decode(text, type=dict[str, Traffic])

    return compiled


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the interpreter saw of each of CASES."""
    folder = tmp_path_factory.mktemp("interpreted")
    (folder / "kernels.py").write_text(KERNELS)
    text = run_child(_INTERPRET, str(folder), cache=folder / "cache", interpret=True)
    told: dict[str, dict[str, Any]] = msgspec.json.decode(text)
    return told
