"""What can be learnt of kernels without a GPU: a pretended one, the compiler's facts, and their comparison."""

from flopwatch.static.comparison import FactChange, Severity, compare_facts
from flopwatch.static.device import Device
from flopwatch.static.devices import DEVICES, find_device
from flopwatch.static.facts import kernel_facts
from flopwatch.static.identity import CaseIdentity, case_identity, differing_parts, is_same
from flopwatch.static.occupancy import Occupancy, occupancy
from flopwatch.static.pretend import pretend_gpu
from flopwatch.static.recorder import Launch, LaunchFailure, Recorder
from flopwatch.static.tree import tree_identity
from flopwatch.static.triton_version import check_triton_version

__all__ = [
    "DEVICES",
    "CaseIdentity",
    "Device",
    "FactChange",
    "Launch",
    "LaunchFailure",
    "Occupancy",
    "Recorder",
    "Severity",
    "case_identity",
    "check_triton_version",
    "compare_facts",
    "differing_parts",
    "find_device",
    "is_same",
    "kernel_facts",
    "occupancy",
    "pretend_gpu",
    "tree_identity",
]
