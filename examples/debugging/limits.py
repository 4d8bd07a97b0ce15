"""Ask the installed Triton what its interpreter does where a GPU would do otherwise. See docs/guide/debugging.md."""
# ruff: noqa: D103, N803, PLR2004, S101, SIM108, T201 - a script to read and to change

import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError


@triton.jit
def static_assert_kernel(BLOCK_SIZE: tl.constexpr):
    tl.static_assert(BLOCK_SIZE % 32 == 0, "a block must fill whole warps")


@triton.jit
def device_assert_kernel(x_ptr, BLOCK_SIZE: tl.constexpr):
    tl.device_assert(tl.load(x_ptr + tl.arange(0, BLOCK_SIZE)) < 0, "not negative")


@triton.jit
def assert_kernel(x_ptr, BLOCK_SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK_SIZE))
    assert x < 0, "not negative"


@triton.jit
def scalar_assert_kernel(x_ptr, BLOCK_SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK_SIZE))
    assert tl.max(x) < 0, "not negative"


@triton.jit
def outside_kernel(x_ptr, out_ptr, BLOCK_SIZE: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr + BLOCK_SIZE))


@triton.jit
def race_kernel(count_ptr):
    tl.store(count_ptr, tl.load(count_ptr) + 1)


@triton.jit
def two_types_kernel(x_ptr, out_ptr, n):
    if n > 0:
        x = tl.load(x_ptr)
    else:
        x = tl.load(x_ptr + tl.arange(0, 2))
    tl.store(out_ptr, tl.max(x))


@triton.jit
def pointer_kernel(pointer_ptr, out_ptr):
    pointer = tl.load(pointer_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr, tl.load(pointer))


@triton.jit
def bfloat16_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr) * tl.load(x_ptr))


def stops(kernel, *arguments, **constants):
    try:
        kernel[(1,)](*arguments, **constants)
    except InterpreterError:
        return True
    return False


def counts(programs):
    count = torch.zeros(1)
    race_kernel[(programs,)](count)
    return count.item()


def follows_pointers(x):
    out = torch.zeros(1)
    pointer_kernel[(1,)](torch.tensor([x.data_ptr()]), out)
    return torch.equal(out, x[:1])


def squares_bfloat16():
    out = torch.zeros(1, dtype=torch.bfloat16)
    wrong = stops(bfloat16_kernel, torch.full((1,), 3.0, dtype=torch.bfloat16), out)
    return not wrong and out.item() == 9.0


def main():
    x, out = torch.ones(8), torch.zeros(1)
    answers = {
        "static_assert stops the kernel": stops(static_assert_kernel, BLOCK_SIZE=8),
        "device_assert stops the kernel": stops(device_assert_kernel, x, BLOCK_SIZE=8),
        "assert of a tensor stops the kernel": stops(assert_kernel, x, BLOCK_SIZE=8),
        "assert of a scalar stops the kernel": stops(scalar_assert_kernel, x, BLOCK_SIZE=8),
        "a load outside the tensor is noticed": stops(outside_kernel, x, out, BLOCK_SIZE=8),
        "a race between programs can be seen": counts(programs=100) != 100,
        "a variable of two types is refused": stops(two_types_kernel, x, out, 1),
        "a pointer that was loaded can be used": follows_pointers(x),
        "bfloat16 is multiplied": squares_bfloat16(),
    }
    for question, answer in answers.items():
        print(f"{question:<40}{'yes' if answer else 'no'}")


if __name__ == "__main__":
    main()
