"""Products in 16 bits beside torch.matmul, which is cuBLAS."""

from __future__ import annotations

from typing import ClassVar

import torch

from evidence.peer_shapes import MATMUL, MATMUL_DTYPES

from . import BUNDLED

_Matmul = BUNDLED["Matmul"]


class PeerMatmul(_Matmul):  # type: ignore[misc, valid-type] # discovered, not imported
    """C = A @ B, row-major; `shape` is MxNxK."""

    params: ClassVar = (MATMUL, MATMUL_DTYPES)
    param_names: ClassVar = ("shape", "dtype")
    providers: ClassVar = {"torch": torch.matmul}
    skip_params: ClassVar = ()
    recorded: ClassVar = False
    #: The bundled suite holds our kernel to 2. torch lets cuBLAS add up the parts of a split depth in 16 bits
    #: (``allow_fp16_reduced_precision_reduction``), half a unit a part: nobody's default is called wrong for that.
    max_diff_eps: ClassVar = 4.0
