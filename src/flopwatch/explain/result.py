"""What is known of why a case got slower, as records."""

from __future__ import annotations

from dataclasses import dataclass

from flopwatch.explain.pairing import FactPair
from flopwatch.model import SCHEMA_VERSION, Case
from flopwatch.profile.result import ProfiledPair


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Where the two sides of a kernel first differ at one level.

    Attributes:
        level: "ttir" and so on.
        base_source: file and line of the source of the first differing line there, "matmul.py:112"; "" if unknown.
        head_source: likewise of head.
        lines: of the first place that has a source, as a unified diff has them.
        removed: lines of base that differ at this level, all together.
        added: likewise of head.
    """

    level: str
    base_source: str = ""
    head_source: str = ""
    lines: tuple[str, ...] = ()
    removed: int = 0
    added: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """What became of one kernel of the case.

    Attributes:
        pair: its facts in the configuration whose changes explain most, and these changes.
        differences: where it first differs, by level, those alike left out.
        alike: levels at which both sides say the same.
        others: further configurations of it in which something changed.
    """

    pair: FactPair
    differences: tuple[Difference, ...] = ()
    alike: tuple[str, ...] = ()
    others: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The answer to "why is it slower".

    Attributes:
        case: the case.
        base: hash of the base commit.
        head: hash of the head commit, or "working tree".
        device: the GPU that the kernels were compiled for.
        cause: the likeliest one, in a sentence.
        stories: of the kernels, the most telling first.
        flops: floating-point operations of one call, as head's suite declares them.
        bytes_moved: bytes that one call must move, likewise.
        gpu: what measured the seconds; None where nothing did.
        base_seconds: of a call, from a gate's result, or from the profile where there is none; None without both.
        head_seconds: likewise.
        profile: of both sides, where a GPU is.
        notes: what else is worth knowing.
    """

    case: Case
    base: str
    head: str
    device: str
    cause: str
    stories: tuple[Story, ...] = ()
    flops: float = 0.0
    bytes_moved: float = 0.0
    gpu: str | None = None
    base_seconds: float | None = None
    head_seconds: float | None = None
    profile: ProfiledPair | None = None
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
