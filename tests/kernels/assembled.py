"""What ptxas says of a kernel that was compiled without a GPU; for the tests' own programs."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from triton.backends.nvidia.compiler import get_ptxas  # of two, by the architecture and by Triton's version


def serialised(kernel: Any) -> list[str]:  # noqa: ANN401 - triton's
    """Assemble a kernel's PTX for sm_90a; return the warnings, C7510 to C7519, that wgmma is serialised."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(kernel.asm["ptx"])
        command = [get_ptxas(90).path, "-arch=sm_90a", "-v", source, "-o", source.with_suffix(".cubin")]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "registers" in log, log
    return re.findall(r"C75\d\d", log)
