"""The fields by which asv tells machines apart: the GPU added, what changes by itself kept out."""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import Any

from asv.config import Config
from asv.machine import Machine, MachineCollection
from asv.util import UserError

from flopwatch.asv.interpreter import find_interpreter, probe_interpreter
from flopwatch.config import load_config
from flopwatch.errors import FlopwatchError

_BYTES_PER_GIB = 2**30


def extend_machine() -> None:
    """Make asv add the GPU to every machine that it loads, and pin the fields that change by themselves.

    Every field of a machine is an axis of the dashboard: when one changes, the lines break and no step across is seen.
    """
    original = Machine.load.__func__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def load(cls: type[Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401 - asv's signature
        loaded = original(cls, *args, **options)
        fields = vars(loaded)
        fields.update(stable_fields(fields))
        gpu = _gpu()
        if gpu is not None:
            fields["gpu"] = gpu
        MachineCollection.save(loaded.machine, fields, _path=options.get("_path"))
        return loaded

    Machine.load = classmethod(load)


def stable_fields(fields: dict[str, str]) -> dict[str, str]:
    """Return those fields that asv filled in too precisely, without what an update of the machine changes.

    The kernel's release is cut from the system, and memory, of which the kernel reserves more or less, is rounded to
    GiB. What somebody wrote by hand stays.

    >>> stable_fields({"ram": "2112938217472", "cpu": "Xeon"})
    {'ram': '1968 GiB'}
    """
    stable = {}
    if fields.get("os") == f"{platform.system()} {platform.release()}":
        stable["os"] = platform.system()
    if str(fields.get("ram")).isdecimal():
        stable["ram"] = f"{round(int(fields['ram']) / _BYTES_PER_GIB)} GiB"
    return stable


def gpu_label(gpu: str | None, device: str) -> str:
    """Say on which GPU results were taken; without one, for which device the static facts were compiled.

    >>> gpu_label("NVIDIA H200", "h200"), gpu_label(None, "h200")
    ('NVIDIA H200', 'none (static h200)')
    """
    return gpu or f"none (static {device})"


def working_tree(conf: Any) -> Path:  # noqa: ANN401 - asv's Config, untyped
    """Return the root of the repository whose asv.conf.json this is; the folder of asv.conf.json for a remote one."""
    repository = Path(conf.repo)
    return (repository if repository.is_dir() else Path()).resolve()


def _gpu() -> str | None:
    """Return the GPU's label, None where commits are not run by the shared environment."""
    try:
        conf = Config.load()
    except UserError:
        return None  # asv was given --config; the results themselves still carry the label, from the environment
    if conf.environment_type != "shared":
        return None
    try:
        interpreter = probe_interpreter(find_interpreter(getattr(conf, "shared_python", None)))
        return gpu_label(interpreter.gpu, load_config(working_tree(conf)).device)
    except FlopwatchError as error:
        raise UserError(str(error)) from None
