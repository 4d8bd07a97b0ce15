"""What each key of somebody else's result may hold: patterns of names, ranges of numbers, most entries.

Data alone; `flopwatch.report.untrusted` reads by it.
"""

from __future__ import annotations

import math

from flopwatch.config import MAX_CONCLUSIONS
from flopwatch.gate import CaseVerdict, GateResult, PairLog, Uncovered
from flopwatch.gate.conclusions import CONFIRM_ROUNDS, PATH, Beside, Look, WatchedConclusion
from flopwatch.measure.machine import Gpu, Machine
from flopwatch.model import WORKING_TREE, Case, Choice, Failure, KernelFacts, Numbers
from flopwatch.sanitize import CaseReport, Sanitized
from flopwatch.static.comparison import FactChange
from flopwatch.verdict import Side
from flopwatch.waivers import Waiver, WaiverUse

#: Of a file. A fact has 1.2 KB (``evidence/static``, 2026-11-22), so that 400 configurations a side come to 1 MiB.
MAX_BYTES = 4 << 20
#: Of objects in each other.
MAX_DEPTH = 16
MAX_ENTRIES = 5000
MAX_CHARACTERS = 4000
#: Compilers say more.
MAX_MESSAGE = 20_000
#: Digits of an integer; a byte count of 64 bits has 19.
MAX_DIGITS = 19
#: Of one kernel with one kind of arguments: each is held against each other where a cause is looked for.
MAX_CONFIGURATIONS = 256
#: Facts of a side.
MAX_FACTS = 2000
#: A log ratio beyond this, a factor of 485 million, is no measurement.
MAX_LOG_RATIO = 20.0

_WORD = "[A-Za-z0-9_.+-]{1,80}"
_VALUE = "[A-Za-z0-9_.=+-]{1,80}"
_VALUES = 16
_SUITE = "[A-Za-z_][A-Za-z0-9_]{0,79}"
_CASE = rf"{_SUITE}\[{_VALUE}(?:,{_VALUE}){{0,{_VALUES - 1}}}\]"
#: Of a study: a provider, and its value where it has several.
_LINE = f"{_VALUE}(?: {_VALUE})?"
#: A name, and a number where a case launches several kernels of it.
_KERNEL = rf"{_WORD}(?: \([0-9]{{1,3}}\))?"
_HASH = "[0-9a-f]{7,64}"
_PRODUCT = "[A-Za-z0-9][A-Za-z0-9 ._()+-]{0,119}"
_IDENTIFIER = r"[A-Za-z0-9_:+/.=-]{0,128}"
#: What strings that are names must match; all others are text, of which only the length is bounded.
NAMES: dict[tuple[type, str], str] = {
    (GateResult, "base"): _HASH,
    (GateResult, "head"): f"{_HASH}|{WORKING_TREE}",
    (GateResult, "gpu"): _PRODUCT,
    (GateResult, "device"): _WORD,
    (GateResult, "versions"): "[A-Za-z0-9_.+-]{0,80}",
    (Case, "suite"): _SUITE,
    (Case, "values"): _VALUE,
    (CaseVerdict, "method"): "graph|events|",
    (PairLog, "stage"): "screen|confirm|confirm launch",
    (Side, "bits"): rf"{_WORD} \([0-9, ]*\) {_HASH}",
    (Numbers, "dtype"): _WORD,
    (Numbers, "bitwise"): _IDENTIFIER,
    (Choice, "kernel"): _WORD,
    (Failure, "kind"): _WORD,
    (KernelFacts, "kernel"): _KERNEL,
    (KernelFacts, "device"): _WORD,
    (KernelFacts, "config"): r"[A-Za-z0-9_.,=:<>()\[\]' +*-]{0,1000}",
    (KernelFacts, "variant"): r"[A-Za-z0-9_.,=:<>()\[\]' +*-]{0,1000}",
    (KernelFacts, "occupancy_limit"): "[a-z ]{0,40}",
    (KernelFacts, "code_fingerprint"): _IDENTIFIER,
    (FactChange, "kernel"): _KERNEL,
    (FactChange, "device"): _WORD,
    (FactChange, "fact"): "[a-z ]{1,40}",
    (Uncovered, "side"): "base|head",
    (Beside, "other"): _LINE,
    (Beside, "at"): rf"(?:{_VALUE}(?:,{_VALUE}){{0,{_VALUES - 1}}})?",
    (Look, "stage"): "screen|confirm",
    (Look, "side"): "base|head",
    (WatchedConclusion, "study"): _SUITE,
    (WatchedConclusion, "line"): f"{_LINE}|",
    (Waiver, "case"): r"[A-Za-z0-9_.=+,\[\]*?-]{1,200}",
    (WaiverUse, "case_id"): f"{_CASE}|",
    (Machine, "versions"): "[A-Za-z0-9_.+-]{0,80}",
    (Machine, "cpu_model"): r"[A-Za-z0-9 ._()@/+-]{0,119}",
    (Gpu, "name"): _PRODUCT,
    (Gpu, "uuid"): _IDENTIFIER,
    (Gpu, "pci_bus_id"): _IDENTIFIER,
    (Gpu, "driver"): _WORD,
    (Gpu, "cuda_driver"): _WORD,
    (Sanitized, "head"): f"{_HASH}|{WORKING_TREE}",
    (Sanitized, "gpu"): _PRODUCT,
    (Sanitized, "tools"): "[A-Za-z0-9_.+-]{0,80}",
    (Sanitized, "versions"): "[A-Za-z0-9_.+-]{0,80}",
    (CaseReport, "kernels"): _WORD,
}
#: Likewise the keys of objects.
KEYS: dict[tuple[type, str], str] = {
    (GateResult, "versions"): "[a-z_]{1,40}",
    (Machine, "versions"): "[a-z_]{1,40}",
    (KernelFacts, "instructions"): _WORD,
    (KernelFacts, "loop_instructions"): _WORD,
    (KernelFacts, "compile_seconds"): _WORD,
    (Sanitized, "tools"): "[a-z-]{1,40}",
    (Sanitized, "versions"): "[a-z_]{1,40}",
    (PairLog, "log_ratios"): _CASE,
    (PairLog, "launch_log_ratios"): _CASE,
    (PairLog, "faults"): _CASE,
    (PairLog, "clock_log_ratios"): _CASE,
}
_LOG_RATIO = (-MAX_LOG_RATIO, MAX_LOG_RATIO)
_SECONDS = (0.0, 1e9)
#: Of one call: 1e24 operations keep a B200 busy for 14 years, at the 2250 TFLOPS of its data sheet.
_WORK = (0.0, 1e24)
_PERCENT = (0.0, 1e6)
_SHARE = (0.0, 1.0)
#: The range of numbers that are computed with, by the name of their key; all others are finite, and shown.
RANGES: dict[str, tuple[float, float]] = {
    "estimate": _LOG_RATIO,
    "lower": _LOG_RATIO,
    "upper": _LOG_RATIO,
    "deviation": (0.0, MAX_LOG_RATIO),
    "detectable": (0.0, MAX_LOG_RATIO),
    "margin": (0.0, MAX_LOG_RATIO),
    "log_ratio": _LOG_RATIO,
    "log_ratios": _LOG_RATIO,
    "launch_log_ratios": _LOG_RATIO,
    "clock_log_ratios": _LOG_RATIO,
    "seconds": _SECONDS,
    "launch_seconds": _SECONDS,
    "flops": _WORK,
    "bytes_moved": _WORK,
    "same_within_percent": _PERCENT,
    "limit_percent": _PERCENT,
    "percent": (-99.9, 1e6),
    "max_diff": (0.0, math.inf),
    "max_diff_eps": (0.0, 1e12),
    "p_slower": _SHARE,
    "p_faster": _SHARE,
    "confirm_p": _SHARE,
    "occupancy": _SHARE,
    "head_slot": (0, 1),
    "pairs": (0, 100_000),
    "planned_pairs": (1, 640),
}
LENGTHS = {"traceback": MAX_MESSAGE, "message": MAX_MESSAGE, "cause": MAX_MESSAGE}
#: Of lists: whatever holds each case against each pair stays below two million steps.
COUNTS = {"facts": MAX_FACTS, "base_facts": MAX_FACTS, "values": _VALUES, "verdicts": 2000, "pairs": 1000}
COUNTS |= {"kernels": 2000} | dict.fromkeys(("base", "head", "base_trials", "head_trials"), MAX_FACTS)
COUNTS |= {"changes": 1000}
#: A study of 40 lines at 5 points has as many comparisons.
COUNTS |= {"conclusions": MAX_CONCLUSIONS, "looks": len(PATH), "beside": 200, "log_ratios": CONFIRM_ROUNDS}
#: Of objects likewise: the classes of instructions that a kernel has, 28 at the most of the bundled ones
#: (``evidence/static``, 2026-11-22).
MAX_KEYS = {"instructions": 100, "loop_instructions": 100}
