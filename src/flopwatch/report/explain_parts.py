"""What an explanation says, part by part; the same in a terminal, in Markdown and on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.explain.ranking import brief
from flopwatch.report.explain_part import Part
from flopwatch.report.explain_profile import profile_parts
from flopwatch.report.roofline import Placed, told
from flopwatch.report.wording import count
from flopwatch.static.devices import device_called, find_device
from flopwatch.static.sass import ALL
from flopwatch.units import format_bytes, format_rate, format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.explain.result import Difference, Explanation, Story
    from flopwatch.model import KernelFacts
    from flopwatch.static.device import Device

#: Rows of instructions that differ; a rewrite has more.
MAX_ROWS = 24
_TERA = 1e12


def headline(explanation: Explanation) -> str:
    """Return the first line: the likeliest cause."""
    return f"Likely cause: {explanation.cause}."


def about(explanation: Explanation) -> str:
    """Say what was compared."""
    sides = " -> ".join(short_commit(name) for name in (explanation.base, explanation.head))
    return f"{explanation.case.id}; {sides}; compiled for {explanation.device}"


def parts(explanation: Explanation) -> Iterator[Part]:
    """Yield what else there is to say, the most telling first."""
    if explanation.profile is not None:
        yield from profile_parts(explanation.profile)
    for story in explanation.stories:
        yield from _story(story)
    if lines := tuple(_roofline(explanation)):
        yield Part(title="Roofline", lines=lines)
    notes = (*explanation.notes, *(explanation.profile.notes if explanation.profile else ()))
    if notes:
        yield Part(title="Notes", lines=notes)


def _story(story: Story) -> Iterator[Part]:
    kernel, base, head = story.pair.kernel, story.pair.base, story.pair.head
    if base is None or head is None:
        side = "head" if base is None else "base"
        fact = story.pair.either
        yield Part(title=f"{kernel}: launched by {side} alone", lines=(fact.config, *_facts(fact)))
        return
    if story.pair.same_code and not story.pair.changes:
        yield Part(title=f"{kernel}: the same code", lines=(head.config,))
        return
    lines = [f"{change.severity.value}: {brief(change)}" for change in story.pair.changes]
    lines = lines or ["other code, of equal registers, spills and shared memory"]
    if story.others:
        lines.append(f"{count(story.others, 'more configuration')} of it changed; this one changed most")
    yield Part(title=f"{kernel}: what changed, in order of likely effect", lines=tuple(lines))
    yield Part(
        title=f"{kernel}: configuration",
        lines=(head.config,) if base.config == head.config else (f"base: {base.config}", f"head: {head.config}"),
    )
    yield from _instructions(kernel, base, head)
    for difference in story.differences:
        yield _difference(kernel, difference)
    if story.alike:
        yield Part(
            title=f"{kernel}: the same on both sides", lines=(", ".join(level.upper() for level in story.alike),)
        )


def _facts(fact: KernelFacts) -> Iterator[str]:
    if fact.failure is not None:
        yield f"does not compile or fit: {fact.failure.kind}: {fact.failure.message.splitlines()[0]}"
    elif fact.registers is not None:
        yield f"{fact.registers} registers, {format_bytes(fact.spill_bytes or 0)} spilled"


def _instructions(kernel: str, base: KernelFacts, head: KernelFacts) -> Iterator[Part]:
    """Yield the numbers of instructions that differ, and of all together."""
    title = f"{kernel}: machine instructions"
    if not base.instructions or not head.instructions:
        why = base.uncounted or head.uncounted
        if why:
            yield Part(title=title, lines=(f"not counted: {why}",))
        return
    tables = (base.instructions, head.instructions, base.loop_instructions, head.loop_instructions)
    names = sorted({name for table in tables for name in table} - {ALL})
    numbers = {name: [table.get(name, 0) for table in tables] for name in names}
    moved = [name for name in names if numbers[name][0] != numbers[name][1] or numbers[name][2] != numbers[name][3]]
    moved.sort(
        key=lambda name: -max(abs(numbers[name][1] - numbers[name][0]), abs(numbers[name][3] - numbers[name][2]))
    )
    rows = [(name, *map(str, numbers[name])) for name in moved[:MAX_ROWS]]
    rows.append((ALL, *(str(table.get(ALL, 0)) for table in tables)))
    lines = []
    if moved[MAX_ROWS:]:
        lines.append(f"and of {len(moved) - MAX_ROWS} more, less far")
    if len(names) > len(moved):
        lines.append(f"as many of each on both sides: {', '.join(name for name in names if name not in moved)}")
    yield Part(
        title=title,
        header=("class", "base", "head", "base, in loops", "head, in loops"),
        rows=tuple(rows),
        lines=tuple(lines),
    )


def _difference(kernel: str, difference: Difference) -> Part:
    base, head = difference.base_source, difference.head_source
    place = head or base
    moved = f" (base: {base})" if base and head and base != head else ""
    where = f" at {place}{moved}" if place else ""
    size = f"{count(difference.removed, 'line')} of base, {difference.added} of head"
    return Part(
        title=f"{kernel}: {difference.level.upper()} first differs{where}; {size}", lines=difference.lines, is_code=True
    )


def _roofline(explanation: Explanation) -> Iterator[str]:
    """Yield where the case stands under the roof: by its work, and by its times where they are known."""
    flops, moved = explanation.flops, explanation.bytes_moved
    if flops < 1 or moved < 1:
        return
    yield _bound(explanation, find_device(explanation.device))
    case, measured = measured_case(explanation), device_called(explanation.gpu)
    if case is None:
        yield "not measured: flopwatch gate --json on a GPU measures it, and --result shows it here"
    elif measured is None:
        times = ", ".join(f"{name} {format_seconds(time)}" for name, time in case.seconds.items())
        yield f"{times}; the peaks of the {explanation.gpu} are not known"
    else:
        yield told(case, measured)


def measured_case(explanation: Explanation) -> Placed | None:
    """Return the place of the case under the roof; None where it was not timed, or its work is not known."""
    sides = (("base", explanation.base_seconds), ("head", explanation.head_seconds))
    seconds = {name: time for name, time in sides if time}
    if not seconds or explanation.flops < 1 or explanation.bytes_moved < 1:
        return None
    return Placed(
        name="measured",
        kind="none",
        flops=explanation.flops,
        bytes_moved=explanation.bytes_moved,
        seconds=seconds,
        values=explanation.case.values,
    )


def _bound(explanation: Explanation, device: Device) -> str:
    flops, moved, values = explanation.flops, explanation.bytes_moved, explanation.case.values
    peak = device.peak_tflops(values)
    if flops / (peak * _TERA) >= moved / (device.memory_gbps * 1e9):
        limit = f"arithmetic, {format_rate(peak * _TERA, 'TFLOPS')}"
    else:
        limit = f"memory, {format_rate(device.memory_gbps * 1e9, 'GB/s')}"
    least = format_seconds(device.least_seconds(flops, moved, values))
    work = f"{flops:.4g} FLOPs and {format_bytes(int(moved))}, {flops / moved:.4g} FLOPs a byte"
    return f"{work}: at best {least} on {device.key}, bound by {limit}"
