"""Add two vectors, with Triton's four debug operations in the kernel. See docs/guide/debugging.md."""
# ruff: noqa: D103, N803, PLR0124, T201 - a script to read and to change

import argparse
import contextlib

import torch
import triton
import triton.language as tl

from flopwatch.static import pretend_gpu


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    tl.static_assert(BLOCK_SIZE % 32 == 0, "a block must fill whole warps")
    pid = tl.program_id(0)
    start = pid * BLOCK_SIZE
    if pid == 1:
        tl.device_print("start", start)
    offsets = start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    out = x + y
    tl.static_print("BLOCK_SIZE is", BLOCK_SIZE, "and out is", out.dtype)
    tl.device_assert(out == out, "a sum is not a number", mask=mask)  # only NaN differs from itself
    tl.store(out_ptr + offsets, out, mask=mask)


def add(x, y, block_size=64):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block_size),)](x, y, out, x.numel(), BLOCK_SIZE=block_size)
    return out


def run(device, *, nan):
    x, y = (torch.ones(100, device=device) for _ in range(2))
    if nan:
        y[3] = torch.nan
    out = add(x, y)
    try:
        print("out[3] is", out[3].item())
    except RuntimeError as error:
        print("out[3] cannot be read:", str(error).partition("\n")[0])
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            print("nor can anything else be done on the GPU")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nan", action="store_true", help="make y[3] NaN, so that the assertion fails")
    parser.add_argument("--repaired", action="store_true", help="interpret as flopwatch does")
    options = parser.parse_args()
    with pretend_gpu("h200", tensors="cpu") if options.repaired else contextlib.nullcontext():
        run("cpu" if triton.knobs.runtime.interpret and not options.repaired else "cuda", nan=options.nan)


if __name__ == "__main__":
    main()
