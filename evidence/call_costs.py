"""What `evidence.launch_costs` and `evidence.first_calls` have in common: a machine, a table, and a command line."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from evidence.page import table
from evidence.peers import ROOT, SOURCES, fingerprint
from flopwatch.cli.output_file import claim
from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.measure.machine import Machine, read_machine
from flopwatch.measure.nvml import Watch, require_gpu
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Measurement(Protocol):
    """What is kept of one."""

    @property
    def machine(self) -> Machine:
        """Whose host it is."""

    @property
    def date(self) -> str:
        """When it was made."""

    @property
    def kernels(self) -> str:
        """A fingerprint of the kernels, that of `evidence.peers`; "" in files that are older than this."""


Kept = TypeVar("Kept", bound=Measurement)


def require_one() -> None:
    """Make sure that there is a GPU.

    Raises:
        MachineError: there is none.
    """
    require_gpu(lambda why: MachineError("calls are timed on a GPU", why=why, todo="run this where there is one"))


def present_machine() -> tuple[Machine, str, str]:
    """Return the machine, with the GPU that torch takes, the date, and the fingerprint of `evidence.peers`."""
    import torch  # noqa: PLC0415 - not where tables are made

    with Watch(str(torch.cuda.get_device_properties().uuid)) as watch:
        machine = read_machine(watch.gpu(), {"cuda": str(torch.version.cuda)})
    return machine, dt.datetime.now(tz=dt.UTC).date().isoformat(), fingerprint(ROOT, SOURCES)


def newest(folder: Path, stem: str, record: type[Kept]) -> Kept | None:
    """Read the newest measurement that a folder has, if it has one; of one day the last by name, which has the hour."""
    found = [from_json(path.read_bytes(), record) for path in sorted(folder.glob(f"{stem}-*.json"), reverse=True)]
    return max(found, key=lambda each: each.date, default=None)


def told(found: Iterable[Kept | None], rows_of: Callable[[Kept], Sequence[Sequence[str]]], heads: Sequence[str]) -> str:
    """Tell of each measurement, where there is one, the machine and a table; nothing where there is none."""
    return "\n\n".join(
        f"{_origin(each)}:\n\n{table(heads, rows_of(each), left=1)}" for each in found if each is not None
    )


def _origin(found: Measurement) -> str:
    machine = found.machine
    gpu = machine.gpu.name if machine.gpu else "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    kernels = f"; kernels `{found.kernels}`" if found.kernels else ""
    return f"{gpu}, {machine.cpu_model}; {versions}; {found.date}{kernels}"


def run(
    arguments: list[str],
    program: str,
    description: str,
    measure: Callable[[], Iterator[Kept]],
    tell: Callable[[Kept], str],
) -> None:
    """Write what is measured so far, whenever there is more, to the file that is named; print the table at last."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.json")
    out: Path = parser.parse_args(arguments).out
    try:
        claim(out)
        for found in measure():
            out.write_bytes(to_json(found, indent=1) + b"\n")
            last = tell(found)
    except FlopwatchError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{last}\n")
