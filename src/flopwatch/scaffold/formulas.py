"""What kernels commonly compute, in torch: a trial finds out whether one of these is what a launch function returns.

Only a formula that agrees with the kernel on several random inputs goes into a suite, so that a wrong guess costs
nothing but the suite's reference. ``{a}``, ``{b}`` and ``{c}`` stand for the tensors in their order, ``{s}`` for the
number.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.scaffold.arguments import Guess, TensorGuess

_PLACES = "abc"
#: An epsilon, where a formula needs one and the launch function has no default that might be it.
_EPSILONS = ("1e-05", "1e-06")


@dataclass(frozen=True, kw_only=True, slots=True)
class Formula:
    """A reference, and what it costs.

    Attributes:
        reference: the result.
        flops: floating-point operations, in the sizes of the tensors: ``{a_all}`` elements, ``{a_rows}`` of them
            without the last dimension, ``{a_last}`` and ``{a_next}`` the last and the one before.
        written: elements of the result, likewise.
    """

    reference: str
    flops: str = "{a_all}"
    written: str = "{a_all}"


def _each(*references: str, flops: str = "{a_all}") -> tuple[Formula, ...]:
    return tuple(Formula(reference=reference, flops=flops) for reference in references)


_F = "torch.nn.functional."
_RMS = "{a} * torch.rsqrt(({a} * {a}).mean(-1, keepdim=True) + {s})"
_PRODUCT = "2 * {a_all} * {b_last}"
_PRODUCT_OF_ROWS = "2 * {a_all} * {b_next}"

_FORMULAS: tuple[Formula, ...] = (
    *_each("{a} + {b}", "{a} * {b}", "{a} - {b}", "{a} / {b}", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})"),
    *_each("{a} * {s}", "{a} + {s}", "{a} / {s}", "{a} - {s}"),
    *_each("torch.relu({a})", "{a}", "{a} * {a}", "-{a}", "{a}.abs()", "{a} * 2", "{a} + 1"),
    *_each("{a} * {b} + {c}", "{a} + {b} + {c}", "torch.relu({a} + {b})", "torch.relu({a} * {b})", flops="2 * {a_all}"),
    *_each("{s} * {a} + {b}", "{a} + {s} * {b}", "{a} * {s} + {b}", flops="2 * {a_all}"),
    *_each(f"{_F}leaky_relu({{a}}, {{s}})", f"{_F}leaky_relu({{a}})", flops="2 * {a_all}"),
    *_each("torch.exp({a})", "torch.sigmoid({a})", "torch.tanh({a})", "torch.sin({a})", "torch.cos({a})"),
    *_each(f"{_F}silu({{a}})", f"{_F}gelu({{a}})", f'{_F}gelu({{a}}, approximate="tanh")', flops="8 * {a_all}"),
    *_each(f"{_F}silu({{a}}) * {{b}}", f"{_F}gelu({{a}}) * {{b}}", flops="9 * {a_all}"),
    *_each(f'{_F}gelu({{a}}, approximate="tanh") * {{b}}', f"{{a}} * {_F}silu({{b}})", flops="9 * {a_all}"),
    *_each("torch.softmax({a}, dim=-1)", "torch.log_softmax({a}, dim=-1)", flops="5 * {a_all}"),
    *_each("torch.softmax({a} * {s}, dim=-1)", flops="6 * {a_all}"),
    *_each(_RMS, f"{_RMS} * {{b}}", flops="4 * {a_all}"),
    *_each(f"{_F}layer_norm({{a}}, {{a_name}}.shape[-1:], eps={{s}})", flops="6 * {a_all}"),
    *_each(f"{_F}layer_norm({{a}}, {{a_name}}.shape[-1:], {{b}}, {{c}}, {{s}})", flops="8 * {a_all}"),
    *_each("{a}.cumsum(-1)", "{a}.mT"),
    Formula(reference="{a}.sum(-1)", written="{a_rows}"),
    Formula(reference="{a}.mean(-1)", written="{a_rows}"),
    Formula(reference="{a}.amax(-1)", written="{a_rows}"),
    Formula(reference="{a}.sum(-2)", written="{a_all} // {a_next}"),
    Formula(reference="{a}.sum()", written="1"),
    Formula(reference="({a} * {b}).sum()", flops="2 * {a_all}", written="1"),
    Formula(reference="{a} @ {b}", flops=_PRODUCT, written="{a_rows} * {b_last}"),
    Formula(reference="{a} @ {b}.mT", flops=_PRODUCT_OF_ROWS, written="{a_rows} * {b_next}"),
    Formula(reference="{a} @ {b} + {c}", flops=_PRODUCT, written="{a_rows} * {b_last}"),
    Formula(reference="{a} @ {b}.mT + {c}", flops=_PRODUCT_OF_ROWS, written="{a_rows} * {b_next}"),
    *(
        Formula(
            reference=f"{_F}scaled_dot_product_attention({{a}}, {{b}}, {{c}}{more})",
            flops=f"{factor} * {{a_all}} * {{b_next}}",
        )
        for more, factor in (("", 4), (", scale={s}", 4), (", is_causal=True", 2), (", is_causal=True, scale={s}", 2))
    ),
)


def formulas_for(guess: Guess) -> Iterator[Formula]:
    """Yield the formulas that fit the number of arguments, with their names filled in.

    >>> from flopwatch.scaffold.arguments import Guess, TensorGuess
    >>> vectors = tuple(TensorGuess(name=name, dimensions=("n",)) for name in ("x", "y"))
    >>> formula = next(formulas_for(Guess(arguments=("x", "y"), tensors=vectors, sizes=("n",))))
    >>> formula.reference, formula.flops
    ('x.double() + y.double()', 'n')
    """
    tensors = guess.inputs
    words: dict[str, str] = {}
    for place, tensor in zip(_PLACES, tensors, strict=False):
        words |= {f"{place}{key}": text for key, text in _words(tensor).items()}
    wanted = set(_PLACES[: len(tensors)])
    numbers = (*guess.numbers, *(repr(default) for default in guess.defaults)) or _EPSILONS
    for formula in _FORMULAS:
        fields = _fields(formula.reference)
        costs = _fields(formula.flops) | _fields(formula.written)
        if (
            {name[0] for name in fields - {"s"}} != wanted
            or ("s" not in fields and guess.numbers)
            or costs - set(words)
        ):
            continue
        for number in numbers if "s" in fields else ("",):
            texts = (text.format(**words, s=number) for text in (formula.reference, formula.flops, formula.written))
            reference, flops, written = texts
            yield Formula(reference=reference, flops=flops, written=written)


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def elements(tensor: TensorGuess) -> str:
    """Write the number of a tensor's elements."""
    return " * ".join(tensor.dimensions)


def _words(tensor: TensorGuess) -> dict[str, str]:
    names = tensor.dimensions
    words = {
        "": f"{tensor.name}.double()",
        "_name": tensor.name,
        "_all": elements(tensor),
        "_rows": " * ".join(names[:-1]) or "1",
        "_last": names[-1],
    }
    return words | ({"_next": names[-2]} if len(names) > 1 else {})
