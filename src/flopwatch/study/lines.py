"""The lines of a study, and the points at which they meet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import SuiteError, UndecidedError, UsageError
from flopwatch.measure.protocol import DeclaredCase
from flopwatch.pattern import matches
from flopwatch.study.declaration import Declaration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.protocol import Hello
    from flopwatch.study.declaration import Conclusion


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A case by its line and its point."""

    line: str
    at: str
    declared: DeclaredCase


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What is measured.

    Attributes:
        suite: its name.
        declaration: of the study; of another suite, one without conclusions.
        across: the other parameters, whose values name the points.
        lines: in the order in which they are declared.
        points: likewise.
        spots: a case each; not every line has every point.
    """

    suite: str
    declaration: Declaration
    across: str
    lines: tuple[str, ...]
    points: tuple[str, ...]
    spots: tuple[Spot, ...]

    @property
    def base(self) -> str:
        """The line in whose units the others are told: the study's, or the first of what is selected."""
        return self.declaration.base if self.declaration.base in self.lines else self.lines[0]


def lay_out(hello: Hello, *, suite: str, parameter: str, select: str) -> Layout:
    """Find the lines and the points of one suite.

    Args:
        hello: what a worker says that imported the suites.
        suite: the study's name; "" takes the one suite of which cases are selected.
        parameter: whose values take turns; "" is as the study declares.
        select: only cases whose name has this in it.

    Raises:
        UsageError: there is no such study, the suite has no such parameter, or there are several suites.
        UndecidedError: no case is selected.
        SuiteError: the study could not be imported, or names a line that it has not.
    """
    chosen = [
        entry for entry in hello.declared if suite in ("", entry.case.suite) and select.lower() in entry.case.id.lower()
    ]
    names = list(dict.fromkeys(entry.case.suite for entry in chosen))
    if (exact := select.partition("[")[0]) in names:  # Matmul[ is in Float32Matmul[ too
        names = [exact]
        chosen = [entry for entry in chosen if entry.case.suite == exact]
    if not names:
        raise _nothing(hello, suite, select)
    if len(names) > 1:
        raise UsageError(
            f"the values of one suite are compared, and {len(names)} are selected",
            why=", ".join(names),
            todo=f"choose one with -k, as in -k {names[0]}",
        )
    name, parameters = names[0], hello.parameters[names[0]]
    declared = hello.studies.get(name) or Declaration(line=parameter, base="", conclusions=())
    wanted = parameter or declared.line
    own = parameters[:-1]
    if wanted not in own:
        raise UsageError(f"{name} has no parameter {wanted!r}", why=f"it has {', '.join(own) or 'none'}")
    if wanted != declared.line:  # its conclusions are about other lines
        declared = Declaration(line=wanted, base="", conclusions=())
    everything = [entry for entry in hello.declared if entry.case.suite == name]
    spots = _spots(chosen, everything, own.index(wanted))
    layout = Layout(
        suite=name,
        declaration=declared,
        across=", ".join(each for each in own if each != wanted),
        lines=tuple(dict.fromkeys(spot.line for spot in spots)),
        points=tuple(dict.fromkeys(spot.at for spot in spots)),
        spots=spots,
    )
    _require_lines(layout, {spot.line for spot in _spots(everything, everything, own.index(wanted))})
    return layout


def lines_of(conclusion: Conclusion, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines against which a conclusion holds its own."""
    found = (line for line in lines if any(matches(pattern, line) for pattern in conclusion.than))
    return tuple(line for line in found if line != conclusion.line)


def _spots(chosen: Sequence[DeclaredCase], everything: Sequence[DeclaredCase], index: int) -> tuple[Spot, ...]:
    values = defaultdict(set)
    for entry in everything:
        values[entry.case.provider].add(entry.case.values[index])

    def spot(entry: DeclaredCase) -> Spot:
        provider, value = entry.case.provider, entry.case.values[index]
        rest = [each for place, each in enumerate(entry.case.values[:-1]) if place != index]
        line = provider if len(values[provider]) == 1 else f"{provider} {value}"
        return Spot(line=line, at=",".join(rest), declared=entry)

    return tuple(map(spot, chosen))


def _require_lines(layout: Layout, known: set[str]) -> None:
    declared = layout.declaration
    named = {*([declared.base] if declared.base else []), *(each.line for each in declared.conclusions)}
    if missing := sorted(named - known):
        raise SuiteError(
            f"study {layout.suite} has no line {', '.join(missing)}", why=f"its lines are {', '.join(sorted(known))}"
        )


def _nothing(hello: Hello, suite: str, select: str) -> SuiteError | UsageError | UndecidedError:
    if hello.import_failures:
        causes = "; ".join(f"{name}: {cause}" for name, cause in hello.import_failures.items())
        return SuiteError("a suite cannot be imported", why=causes, todo="import it in Python to see the traceback")
    suites = {entry.case.suite for entry in hello.declared}
    known = ", ".join(sorted(suites)) or "none"
    if suite and suite not in suites:
        return UsageError(f"there is no study {suite}", why=f"there are {known}", todo="name one of these with --study")
    what = f"no case of {suite or 'any suite'}{f' has {select!r} in its name' if select else ''}"
    return UndecidedError(what, why=f"there are {known}", todo="choose cases with -k, and studies by name")
