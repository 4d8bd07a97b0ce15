"""A kernel's launcher, built while the kernel is compiled: Triton 3.6 has the C compiler build it afterwards.

That is 0.3 s of a first call on an H200's host, for which nothing but their order makes it wait
(docs/decisions/0015-first-calls.md). What is built lies in Triton's cache by its source, where Triton finds it; where
this cannot tell what Triton will ask for, or is late, Triton builds it as ever. From 3.7 on Triton has one launcher for
all kernels, and nothing is done.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton.backends.nvidia import driver as nvidia
from triton.runtime import build
from triton.runtime.cache import get_cache_manager
from triton.runtime.driver import driver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: As Triton 3.6 names the module, and its file.
_NAME = "__triton_launcher"
_FILE = f"{_NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"
#: Signatures whose launchers this process has begun to build, or found.
_begun: set[str] = set()


def build_beside(kernel: Any) -> None:
    """Have launchers of a kernel built beside its compilations from now on, where Triton builds one for each.

    Triton asks `_call_hook` of the kernel before each compilation, whether there is a hook or not.

    Args:
        kernel: compiled by Triton, or what wraps one, as heuristics do.
    """
    while not hasattr(kernel, "_call_hook") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    has_own = hasattr(nvidia, "make_launcher") and hasattr(kernel, "_call_hook")  # what is interpreted has none
    if has_own and "_call_hook" not in vars(kernel):
        kernel._call_hook = functools.partial(_begin, kernel._call_hook)  # noqa: SLF001 - a hook of Triton's own is for all kernels


def _begin(
    call_hook: Callable[..., bool | None], hook: object, key: object, signature: Mapping[str, Any], *others: object
) -> bool | None:
    """Begin to build the launcher of what is about to be compiled, and ask the hook that Triton has."""
    with contextlib.suppress(Exception):  # whatever it is, Triton meets it too, and says so
        if driver.active.launcher_cls is nvidia.CudaLauncher and str(signature) not in _begun:
            _begun.add(str(signature))
            _begin_build(signature)
    return call_hook(hook, key, signature, *others)


def _begin_build(signature: Mapping[str, Any]) -> None:
    """Build in a thread what `triton.runtime.build.compile_module_from_src` would, if it is not there; load nothing."""
    maps: list[dict[str, object]] = [{} for kind in signature.values() if str(kind).startswith("tensordesc")]
    source = nvidia.make_launcher({}, signature, maps)
    cache = get_cache_manager(hashlib.sha256((source + build.platform_key()).encode()).hexdigest())
    if cache.get_file(_FILE) is None:
        threading.Thread(target=_build, args=(source, cache)).start()


def _build(source: str, cache: Any) -> None:
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:  # as above
        path = Path(folder, f"{_NAME}.c")
        path.write_text(source, encoding="utf-8")
        libraries = nvidia.library_dirs(), nvidia.include_dirs, nvidia.libraries
        built = build._build(_NAME, str(path), folder, *libraries, [])  # noqa: SLF001 - which compiler, and how
        cache.put(Path(built).read_bytes(), _FILE, binary=True)
