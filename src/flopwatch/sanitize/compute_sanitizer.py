r"""How compute-sanitizer is called, and what its log says.

The log is text: versions from 2022 to 2026 agree on it but for small words, which are read here; that of its XML is
documented nowhere. A fault is a line that begins after one blank, and lines further in about it::

    ========= Invalid __global__ read of size 4 bytes
    =========     at copy_kernel+0x90 in kernels/copy.py:12
    =========     by thread (18,0,0) in block (3,0,0)
    =========     Access to 0x7f3c7ec00fa0 is out of bounds
    =========     and is 1 bytes after the nearest allocation at 0x7f3c7ec00000 of size 4,000 bytes
"""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.sanitize.findings import Access, Finding, Kind, merged
from flopwatch.sanitize.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

#: Faults are printed up to this many, one a thread; the first of each line of a kernel is enough.
PRINT_LIMIT = 10_000
#: Bytes behind each allocation in which every access is a fault. Without them a tensor whose size is a multiple of 512
#: bytes lies directly before the next.
PADDING_BYTES = 1 << 16
_PREFIX = "========="
_ACCESS = re.compile(r"(?:Potential )?[Ii]nvalid (\S+) (.+?) of size ([\d,]+) bytes?")
_UNINITIALISED = re.compile(r"Uninitialized (\S+) memory read of size ([\d,]+) bytes?")
_RACE = re.compile(r"(?:Error|Warning|Info): (?:\(.*?\) )?(Race reported|Potential \w+ hazard detected)")
_BARRIER = re.compile(r"Barrier error detected|Deadlock detected")
_QUIET = re.compile(r"COMPUTE-SANITIZER|.* SUMMARY: |Target application returned|Tracking kernels launched|$")
_BROKEN = re.compile(
    r"Internal Sanitizer [Ee]rror|Error: (?!Race|\(|Potential)|Internal error|No attachable process"
    r"|Target application terminated"
)
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: ([\d,]+)")
#: As it is now, "copy_kernel+0x90 in copy.py:12", and as it was until 2024, "0x90 in copy.py:12:copy_kernel".
_AT = re.compile(r"\bat (?P<kernel>(?!0x).+?)\+0x[0-9a-fA-F]+(?: in (?P<file>.+?):(?P<line>\d+))?(?=$| )")
_AT_BEFORE = re.compile(r"\bat 0x[0-9a-fA-F]+ in (?:(?P<file>.+):(?P<line>\d+):)?(?P<kernel>\S.*)$")
_FRAME = re.compile(r"Device Frame:\s*(?P<kernel>.+?)(?:\+0x[0-9a-fA-F]+| \[0x).*$")
_WHO = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_ADDRESS = re.compile(r"\b(?:Address|Access to|address) (0x[0-9a-fA-F]+)")
_HAZARDS = re.compile(r"\[([\d,]+) hazards?\]")
#: A function's first line, with nothing of its body.
_DEFINITION = re.compile(r"\s*def \w+\((?:.*[(,:])?\s*(?:#.*)?$")
#: What is told of a race there.
_DISPATCHED = "at the kernel's first line, where the compiler deals out warps: racecheck does not follow its barriers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """What a log says.

    Attributes:
        findings: each fault once.
        finished: whether the tool came to its end.
        problem: what the tool says is wrong with itself or its target; "" for nothing.
        is_cut: whether there were more faults than it prints.
    """

    findings: tuple[Finding, ...]
    finished: bool
    problem: str = ""
    is_cut: bool = False


def command(sanitizer: str, tool: Tool, log: Path) -> list[str]:
    """Return the start of a command line, which the program to look at follows.

    Errors of CUDA's functions are not reported: torch asks for much that may not be there. A faulty kernel ends, and
    others run on, so that one run tells of all of them.
    """
    options = ["--tool", tool.value, "--log-file", str(log), "--print-limit", str(PRINT_LIMIT)]
    options += ["--strip-paths", "no", "--show-backtrace", "device", "--destroy-on-device-error", "kernel"]
    if tool is Tool.MEMCHECK:
        options += ["--report-api-errors", "no", "--padding", str(PADDING_BYTES)]
    return [sanitizer, *options]


def read_log(text: str, launched: Collection[str]) -> Log:
    """Read a log.

    Args:
        text: of the log.
        launched: the names of Triton's kernels among all that ran.
    """
    problems = [head for head, _ in _blocks(text) if _BROKEN.match(head)]
    findings = [
        _finding(head, details, launched)
        for head, details in _blocks(text)
        if not _QUIET.match(head) and not _BROKEN.match(head)
    ]
    return Log(
        findings=merged(findings),
        finished=_SUMMARY.search(text) is not None,
        problem=problems[0] if problems else "",
        is_cut="were not printed" in text or len(findings) >= PRINT_LIMIT,
    )


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the first line of each message, and those that belong to it; an empty line is a message, too."""
    head, details = "", list[str]()
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        rest = line[len(_PREFIX) :]
        if rest.startswith("  "):
            details.append(rest.strip())
            continue
        yield head, details
        head, details = rest.strip(), []
    yield head, details


def _finding(head: str, details: list[str], launched: Collection[str]) -> Finding:
    kind, access, width = _nature(head, details)
    place = next((found for line in (head, *details) if (found := _AT.search(line) or _AT_BEFORE.search(line))), None)
    frames = [found["kernel"] for line in details if (found := _FRAME.search(line))]
    kernel = frames[-1] if frames else place["kernel"] if place else ""  # a function that a kernel calls comes first
    who = next((found for line in details if (found := _WHO.search(line))), None)
    numbers = tuple(map(int, who.groups())) if who else ()
    address = next((found[1] for line in (head, *details) if (found := _ADDRESS.search(line))), "")
    hazards = next((found[1] for line in (head, *details) if (found := _HAZARDS.search(line))), "1")
    told = [line for line in details if not line.startswith(("at ", "by ", "Device Frame", "Saved host", "Host Frame"))]
    dispatched = kind is Kind.RACE and place is not None and _is_definition(place["file"], place["line"])
    return Finding(
        kind=kind,
        what="; ".join([head, *told, *([_DISPATCHED] if dispatched else [])]),
        kernel=kernel,
        file=(place["file"] or "") if place else "",
        line=int(place["line"] or 0) if place else 0,
        access=access,
        element_bytes=width,
        address=address,
        thread=(numbers[0], numbers[1], numbers[2]) if numbers else None,
        block=(numbers[3], numbers[4], numbers[5]) if numbers else None,
        count=_number(hazards),
        own=kernel.partition("(")[0] in launched and not dispatched,
    )


def _is_definition(file: str | None, line: str | None) -> bool:
    return bool(file and line and _DEFINITION.match(linecache.getline(file, int(line))))


def _nature(head: str, details: list[str]) -> tuple[Kind, Access | None, int | None]:
    if found := _ACCESS.match(head):
        doing = found[2].lower()
        access = Access.ATOMIC if "atomic" in doing else Access.READ if "read" in doing else Access.WRITE
        misaligned = any("misaligned" in line for line in (head, *details))
        return (Kind.MISALIGNED if misaligned else Kind.OUT_OF_BOUNDS), access, _number(found[3])
    if found := _UNINITIALISED.match(head):
        return Kind.UNINITIALISED, Access.READ, _number(found[2])
    if _RACE.match(head):
        return Kind.RACE, None, None
    if _BARRIER.match(head):
        return Kind.BARRIER, None, None
    return Kind.OTHER, None, None


def _number(text: str) -> int:
    return int(text.replace(",", ""))
