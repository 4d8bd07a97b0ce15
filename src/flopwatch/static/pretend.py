"""Run unmodified launch code where there is no GPU."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from flopwatch.static.devices import find_device
from flopwatch.static.recorder import Autotune, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.static.device import Device


@contextlib.contextmanager
def pretend_gpu(
    device: str | Device = "h200", *, tensors: Literal["meta", "cpu"] = "meta", autotune: Autotune = Autotune.ALL
) -> Iterator[Recorder]:
    """Pretend that `device` is the only GPU of this machine.

    Inside the context ``device="cuda"`` makes tensors, ``torch.cuda`` answers for the pretended device, and Triton
    compiles every kernel that is launched for it; nothing runs on it. With ``tensors="meta"`` a tensor takes no memory
    and has no values; reading one is an error. With ``tensors="cpu"`` values are real, and where kernels are
    interpreted (``TRITON_INTERPRET=1`` before Triton was imported) they are computed, after `correct_interpreter`;
    compiled kernels leave their outputs as they were.

    A kernel that takes more shared memory than the device has is compiled until that is known, and its launch refused;
    it has no code.

    The autotuner compiles every configuration, none of which is timed, and takes the first that fits: of those that
    its own ``perf_model`` puts first, if it has one. With `Autotune.PREDICTED` it compiles these alone, with
    `Autotune.FIRST` no further than the one that it takes, and where kernels are interpreted it takes the first and
    runs no other. Everything is restored on exit.

    Yields:
        What was launched, compiled and refused, as it happens.

    Raises:
        UsageError: no device has that key, a GPU is already pretended, or values of a meta tensor are read.
        UnsupportedTritonError: the installed Triton is outside the supported range.
    """
    from flopwatch.static import session  # noqa: PLC0415 - torch and triton load only when a GPU is pretended

    recorder = Recorder(device=find_device(device) if isinstance(device, str) else device, autotune=autotune)
    with session.pretended(recorder, tensors):
        yield recorder
