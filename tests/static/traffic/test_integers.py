from __future__ import annotations

import numpy as np
import pytest

from flopwatch.static.traffic.integers import computed
from flopwatch.static.traffic.program import Operation, Type
from flopwatch.static.traffic.tiles import Tile, constant, tile

I32, I64, I1, I8 = (Type(shape=(), element=name) for name in ("i32", "i64", "i1", "i8"))


def compute(text: str, *operands: Tile, of: Type = I32, to: Type = I32) -> int | None:
    name = text.split(" ", maxsplit=1)[0]
    operation = Operation(name, (9,), tuple(range(len(operands))), text, (), (), "")
    result = computed(operation, operands, [of] * len(operands), to)
    return None if result is None else int(result.scalar()[0])


@pytest.mark.parametrize(
    ("name", "one", "other", "expected"),
    [
        ("divsi", -7, 2, -3),
        ("divsi", 7, -2, -3),
        ("remsi", -7, 2, -1),
        ("remsi", 7, -2, 1),
        ("floordivsi", -7, 2, -4),
        ("ceildivsi", 7, 2, 4),
        ("divui", -1, 2, 2**31 - 1),
        ("remui", -1, 10, (2**32 - 1) % 10),
        ("shrsi", -8, 1, -4),
        ("shrui", -8, 1, 2**31 - 4),
        ("shli", 1, 31, -(2**31)),
        ("minui", -1, 3, 3),
        ("maxsi", -1, 3, 3),
        ("addi", 2**31 - 1, 1, -(2**31)),
        ("muli", 2**16, 2**16, 0),
        ("xori", 6, 3, 5),
    ],
)
def test_arithmetic_is_that_of_thirty_two_bits(name: str, one: int, other: int, expected: int) -> None:
    assert expected == compute(f"arith.{name} %0, %1 : i32", constant(one, 0), constant(other, 0))


@pytest.mark.parametrize(
    ("predicate", "expected"), [("slt", 1), ("ult", 0), ("sge", 0), ("ugt", 1), ("eq", 0), ("ne", 1)]
)
def test_comparisons_know_signs_where_they_should(predicate: str, expected: int) -> None:
    assert expected == compute(f"arith.cmpi {predicate}, %0, %1 : i32", constant(-1, 0), constant(1, 0), to=I1)


@pytest.mark.parametrize(
    ("text", "value", "kinds", "expected"),
    [
        ("arith.extsi %0 : i8 to i32", -1, (I8, I32), -1),
        ("arith.extui %0 : i8 to i32", -1, (I8, I32), 255),
        ("arith.trunci %0 : i32 to i8", 300, (I32, I8), 44),
        ("arith.trunci %0 : i32 to i1", 3, (I32, I1), 1),
        ("arith.constant -5 : i64", 0, (I32, I64), -5),
    ],
)
def test_conversions_keep_the_bits(text: str, value: int, kinds: tuple[Type, Type], expected: int) -> None:
    operands = () if "constant" in text else (constant(value, 0),)
    assert expected == compute(text, *operands, of=kinds[0], to=kinds[1])


def test_truth_values_extend_to_minus_one_or_to_one() -> None:
    yes = tile(np.array([True]))
    assert (-1, 1) == (
        compute("arith.extsi %0 : i1 to i32", yes, of=I1),
        compute("arith.extui %0 : i1 to i32", yes, of=I1),
    )


def test_equality_is_not_concluded_from_both_ends() -> None:
    operation = Operation("arith.cmpi", (9,), (0, 1), "arith.cmpi eq, %0, %1 : tensor<3xi32>", (), (), "")
    kind = Type(shape=(3,), element="i32")
    result = computed(
        operation, [tile(np.arange(-1, 2)[None, :]), constant(0, 1)], [kind, kind], Type(shape=(3,), element="i1")
    )
    assert result is not None
    assert [False, True, False] == result.whole().reshape(-1).tolist()


@pytest.mark.parametrize("text", ["arith.addf %0, %0 : i32", "tt.elementwise_inline_asm %0", "arith.constant dense<"])
def test_what_is_not_known_is_not_computed(text: str) -> None:
    assert compute(text, constant(1, 0)) is None
