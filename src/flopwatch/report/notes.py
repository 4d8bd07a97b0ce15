"""What every report says beside the verdicts: where they come from, and what accuses nobody; plain strings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flopwatch.model import Mark
from flopwatch.report.headline import slower_in_time, slower_to_launch
from flopwatch.report.wording import count, grouped, several
from flopwatch.units import format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.gate import GateResult

#: Beside a result that has no GPU: silence about time must not look like a verdict on it.
WITHOUT_GPU = "Not measured: time and memory, and numbers at full size. That needs a GPU; this machine has none."


def provenance(result: GateResult, promise: str = "") -> Iterator[str]:
    """Yield what was compared with what, on which machine, for how long, and how far it is to be believed.

    Args:
        result: of a gate.
        promise: what holds of the verdicts of pairs, where there are any.
    """
    parts = [f"{short_commit(result.base)} -> {short_commit(result.head)}", result.gpu or "no GPU"]
    known = result.versions
    if result.machine is not None:
        known = result.machine.versions
        if result.machine.gpu is not None and result.machine.gpu.driver:
            parts[1] += f", driver {result.machine.gpu.driver}"
    parts.append(", ".join(f"{name} {version}" for name, version in known.items()))
    if not result.pairs:
        parts.append(format_seconds(result.seconds))
    yield "; ".join(parts)
    if result.pairs:
        stages = Counter(pair.stage for pair in result.pairs)
        told = f" ({', '.join(f'{number} to {stage}' for stage, number in stages.items())})" if len(stages) > 1 else ""
        measured = format_seconds(sum(pair.seconds for pair in result.pairs))
        kept = "" if result.unfit or result.interrupted or not promise else f"; {promise}"
        yield (
            f"{count(len(result.pairs), 'pair')} of processes{told}, {measured} of measuring,"
            f" {format_seconds(result.seconds)} in all{kept}"
        )


def quiet_notes(result: GateResult) -> list[str]:
    """Return what is worth knowing and accuses nobody, once for all the cases that it is about."""
    # The reasons of the others are told where they are explained.
    quiet = [verdict for verdict in result.verdicts if verdict.mark in (None, Mark.SAME, Mark.FASTER)]
    about = [(verdict.reason, verdict.case.id) for verdict in quiet if verdict.reason]
    explained = [verdict.case for verdict in (*slower_in_time(result), *slower_to_launch(result))]
    told = [verdict for verdict in result.verdicts if verdict.case not in explained]
    about += [(note, verdict.case.id) for verdict in told for note in verdict.notes]
    return [f"{several(cases)}: {text}" for text, cases in grouped(about)] + list(result.notes)
