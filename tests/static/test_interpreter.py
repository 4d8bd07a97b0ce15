# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

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


def test_the_unrepaired_interpreter_is_wrong_and_the_repaired_right(child: Callable[..., str]) -> None:
    printed = child(
        "from flopwatch.static.interpreter import correct_interpreter\n"
        "from flopwatch.static.interpreter_probes import wrong_probes\n"
        "print(wrong_probes())\n"
        "correct_interpreter()\n"
        "correct_interpreter()\n"
        "print(wrong_probes())\n",
        interpret=True,
    )
    before, after = printed.splitlines()
    for name in ("arithmetic", "fma", "dot", "casts", "reductions"):
        assert f"bfloat16 {name}" in before
    assert "device_assert" in before
    assert after == "[]"


def test_what_cannot_be_repaired_is_an_error(child: Callable[..., str]) -> None:
    printed = child(
        "from flopwatch.errors import UnsupportedTritonError\n"
        "from flopwatch.static import interpreter, interpreter_probes\n"
        "interpreter_probes._PROBES['planted'] = lambda: False\n"
        "try:\n"
        "    interpreter.correct_interpreter()\n"
        "except UnsupportedTritonError as error:\n"
        "    print(error)\n",
        interpret=True,
    )
    assert "computes wrong results: planted" in printed


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
