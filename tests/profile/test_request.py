from __future__ import annotations

import pytest
from tests.compare.conftest import declared

from flopwatch.errors import UndecidedError
from flopwatch.profile.request import choose

CASES = tuple(
    declared(suite, provider) for suite in ("Matmul", "MatmulSizes", "Add") for provider in ("flopwatch", "torch")
)


def chosen(select: str, *providers: str) -> list[str]:
    return [entry.case.id for entry in choose(CASES, select, providers)]


def test_cases_of_one_point_stand_together() -> None:
    apart = (CASES[0], CASES[2], CASES[1], CASES[3])
    names = [(entry.case.suite, entry.case.provider) for entry in choose(apart, "matmul", ())]
    assert names == [
        ("Matmul", "flopwatch"),
        ("Matmul", "torch"),
        ("MatmulSizes", "flopwatch"),
        ("MatmulSizes", "torch"),
    ]


def test_a_case_named_in_full_is_alone() -> None:
    name = CASES[1].case.id
    assert chosen(name) == [name]


def test_a_name_in_full_is_that_case_where_others_have_it_in_theirs() -> None:
    longer = declared("SparseMatmul", "torch")
    assert [entry.case.id for entry in choose((longer, *CASES), CASES[1].case.id, ())] == [CASES[1].case.id]


def test_providers_are_those_of_the_points_that_are_named() -> None:
    ours, torchs = (entry.case.id for entry in CASES[:2])
    assert chosen(ours, "torch") == [torchs]
    assert chosen("Matmul[", "torch", "flopwatch") == [ours, torchs]


@pytest.mark.parametrize(
    ("select", "providers", "what"),
    [
        ("Softmax", (), "no case matches 'Softmax'"),
        ("Softmax", ("torch",), "no case matches 'Softmax'"),
        ("Matmul", ("cudnn", "cublas"), "no case matches 'Matmul' of cudnn, cublas"),
    ],
)
def test_nothing_that_matches_is_said_with_what_there_is(select: str, providers: tuple[str, ...], what: str) -> None:
    with pytest.raises(UndecidedError) as caught:
        choose(CASES, select, providers)
    assert caught.value.what == what
    assert caught.value.why == "the suites declare 6 cases; their providers are flopwatch, torch"


def test_what_cannot_be_imported_may_be_what_has_the_case() -> None:
    with pytest.raises(UndecidedError) as caught:
        choose(CASES, "Softmax", (), {"bench_softmax": "ImportError: no name 'softmax'"})
    assert caught.value.why.endswith("; bench_softmax cannot be imported: ImportError: no name 'softmax'")


def test_where_nothing_is_declared_there_are_no_providers() -> None:
    with pytest.raises(UndecidedError) as caught:
        choose((), "Matmul", ())
    assert caught.value.why == "the suites declare 0 cases; their providers are none"
