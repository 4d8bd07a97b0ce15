"""Launches that come before the one in front of theirs has ended: what the compiler makes of that, and on a GPU whether
they wait.
"""

from __future__ import annotations

import pytest
import torch
from tests.kernels.test_hopper_matmul import run

#: Each of the kernels that have it, by a word of its own: its configurations by name, and a call of it.
KERNELS = """
import sys
from dataclasses import replace
import torch
from flopwatch.kernels.hopper_matmul import CONFIGS, hopper_matmul, prepare_hopper
from flopwatch.kernels.hopper_short import SHORT, hopper_short_matmul, prepare_short
from flopwatch.kernels.thin_matmul import THIN, prepare_thin, thin_matmul

KERNELS = {
    "short": (hopper_short_matmul, SHORT["short 64x64x128 s3 w4 x2 tma"]),
    "turned": (hopper_short_matmul, SHORT["short 96x64x64 s5 w4 x2 turned tma"]),
    "shared": (hopper_matmul, CONFIGS["128x128x64 s6 w2 c2/2 g8 wave"]),
    "whole": (hopper_matmul, CONFIGS["64x64x64 s6 w1 c1/1 g8 whole x2"]),
    "thin": (thin_matmul, THIN["thin 64x128/4 w4 s4"]),
}
"""
#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints of each kernel, with and
#: without, what touches memory or has to do with other launches, in the order of its text.
COMPILE = rf"""
{KERNELS}
import re
from flopwatch.static import pretend_gpu

for name, (product, config) in KERNELS.items():
    for dependent in (False, True):
        with pretend_gpu("h200") as recorder:
            a = torch.empty(1024, 1024, device="cuda", dtype=torch.float16)
            product(a[:16] if name == "thin" else a, a, replace(config, dependent=dependent))
        (kernel,) = recorder.compiled.values()
        touching = r"griddepcontrol\.\w+|cp\.async\.c\w|cp\.async\.bulk\.tensor|(?:ld|st|atom|red)\.\S*global"
        found = re.findall(touching, kernel.asm["ptx"])
        print(name, dependent, bool(kernel.metadata.launch_pdl), *found)
"""
#: Products in a chain, in which each one reads what the one before wrote, and writes where one before that was read: as
#: they come and with a pause after each. Then one that does not wait, behind one that lets it come.
CHAINS = f"""
{KERNELS}
torch.manual_seed(0)
turn = torch.linalg.qr(torch.randn(1024, 1024, device="cuda")).Q.half()
start = torch.randn(1024, 1024, device="cuda").half()

def chain(product, config, x, pause=lambda: None):
    for _ in range(24):
        x = product(x, turn, config)
        pause()
    return x

for name, (product, config) in KERNELS.items():
    x = start[:16] if name == "thin" else start
    config = replace(config, dependent=True)
    expected = chain(product, config, x, torch.cuda.synchronize)
    print(name, "apart", torch.equal(expected, chain(product, replace(config, dependent=False), x)))
    print(name, "chained", all(torch.equal(expected, chain(product, config, x)) for _ in range(30)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain(product, config, x)
    same = []
    for _ in range(30):
        result.fill_(float("nan"))
        graph.replay()
        same.append(torch.equal(expected, result))
    print(name, "captured", all(same))

product, config = KERNELS["short"]
first, second = torch.empty_like(start), torch.empty_like(start)
early = prepare_short(start, turn, first, replace(config, dependent=True))
late = prepare_short(first, turn, second, config)
hasty = replace(late, constants=late.constants | {{"launch_pdl": True}})
expected = product(product(start, turn, config), turn, config)
for name, then in (("late", late), ("hasty", hasty)):
    graph = torch.cuda.CUDAGraph()  # from the host they would come one long after the other
    with torch.cuda.graph(graph):
        first.fill_(float("nan"))
        early.launch()
        then.launch()
    same = []
    for _ in range(30):
        graph.replay()
        same.append(torch.equal(expected, second))
    print("control", name, all(same))
"""


def test_a_launch_waits_before_it_touches_memory_and_does_neither_where_it_is_not_asked_to() -> None:
    lines = [line.split() for line in run(COMPILE, deadline_s=280.0)]

    assert len(lines) == 10
    for name, dependent, pdl, *found in lines:
        assert dependent == pdl, name
        waits = [each for each in found if "griddepcontrol" in each]
        touches = [each for each in found if "griddepcontrol" not in each]
        assert touches
        assert waits[:2] == (["griddepcontrol.wait", "griddepcontrol.launch_dependents"] if dependent == "True" else [])
        assert not waits or found[:2] == waits[:2], name


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
def test_products_in_a_chain_are_right_and_one_that_does_not_wait_is_wrong() -> None:
    lines = run(CHAINS, deadline_s=240.0)

    assert len(lines) == 3 * 5 + 2
    assert [line for line in lines if line.endswith("False")] == ["control hasty False"]
