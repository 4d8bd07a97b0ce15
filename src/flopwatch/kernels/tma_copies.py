"""Copies by the tensor memory accelerator under one name: Triton 3.9 has others for them than 3.6 to 3.8."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.hopper import tma

#: From global to shared memory, which a barrier tells the end of.
load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
#: From shared to global memory, which `tma.store_wait` waits for.
store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
