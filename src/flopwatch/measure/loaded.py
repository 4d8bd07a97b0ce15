"""What a process is made of: the files that its modules and its data came from, and where others would be found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NO_FILES = ("/proc/", "/sys/", "/dev/")
_opened: set[str] = set()


def watch_opened() -> None:
    """Remember every file that Python opens to read from now on; there is no end to it before that of the process."""
    sys.addaudithook(_note)


def loaded_files() -> list[str]:
    """Return the absolute paths of all that is loaded and is still there, sorted.

    These are the files of modules, the files that were read since `watch_opened`, what Triton's back ends run or link,
    such as ptxas and libdevice, and the folders that modules are looked for in, which change when something is
    installed into them or removed. Triton's cache is left out: what lies there follows from the rest.
    """
    modules = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    files = {file for file in modules if isinstance(file, str) and file.startswith("/")}  # torch._classes has none
    folders = {path for path in sys.path if Path(path).is_dir()}
    read = {path for path in _opened if not path.endswith(".pyc") and not path.startswith(_NO_FILES)}
    if (triton := sys.modules.get("triton")) is not None and triton.__file__:
        cache = f"{Path(triton.knobs.cache.dir).absolute()}{os.sep}"
        read = {path for path in read if not path.startswith(cache)}
        backends = Path(triton.__file__).parent / "backends"
        files |= {str(path) for name in ("bin", "lib") for path in backends.glob(f"*/{name}/*") if path.is_file()}
    read |= {value for name, value in os.environ.items() if name.startswith("TRITON_")}
    files |= {str(Path(path).absolute()) for path in read if Path(path).is_file()}
    return sorted({*files, *(str(Path(path).absolute()) for path in folders)})


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str) and isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR):
            _opened.add(path if path.startswith("/") else os.path.abspath(path))  # noqa: PTH100 - of each file, at once
