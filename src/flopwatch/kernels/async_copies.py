"""Asynchronous copies by threads under one name: Triton 3.9 has another for them than 3.6 to 3.8."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.ampere import async_copy

#: From global to shared memory.
load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
#: Ends a group of them; and waits until so many groups, the youngest, are still on their way.
commit, wait = async_copy.commit_group, async_copy.wait_group
