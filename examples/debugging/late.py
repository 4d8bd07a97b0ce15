"""Ask for the interpreter when Triton is already imported, which is too late. See docs/guide/debugging.md."""
# ruff: noqa: D103, N803, T201 - a script to read and to change

import os

import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

os.environ["TRITON_INTERPRET"] = "1"


@triton.jit
def sum_kernel(x_ptr, out_ptr, BLOCK_SIZE: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK_SIZE))))


def main():
    out = torch.zeros(1)
    try:
        sum_kernel[(1,)](torch.ones(8), out, BLOCK_SIZE=8)
    except InterpreterError as error:
        print(error)
    else:
        print("the sum is", out.item())


if __name__ == "__main__":
    main()
