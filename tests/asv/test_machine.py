from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

from flopwatch.asv.machine import gpu_label, stable_fields

if TYPE_CHECKING:
    from tests.asv.conftest import Recorded


def test_the_release_of_the_kernel_is_no_axis() -> None:
    assert stable_fields({"os": f"{platform.system()} {platform.release()}"}) == {"os": platform.system()}


def test_memory_is_rounded_so_that_a_kernel_that_reserves_more_is_no_new_machine() -> None:
    assert stable_fields({"ram": str(128 * 2**30 - 7_000_000)}) == {"ram": "128 GiB"}


def test_what_somebody_wrote_by_hand_stays() -> None:
    assert stable_fields({"os": "Ubuntu 24.04", "ram": "128GB", "cpu": "EPYC"}) == {}


def test_without_a_gpu_the_label_says_for_what_was_compiled() -> None:
    assert gpu_label(None, "a100") == "none (static a100)"


def test_asv_machine_writes_the_gpu_and_stable_fields(repository: Recorded) -> None:
    process = repository.asv("machine", "--yes", env={"CUDA_VISIBLE_DEVICES": ""})
    assert process.returncode == 0, process.stdout

    stored = json.loads((repository.home / ".asv-machine.json").read_text(encoding="utf-8"))
    (fields,) = (value for value in stored.values() if isinstance(value, dict))
    assert fields["gpu"] == "none (static h200)"
    assert fields["os"] == platform.system()
    assert fields["ram"].endswith(" GiB")


def test_an_explicit_name_gets_the_gpu_too(repository: Recorded) -> None:
    process = repository.asv("machine", "--machine", "node-7", "--yes", env={"CUDA_VISIBLE_DEVICES": ""})
    assert process.returncode == 0, process.stdout

    stored = json.loads((repository.home / ".asv-machine.json").read_text(encoding="utf-8"))
    assert stored["node-7"] == {"machine": "node-7", "gpu": "none (static h200)"}
