"""Numbers as people read them; the only place that formats."""

from __future__ import annotations

import math

from flopwatch.model import WORKING_TREE

_COMMIT_CHARACTERS = 12
_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def format_seconds(seconds: float) -> str:
    """Write a duration with four significant digits.

    >>> format_seconds(231.44e-6)
    '231.4 µs'
    """
    scale, unit = next(((scale, unit) for scale, unit in _TIME_STEPS if seconds >= scale), _TIME_STEPS[-1])
    return f"{_significant(seconds / scale)} {unit}"


def format_rate(per_second: float, unit: str) -> str:
    """Write a throughput given in units of 1e12 (TFLOPS) or 1e9 (GB/s) per second.

    >>> format_rate(5.94e14, "TFLOPS"), format_rate(4.1234e12, "GB/s")
    ('594.0 TFLOPS', '4123 GB/s')
    """
    scale = {"TFLOPS": 1e12, "GB/s": 1e9}[unit]
    return f"{_significant(per_second / scale)} {unit}"


def format_bytes(count: int) -> str:
    """Write a byte count in binary units.

    >>> format_bytes(96), format_bytes(147456)
    ('96 B', '144 KiB')
    """
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:  # noqa: PLR2004 - the definition of the binary units
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def format_change(log_ratio: float) -> str:
    """Say in words how head compares with base, given log(head time / base time).

    >>> import math
    >>> format_change(math.log(1.018)), format_change(math.log(0.97)), format_change(math.log(1.4))
    ('1.80 % slower', '3.00 % faster', '1.40x slower')
    """
    ratio = math.exp(log_ratio)
    word = "slower" if ratio >= 1 else "faster"
    if ratio >= 1.25 or ratio <= 0.8:  # noqa: PLR2004 - past a quarter, factors read better than percents
        return f"{max(ratio, 1 / ratio):.2f}x {word}"
    return f"{abs(ratio - 1) * 100:.2f} % {word}"


def format_interval(lower: float, upper: float) -> str:
    """Write an interval of log ratios as percents of base's time.

    >>> format_interval(-0.0035, 0.6931471805599453)
    '-0.35 to +100.00 %'
    """
    return f"{math.expm1(lower) * 100:+.2f} to {math.expm1(upper) * 100:+.2f} %"


def short_commit(commit: str) -> str:
    """Write a commit by the first digits of its hash; the working tree by its name.

    >>> short_commit("0123456789abcdef0123456789abcdef01234567"), short_commit("working tree")
    ('0123456789ab', 'working tree')
    """
    return commit if commit == WORKING_TREE else commit[:_COMMIT_CHARACTERS]


def _significant(value: float) -> str:
    digits = 4 - len(str(int(value)))
    return f"{value:.{max(digits, 0)}f}"
