from __future__ import annotations

import pytest
from tests.scaffold.conftest import ADD, HEAD

from flopwatch.scaffold.kernels import Kernel, Launcher, Module, find_launchers, read_module


def read(source: str, path: str = "pkg/a.py") -> Module:
    module = read_module(path, source.encode())
    assert module is not None
    return module


def kernel(body: str, *, head: str = "@triton.jit", parameters: str = "x, y, n, B: tl.constexpr") -> Kernel:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (found,) = read(f"{HEAD}{head}\ndef k({parameters}):\n{lines}\n").kernels
    return found


def names(launchers: tuple[Launcher, ...]) -> list[str]:
    return [launcher.name for launcher in launchers]


def test_a_kernel_is_told_by_its_decorator() -> None:
    (found,) = read(ADD).kernels
    assert (found.name, found.path, found.line) == ("add_kernel", "pkg/a.py", 7)
    assert found.parameters == ("x_ptr", "y_ptr", "out_ptr", "n_elements", "BLOCK")


@pytest.mark.parametrize(
    "head",
    [
        "@triton.jit",
        "@triton.jit(do_not_specialize=['n'])",
        "@jit",
        "@triton.autotune(configs=[], key=[])\n@triton.jit",
        "@gluon.jit",
    ],
)
def test_decorators_come_in_many_forms(head: str) -> None:
    assert kernel("pass", head=head).gluon == ("gluon" in head)


@pytest.mark.parametrize("head", ["@torch.jit.script", "@numba.jit", "@functools.cache"])
def test_other_compilers_kernels_are_none(head: str) -> None:
    assert read(f"{HEAD}{head}\ndef k(x):\n    pass\n").kernels == ()


@pytest.mark.parametrize("source", [b"import torch\n", b"import triton\ndef (", b"\0triton", b"# triton\n\xff"])
def test_what_is_no_triton_or_no_python_is_passed_over(source: bytes) -> None:
    assert read_module("a.py", source) is None


@pytest.mark.parametrize(
    ("body", "loads", "stores"),
    [
        ("tl.store(y + n, tl.load(x + n * B))", {"x"}, {"y"}),
        ("p = x + tl.arange(0, B) * n\nq = p\ntl.load(q, mask=q < n)", {"x"}, set()),
        ("x += n\ntl.load(x)", {"x"}, set()),
        ("b = tl.make_block_ptr(base=x, shape=(n,))\ntl.load(b)", {"x"}, set()),
        ("x.store([n], x.load([n]))", {"x"}, {"x"}),
        ("tl.atomic_add(y + n, 1)", set(), {"y"}),
        ("a = b\nb = a\ntl.load(a)", set(), set()),
    ],
)
def test_a_pointer_is_what_an_address_begins_with(body: str, loads: set[str], stores: set[str]) -> None:
    found = kernel(body)
    assert (set(found.loads), set(found.stores)) == (loads, stores)


def test_a_launch_function_is_found_through_its_helpers_and_autograd() -> None:
    source = (
        f"{ADD}\ndef twice(x):\n    return add(x, x)\n\ndef idle(x):\n    return x\n\n"
        "class Add(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return twice(x)\n\n"
        "applied = Add.apply\n\ndef called(x):\n    return Add.apply(x)\n"
    )
    found = find_launchers([read(source)])
    assert set(names(found)) == {"add", "twice", "applied", "called"}
    assert {launcher.name: launcher.skip for launcher in found}["applied"] == 1
    assert {launcher.kernels for launcher in found} == {("add_kernel",)}


def test_a_kernel_may_be_launched_from_another_file() -> None:
    launching = read(f"{HEAD}from pkg import a\n\ndef go(x, y):\n    a.add_kernel[(1,)](x, y)\n", "pkg/b.py")
    assert "go" in names(find_launchers([read(ADD), launching]))


def test_entry_points_come_before_private_functions_and_backward_passes() -> None:
    launch = "    add_kernel[(1,)](x, x, x, 1, BLOCK=1)\n"
    source = f"{HEAD}{ADD_BODY}" + "".join(f"def {name}(x):\n{launch}\n" for name in ("add_bwd", "_add", "add"))
    assert names(find_launchers([read(source)])) == ["add", "_add", "add_bwd"]


ADD_BODY = ADD.removeprefix(HEAD).partition("def add(")[0]
