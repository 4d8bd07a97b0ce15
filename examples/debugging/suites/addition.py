"""The suite of a kernel that is being debugged. See docs/guide/debugging.md."""

import torch
from vector_add import add

from flopwatch import Suite


class Addition(Suite):
    """out = x + y in float32."""

    params = (["1000000"],)
    param_names = ("n",)
    small = {"n": "1000"}

    def inputs(self, n, *, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(torch.randn(int(n), device="cuda", generator=generator) for _ in range(2))

    def run(self, x, y):
        return add(x, y)

    def reference(self, x, y):
        return x.double() + y.double()

    def flops(self, n):
        return int(n)

    def bytes_moved(self, n):
        return 3 * int(n) * 4
