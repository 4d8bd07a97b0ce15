"""Ratios to an anchor as benchmarks of their own: `flopwatch record` measures them, `asv run` only keeps them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv import util
from asv.benchmarks import Benchmarks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: What takes the place of "time" in a benchmark's name: seconds of the commit over seconds of the anchor.
RATIO = "ratio_to_anchor"
_SHARED = ("type", "params", "param_names", "timeout")


def ratio_benchmark(time: Mapping[str, Any], anchor: str) -> dict[str, Any]:
    """Describe the ratios that go with a suite's seconds.

    Ratios to two anchors are not comparable, which asv sees by the version.

    >>> time = {"name": "add.Add.track_time", "version": "1", "type": "track", "params": [], "flops": [16.0]}
    >>> ratio = ratio_benchmark(time, "0123456789abcdef")
    >>> ratio["name"], ratio["version"], "flops" in ratio
    ('add.Add.track_ratio_to_anchor', '1 to 0123456789ab', False)
    """
    return {key: time[key] for key in _SHARED if key in time} | {
        "name": time["name"].removesuffix("track_time") + f"track_{RATIO}",
        "unit": "ratio",
        "version": f"{time['version']} to {anchor[:12]}",
        "code": f"flopwatch record --anchor {anchor[:12]}",
        "anchor": anchor,
    }


def extend_benchmarks() -> None:
    """Let asv keep the ratios in benchmarks.json: it writes what it finds in the suites, and drops all else."""
    original = Benchmarks.save
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def save(self: Any) -> None:  # noqa: ANN401 - asv's Benchmarks, untyped
        everything = self._all_benchmarks
        for ratio in _kept(Path(Benchmarks.get_benchmark_file_path(self._conf.results_dir)), everything):
            everything.setdefault(ratio["name"], ratio)
        original(self)

    Benchmarks.save = save


def _kept(path: Path, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the ratios of the file, with the parameters that their suites have now."""
    before = util.load_json(str(path), Benchmarks.api_version) if path.is_file() else {}
    for name, benchmark in before.items():
        time = name.removesuffix(RATIO) + "time"
        if name.endswith(f".track_{RATIO}") and time in found:
            yield ratio_benchmark(found[time], benchmark["anchor"])
