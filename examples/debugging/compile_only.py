"""Compile the kernel of vector_add.py for an H200 that need not be there. See docs/guide/debugging.md."""
# ruff: noqa: D103, T201 - a script to read and to change

import argparse
import inspect

import torch
from triton.compiler.errors import CompilationError
from vector_add import add, add_kernel

from flopwatch.static import pretend_gpu


def line_of_def(kernel):
    lines, first = inspect.getsourcelines(kernel.fn)  # the first is a decorator's
    return first + next(index for index, line in enumerate(lines) if line.startswith("def "))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--block", type=int, default=64, metavar="SIZE", help="the kernel's BLOCK_SIZE")
    options = parser.parse_args()
    with pretend_gpu("h200") as gpu:
        x = torch.ones(100, device="cuda")
        try:
            add(x, x, options.block)
        except CompilationError as error:
            print(error)
            print("that is vector_add.py, line", line_of_def(add_kernel) + error.node.lineno - 1)
            return
        (kernel,) = gpu.compiled.values()
        for line in kernel.asm["ttir"].splitlines():
            operation = line.strip().partition(" ")[0]
            if operation in {"tt.print", "tt.assert"}:
                print(operation, line.split('"')[1].strip())


if __name__ == "__main__":
    main()
