from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scaffold.conftest import HEAD

from flopwatch.scaffold import Scaffold, plan_scaffold
from flopwatch.scaffold.arguments import Guess, TensorGuess
from flopwatch.scaffold.trial import _full_sizes, _small_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest
    from tests.scaffold.conftest import Stranger

    from flopwatch.scaffold.suite_text import SuitePlan

    Make = Callable[[Mapping[str, str]], Stranger]

NORM = f"""{HEAD}\
@triton.jit
def norm_kernel(X, Y, W, n, eps, B: tl.constexpr):
    cols = tl.arange(0, B)
    x = tl.load(X + tl.program_id(0) * n + cols, mask=cols < n, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n + eps)
    w = tl.load(W + cols, mask=cols < n)
    tl.store(Y + tl.program_id(0) * n + cols, x * scale * w, mask=cols < n)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, out, eps):
        flat = x.view(-1, x.shape[-1])
        M, N = flat.shape
        norm_kernel[(M,)](flat, out, weight, N, eps, B=triton.next_power_of_2(N))
        return out


def norm(x, weight, eps=1e-3):
    return Norm.apply(x, weight, torch.empty_like(x), eps)
"""
STRANGE = f"""{HEAD}\
@triton.jit
def triple_kernel(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 3, mask=at < n)


@triton.jit
def odd_kernel(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * value * value - 3 * value, mask=at < n)


def triple_(x):
    triple_kernel[(triton.cdiv(x.numel(), 256),)](x, x.numel(), B=256)
    return x


def odd(x, out):
    odd_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), B=256)
"""


MANY = f"""{HEAD}\
@triton.jit
def sums_kernel(a, b, c, out, m, k, n, h, p, q, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.load(a + at, mask=at < m * k) + tl.load(b + at, mask=at < n * h) + tl.load(c + at, mask=at < p * q)
    tl.store(out + at, total, mask=at < m * k)


def sums(a, b, c):
    m, k = a.shape
    n, h = b.shape
    p, q = c.shape
    out = torch.empty_like(a)
    sums_kernel[(triton.cdiv(m * k, 256),)](a, b, c, out, m, k, n, h, p, q, B=256)
    return out
"""


def plan_of(scaffold: Scaffold) -> SuitePlan:
    assert scaffold.outcome is not None
    assert scaffold.outcome.plan is not None
    return scaffold.outcome.plan


def test_a_norm_behind_autograd_is_recognised_with_its_own_epsilon(stranger: Make) -> None:
    repository = stranger({"mk/__init__.py": NORM})
    plan = plan_of(plan_scaffold(repository.root))
    assert repository.git("status", "--porcelain", "--ignored") == ""
    assert plan.formula is not None
    assert plan.formula.reference == (
        "x.double() * torch.rsqrt((x.double() * x.double()).mean(-1, keepdim=True) + 0.001) * weight.double()"
    )
    assert [tensor.dimensions for tensor in plan.guess.tensors] == [("rows", "columns"), ("columns",)]
    assert plan.dtypes == ("float16", "float32")


def test_a_kernel_that_changes_its_input_is_passed_over_and_an_unknown_formula_is_asked_for(stranger: Make) -> None:
    scaffold = plan_scaffold(stranger({"mk/__init__.py": STRANGE}).root)
    plan = plan_of(scaffold)
    assert (plan.function, plan.formula, plan.guess.returns) == ("odd", None, "out")
    assert scaffold.outcome is not None
    assert [reason.partition(" ")[0] for reason in scaffold.outcome.reasons] == ["triple_"]
    assert "it changes its arguments" in scaffold.outcome.reasons[0]
    text = next(file.text for file in scaffold.files if file.path == "benchmarks/odd.py")
    assert 'raise NotImplementedError("write what odd computes, in float64")' in text
    assert scaffold.todo[0].startswith("Write the reference in benchmarks/odd.py")


def test_gluon_is_not_tried_and_said_to_be_gluon(stranger: Make) -> None:
    source = (
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n\n\n"
        "@gluon.jit\ndef copy_kernel(x, y):\n    gl.store(y, gl.load(x))\n\n\n"
        "def copy(x, y):\n    copy_kernel[(1,)](x, y)\n"
    )
    scaffold = plan_scaffold(stranger({"mk/__init__.py": source}).root)
    text = next(file.text for file in scaffold.files if file.path == "benchmarks/copy.py")
    assert "#   copy (mk/__init__.py:10): Triton's interpreter does not run Gluon" in text
    assert "# from mk import copy\n" in text


def test_a_function_of_more_dimensions_than_there_are_sizes_is_passed_over(stranger: Make) -> None:
    scaffold = plan_scaffold(stranger({"mk/__init__.py": MANY}).root)
    assert scaffold.outcome is not None
    assert scaffold.outcome.plan is None
    (reason,) = scaffold.outcome.reasons
    assert reason.startswith("sums (mk/__init__.py:")
    assert reason.endswith("it has more dimensions than a trial knows sizes for")


def test_time_that_is_up_leaves_a_template(stranger: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.scaffold.trial.LIMIT_S", 0.0)
    scaffold = plan_scaffold(stranger({"mk/__init__.py": STRANGE}).root)
    assert scaffold.outcome is not None
    assert scaffold.outcome.plan is None
    assert "the run was stopped" in scaffold.outcome.reasons[0]


def test_no_two_small_sizes_are_alike_and_the_largest_tensor_fits() -> None:
    shapes = {"a": ("b", "h", "m", "k"), "c": ("b", "h", "k", "n")}
    guess = Guess(
        arguments=("a", "c"),
        tensors=tuple(TensorGuess(name=name, dimensions=sizes) for name, sizes in shapes.items()),
        sizes=("b", "h", "m", "k", "n"),
    )
    for small in _small_sizes(guess):
        assert len(set(small.values())) == 5
    full = _full_sizes(guess, 24)
    assert full["b"] * full["h"] * full["m"] * full["k"] == 1 << 24
