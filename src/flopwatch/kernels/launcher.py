"""A kernel's launcher, built while the kernel is compiled: Triton 3.6 has the C compiler build it afterwards.

That is 0.3 s of a first call, for which nothing but their order makes it wait (hosts of an H200 and an H100,
2026-11-26). What is built lies in Triton's cache by its source, where Triton finds it; where this cannot tell what
Triton will ask for, Triton builds it as ever. From 3.7 on Triton has one launcher for all kernels.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton.runtime.driver import driver

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a launcher asks of a compiled kernel beside its tensor maps, as of one that asks for nothing: read when it is
#: made, and no part of its source.
_METADATA = {
    "num_ctas": 1,
    "global_scratch_size": 0,
    "global_scratch_align": 1,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
}
_lock = threading.Lock()
_inside = 0
_hook_before: Any = None
#: Signatures whose launchers this process has built, or is building.
_begun: set[str] = set()


@contextlib.contextmanager
def built_beside() -> Iterator[None]:
    """Have launchers built beside the compilation of their kernels, in all threads as long as one is in here."""
    global _inside, _hook_before  # noqa: PLW0603 - as Triton's hook, there is one
    if not _are_built_one_by_one():
        yield
        return
    with _lock:
        if not _inside:
            _hook_before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, _begin
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and knobs.runtime.jit_cache_hook is _begin:
                knobs.runtime.jit_cache_hook = _hook_before


def _are_built_one_by_one() -> bool:
    """Tell whether the active driver has a launcher of CUDA's compiled for each signature."""
    if knobs.runtime.interpret:  # and there may be no driver
        return False
    active = driver.active
    module = sys.modules.get(getattr(getattr(active, "launcher_cls", None), "__module__", ""))
    return hasattr(module, "make_launcher") and active.get_current_target().backend == "cuda"


def _begin(**told: Any) -> bool | None:
    """Begin to build the launcher of what is about to be compiled; ask the hook that was there before."""
    signature = told["compile"]["signature"]
    text = str(signature)
    if text not in _begun:
        _begun.add(text)
        source = SimpleNamespace(
            fn=told["fn"].jit_function, constants=told["compile"]["constants"], signature=signature
        )
        maps: list[dict[str, object]] = [{} for kind in signature.values() if str(kind).startswith("tensordesc")]
        metadata = SimpleNamespace(**_METADATA, tensordesc_meta=maps)
        threading.Thread(target=_build, args=(driver.active.launcher_cls, source, metadata)).start()
    skipped: bool | None = _hook_before(**told) if _hook_before is not None else None
    return skipped


def _build(launcher: Any, source: object, metadata: object) -> None:
    with contextlib.suppress(Exception):  # whatever it is, Triton meets it too, and says so
        launcher(source, metadata)
