# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
)


@triton.jit
def _matmul(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, SIZE, BLOCK):
        a = tl.load(a_ptr + m[:, None] * SIZE + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * SIZE + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * SIZE + n[None, :], total.to(c_ptr.dtype.element_ty))


@triton.jit
def _add_scaled(x, y, scale, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i) * scale.to(tl.bfloat16))


@triton.jit
def _assert_positive(x):
    tl.device_assert(tl.load(x) > 0, "must be positive")


@triton.jit
def _print(x):
    tl.device_print("value", tl.load(x))


@triton.jit
def _inner(x):
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _outer(x):
    i = tl.arange(0, 4)
    tl.store(x + i, _inner(tl.load(x + i)))


@triton.jit
def _mismatched(x):
    tl.store(x + tl.arange(0, 4), tl.load(x + tl.arange(0, 4)) + tl.load(x + tl.arange(0, 8)))


@triton.autotune([triton.Config({"VALUE": 2}), triton.Config({"VALUE": 3})], key=[])
@triton.jit
def _tuned(x, VALUE: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(x + i, tl.load(x + i) + VALUE)


@gluon.jit
def _gluon(x, out, SIZE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    i = gl.arange(0, SIZE, layout=layout)
    gl.store(out + i, gl.load(x + i))


def test_a_bfloat16_product_is_as_exact_as_torchs_own(cuda: str) -> None:
    generator = torch.Generator(device=cuda).manual_seed(7)
    a, b = (torch.randn(64, 64, device=cuda, generator=generator).bfloat16() for _ in range(2))
    c = torch.full_like(a, float("nan"))
    _matmul[(4, 4)](a, b, c, SIZE=64, BLOCK=16)
    reference = a.double() @ b.double()
    own_error = (torch.matmul(a, b).double() - reference).abs().max().item()
    assert own_error > 0
    assert (c.double() - reference).abs().max().item() == pytest.approx(own_error, rel=0.01)


def test_bfloat16_arithmetic_rounds_as_torch_does(cuda: str) -> None:
    x, y = torch.randn(2, 256, device=cuda, generator=torch.Generator(device=cuda).manual_seed(8)).bfloat16()
    out = torch.full_like(x, float("nan"))
    _add_scaled[(1,)](x, y, 0.3, out, SIZE=256)
    assert torch.equal(out, x + y * torch.tensor(0.3).bfloat16())


def test_device_assert_stops_the_kernel(cuda: str) -> None:
    _assert_positive[(1,)](torch.ones(1, device=cuda))
    with pytest.raises(InterpreterError, match="must be positive"):
        _assert_positive[(1,)](torch.zeros(1, device=cuda))


def test_device_print_shows_the_value_of_a_bfloat16(cuda: str, capsys: pytest.CaptureFixture[str]) -> None:
    _print[(1,)](torch.full((1,), 2.5, device=cuda).bfloat16())
    assert "2.5" in capsys.readouterr().out


def test_what_the_interpreter_gets_wrong_is_found_repaired_and_probed_again(child: Callable[..., str]) -> None:
    printed = child(
        "from flopwatch.static.interpreter import correct_interpreter\n"
        "from flopwatch.static.interpreter_features import FEATURES\n"
        "print([feature.name for feature in FEATURES if not feature.right()])\n"
        "found = correct_interpreter()\n"
        "assert correct_interpreter() is found\n"
        "print([feature.name for feature in FEATURES if not feature.right()])\n"
        "print([name for name, coverage in found.items() if coverage.value == 'not covered'])\n",
        interpret=True,
    )
    before, after, uncovered = map(ast.literal_eval, printed.splitlines())
    for name in ("arithmetic", "fma", "dot", "casts", "reductions"):
        assert f"bfloat16 {name}" in before
    assert {"device_assert", "libdevice", "wider to float8", "atomic_add of bfloat16", "inline_asm"} <= set(before)
    assert after == uncovered
    assert set(after) - {"dot_scaled"} == {"inline_asm", "map_elementwise", "Gluon", "descriptor.atomic_add"}


def test_each_feature_that_stays_wrong_ends_the_kernel_that_uses_it(child: Callable[..., str]) -> None:
    printed = child(
        "from flopwatch.static.interpreter import correct_interpreter\n"
        "correct_interpreter()\n"
        "from flopwatch.static.interpreter_features import FEATURES\n"
        "from flopwatch.static.not_covered import NotCovered\n"
        "for feature in FEATURES:\n"
        "    saved = [(owner, name, getattr(owner, name)) for owner, name in feature.places if hasattr(owner, name)]\n"
        "    feature.refuse()\n"
        "    try:\n"
        "        feature.probe()\n"
        "        print(feature.name)\n"
        "    except NotCovered as error:\n"
        "        assert error.feature == feature.name, (error.feature, feature.name)\n"
        "    except RuntimeError:\n"
        "        assert feature.name == 'Gluon'\n"
        "    for owner, name, value in saved:\n"
        "        setattr(owner, name, value)\n",
        interpret=True,
    )
    assert printed.splitlines() == ["loop to a computed bound"]  # which raises by itself where it is wrong


def test_a_planted_wrong_feature_is_not_covered_and_the_others_are(child: Callable[..., str]) -> None:
    printed = child(
        "import torch, triton, triton.language as tl\n"
        "from flopwatch.static import interpreter, interpreter_language\n"
        "from flopwatch.static.not_covered import NotCovered\n"
        "interpreter_language.PROBES['flip'] = lambda: False\n"
        "print(interpreter.correct_interpreter()['flip'].value)\n"
        "@triton.jit\n"
        "def turn(x, out, TURNED: tl.constexpr):\n"
        "    a = tl.load(x + tl.arange(0, 8))\n"
        "    if TURNED:\n"
        "        a = tl.flip(a, 0)\n"
        "    tl.store(out + tl.arange(0, 8), a)\n"
        "x, out = torch.arange(8.0), torch.zeros(8)\n"
        "turn[(1,)](x, out, TURNED=False)\n"
        "print(torch.equal(x, out))\n"
        "try:\n"
        "    turn[(1,)](x, out, TURNED=True)\n"
        "except NotCovered as error:\n"
        "    print(error)\n",
        interpret=True,
    )
    assert printed.splitlines() == ["not covered", "True", "flip"]


def test_what_is_compiled_though_kernels_are_interpreted_is_refused(cuda: str) -> None:
    x = torch.ones(32, device=cuda)
    with pytest.raises(NotCovered, match=r"^Gluon$"):
        _gluon[(1,)](x, torch.empty_like(x), 32)


def test_an_operation_that_the_interpreter_does_not_have_is_named(cuda: str) -> None:
    x = torch.ones(4, device=cuda)
    with pytest.raises(NotCovered, match=r"^inline_asm$"):
        _outer[(1,)](x)


def test_an_error_of_the_interpreters_own_is_not_held_against_the_kernel(
    cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(1, device=cuda)

    def broken(*_: object) -> None:
        raise NotImplementedError("no print today")

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_print", broken)
    with pytest.raises(NotCovered, match="NotImplementedError: no print today"):
        _print[(1,)](x)


def test_an_error_of_the_kernels_stays_one(cuda: str) -> None:
    with pytest.raises(InterpreterError, match="shape"):
        _mismatched[(1,)](torch.ones(8, device=cuda))


def test_an_autotuned_kernel_runs_in_its_first_configuration(cuda: str) -> None:
    x = torch.zeros(4, device=cuda)
    _tuned[(1,)](x)
    assert x.tolist() == [2.0] * 4


def test_without_interpretation_there_is_nothing_to_correct(child: Callable[..., str]) -> None:
    printed = child(
        "from flopwatch.errors import UsageError\n"
        "from flopwatch.static.interpreter import correct_interpreter\n"
        "try:\n"
        "    correct_interpreter()\n"
        "except UsageError as error:\n"
        "    print(error)\n"
    )
    assert "kernels are not interpreted" in printed
