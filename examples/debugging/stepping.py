"""A vector addition with a mistake in its mask, to be stepped through. See docs/guide/debugging.md."""
# ruff: noqa: D103, N803, T201 - a script to read and to change

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets <= n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def main():
    memory = torch.zeros(16)  # the first 10 elements are the output; what lies behind them is somebody else's
    x, y = torch.ones(16), torch.ones(16)
    add_kernel[(2,)](x, y, memory, 10, BLOCK_SIZE=8)
    print("changed behind the output:", memory[10:].count_nonzero().item())


if __name__ == "__main__":
    main()
