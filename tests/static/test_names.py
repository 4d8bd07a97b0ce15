from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flopwatch.model import KernelFacts, from_json
from flopwatch.static.comparison import compare_facts
from flopwatch.static.launches import Launched, compare_launches
from flopwatch.static.names import KernelNames, function_name
from flopwatch.static.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

#: Two modules, each with a kernel of one name, and what launches both; "second" reads twice as much on head.
MODULE = '''
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, {value})


def made():
    """Return a function that is new each time, and the same one all the same."""

    @triton.jit
    def local(x, out, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i))

    return local
'''
LAUNCHES = '''
import json, pathlib, sys

from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from flopwatch.static.ir import ir_texts
from flopwatch.static.traffic.recorded import traffic_of

MODULE = {module!r}
values = {{
    "first": "tl.load(x + i) * 2",
    "base_second": "tl.load(x + i) + 1",
    "head_second": "tl.load(x + i) + tl.load(x + 4096 + i)",
}}
folder = pathlib.Path(__file__).parent
for name, value in values.items():
    (folder / (name + ".py")).write_text(MODULE.format(value=value))
sys.path.insert(0, str(folder))


def case(*kernels):
    """Launch kernels, the second also by a handle, and return all that is told of them."""
    x = torch.empty(8192, device="cuda")
    for kernel in (*kernels, kernels[0]):
        kernel[(16,)](x, x, BLOCK=256)
    kernels[1].warmup(x, x, BLOCK=256, grid=(1,))[(16, 1, 1)](x, x, 256)


found = {{}}
for side in ("base", "head"):
    with pretend_gpu("h200") as recorder:
        import torch, first, base_second, head_second

        case(first.kernel, (base_second if side == "base" else head_second).kernel)
        case(first.made(), first.made())
    facts = kernel_facts(recorder)
    texts = ir_texts(recorder, [(fact.kernel, fact.variant, fact.config) for fact in facts], ["ttir"])
    found[side] = {{
        "facts": json.loads(to_json(facts)),
        "traffic": json.loads(to_json(traffic_of(recorder))),
        "loads": {{key[0]: text.count("tt.load") for key, text in texts.items()}},
        "launches": [launch.kernel for launch in recorder.launches],
    }}
print(json.dumps(found))
'''

Side = dict[str, object]


@pytest.fixture
def sides(child: Callable[..., str]) -> dict[str, Side]:
    return dict(json.loads(child(LAUNCHES.format(module=MODULE))))


def launched(side: Side) -> Launched:
    return Launched(
        facts=from_json(json.dumps(side["facts"]), tuple[KernelFacts, ...]),
        traffic=from_json(json.dumps(side["traffic"]), tuple[Traffic, ...]),
    )


def test_kernels_that_are_called_alike_are_numbered_by_their_first_launch_and_findings_name_the_right_one(
    sides: dict[str, Side],
) -> None:
    for side in sides.values():
        twice = ["kernel", "kernel (2)", "kernel", "kernel (2)"]
        assert side["launches"] == [*twice, *["local"] * 4]
    base, head = launched(sides["base"]), launched(sides["head"])
    assert [fact.kernel for fact in head.facts] == ["kernel", "kernel (2)", "local"]
    assert {launch.kernel for launch in head.traffic} == {"kernel", "kernel (2)", "local"}
    assert {change.kernel for change in compare_facts(base.facts, head.facts)} == {"kernel (2)"}
    worse = compare_launches(base, head)
    assert {change.kernel for change in worse} == {"kernel (2)"}
    assert "requested bytes" in {change.fact for change in worse}
    assert sides["base"]["loads"] == {"kernel": 1, "kernel (2)": 1, "local": 1}
    assert sides["head"]["loads"] == {"kernel": 1, "kernel (2)": 2, "local": 1}


def test_names_count_each_for_itself_and_end_where_their_keeper_does() -> None:
    names = KernelNames()
    given = [names.name(*called) for called in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("a", "2"))]
    assert given == ["a", "b", "a (2)", "a (3)", "b", "a (2)"]
    assert KernelNames().name("a", "3") == "a"


@pytest.mark.parametrize(
    ("name", "function"), [("k", "k"), ("k (2)", "k"), ("k (12)", "k"), ("k (x)", "k (x)"), ("(2)", "(2)")]
)
def test_a_name_tells_the_function(name: str, function: str) -> None:
    assert function_name(name) == function
