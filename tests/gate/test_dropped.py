from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tests.compare.conftest import declared

from flopwatch.errors import FlopwatchError
from flopwatch.gate.dropped import MAX_LISTED, dropped_cases
from flopwatch.measure.protocol import Hello

if TYPE_CHECKING:
    from flopwatch.measure.client import Worker


def hello(*suites: str) -> Hello:
    cases = tuple(declared(suite, name) for suite in suites for name in ("flopwatch", "torch"))
    return Hello(gpu=None, gpu_uuid=None, compute_capability=None, versions={}, declared=cases, import_failures={})


class Imported:
    """Stands in for a worker that has imported base's suites, or cannot start."""

    def __init__(self, found: Hello | None) -> None:
        self._found = found

    @property
    def hello(self) -> Hello:
        if self._found is None:
            raise FlopwatchError("the static worker does not start", why="no memory")
        return self._found


def dropped(before: Hello | None, now: Hello, select: str = "") -> tuple[str, ...]:
    return dropped_cases(cast("Worker", Imported(before)), now, select)


def test_suites_that_are_the_same_drop_nothing() -> None:
    assert dropped_cases(None, hello("Add"), "") == ()


def test_kernels_under_test_are_missed_and_their_peers_are_not() -> None:
    assert dropped(hello("Add", "Matmul"), hello("Add", "Softmax")) == (
        f"no longer declared by the suites, so not compared: {declared('Matmul').case.id}",
    )


def test_what_is_not_selected_is_not_missed() -> None:
    assert dropped(hello("Add", "Matmul"), hello(), "softmax or add") == dropped(hello("Add"), hello())


def test_of_many_cases_the_first_are_named() -> None:
    (note,) = dropped(hello(*(f"Suite{number}" for number in range(MAX_LISTED + 3))), hello())
    assert note.endswith("Suite4[1024,flopwatch] and 3 more")


def test_suites_that_do_not_start_are_told_of() -> None:
    assert dropped(None, hello("Add")) == (
        "whether head's suites lack a case of base's is not known: the static worker does not start (no memory)",
    )
