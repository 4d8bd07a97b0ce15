"""What launches compute and move, by the integers of their kernels: no GPU, and no values."""

from flopwatch.static.traffic.bound import Bound, bound_of
from flopwatch.static.traffic.findings import OUT_OF_BOUNDS, TRAFFIC_WORSE, out_of_bounds_text, traffic_findings
from flopwatch.static.traffic.recorded import traffic_of
from flopwatch.static.traffic.result import Loop, OutOfBounds, Traffic

__all__ = [
    "OUT_OF_BOUNDS",
    "TRAFFIC_WORSE",
    "Bound",
    "Loop",
    "OutOfBounds",
    "Traffic",
    "bound_of",
    "out_of_bounds_text",
    "traffic_findings",
    "traffic_of",
]
