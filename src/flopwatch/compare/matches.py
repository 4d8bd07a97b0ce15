"""Which cases are compared with which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.compare.result import ComparedCase, Contender
from flopwatch.errors import UndecidedError
from flopwatch.gate.static import select_cases
from flopwatch.selection import is_selected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.config import Config
    from flopwatch.measure.protocol import DeclaredCase, Hello


def match_sides(hello: Hello, select: str, config: Config) -> tuple[ComparedCase, ...]:
    """Match each selected case of the kernels under test with itself on the other side.

    Raises:
        SuiteError: head cannot import one of its own suites.
        UndecidedError: no case is selected.
    """
    return tuple(_compared(entry, entry, config) for entry in select_cases(hello, select))


def match_providers(
    declared: Sequence[DeclaredCase], providers: Sequence[str], select: str, config: Config
) -> tuple[ComparedCase, ...]:
    """Match the selected cases that are equal but for the provider, their last value.

    Args:
        declared: every case of the suites.
        providers: head's and base's, in this order.
        select: a part of the name of either case.
        config: of the repository.

    Raises:
        UndecidedError: there is no such case.
    """
    head, base = ({_point(entry): entry for entry in declared if entry.case.provider == name} for name in providers)
    found = tuple(
        _compared(base[point], entry, config)
        for point, entry in head.items()
        if point in base and is_selected(select, entry.case.id, base[point].case.id)
    )
    if not found:
        known = sorted({entry.case.provider for entry in declared})
        raise UndecidedError(
            f"no case{f' with {select!r} in its name' if select else ''} has both providers, {' and '.join(providers)}",
            why=f"the suites' providers are {', '.join(known) or 'none'}",
            todo="name two of them that a suite has at the same parameters, and choose cases with -k",
        )
    return found


def _point(entry: DeclaredCase) -> tuple[str, ...]:
    return (entry.case.suite, *entry.case.values[:-1])


def _compared(base: DeclaredCase, head: DeclaredCase, config: Config) -> ComparedCase:
    ceiling = head.max_diff_eps
    return ComparedCase(
        base=Contender(case=base.case),
        head=Contender(case=head.case),
        flops=head.flops,
        bytes_moved=head.bytes_moved,
        ceiling_eps=config.max_diff_eps if ceiling is None else ceiling,
    )
