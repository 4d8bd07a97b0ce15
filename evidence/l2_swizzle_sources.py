"""What the kernels of the study of L2 swizzling are compiled to: every level of Triton's IR, and TileLang's CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopwatch.static import find_device, pretend_gpu
from flopwatch.static.ir import ir_texts, levels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import ModuleType


def save_sources(module: ModuleType, folder: Path, device: str, *, groups: Sequence[str] = ()) -> Iterator[Path]:
    """Write every level of Triton's IR for each group, and the CUDA that TileLang makes of each panel, if it is there.

    Args:
        module: of the study.
        folder: made if it is not there.
        device: the GPU that Triton compiles for.
        groups: some of the study's; all where none is named.

    Yields:
        What was written. Where TileLang refuses a panel, that is a file with what it says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = int(module.SIZES[0])
    for order in groups or module.GROUPS:
        for level, text in _triton_levels(module.grouped_matmul, size, order, device).items():
            yield _written(folder / f"triton-{order}.{level}", text)
    for panel in module.PANELS:
        try:
            text, kind = tilelang_source(module.tilelang_program, size, panel), "cu"
        except ModuleNotFoundError:
            return
        except Exception as error:  # noqa: BLE001 - whatever its compiler raises is what it says of the panel
            text, kind = f"{type(error).__name__}: {error}\n", "refused.txt"
        yield _written(folder / f"tilelang-{panel}.{kind}", text)


def _triton_levels(call: Callable[..., object], size: int, order: str, device: str) -> dict[str, str]:
    import torch  # noqa: PLC0415 - for what it pretends only

    with pretend_gpu(device, tensors="meta") as recorder:
        a, b = (torch.empty(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        call(a, b, order)
        keys = [(launch.kernel, launch.variant, launch.config or "") for launch in recorder.launches]
        found = ir_texts(recorder, keys, levels_of(find_device(device)))
    return {level: text for (*_, level), text in found.items()}


def tilelang_source(program: Callable[[int, str], Any], size: int, panel: str) -> str:
    """Return the CUDA that TileLang makes of its kernel for Hopper; neither a GPU nor nvcc is needed.

    Raises:
        ModuleNotFoundError: TileLang is not installed.
    """
    import tilelang  # noqa: PLC0415 - optional

    target = {"kind": "cuda", "arch": "sm_90a"}
    with tilelang.tvm.target.Target(target):
        source: str = tilelang.lower(program(size, panel), target=target).kernel_source
    return source


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
