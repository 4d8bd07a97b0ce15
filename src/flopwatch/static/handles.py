"""Compiled kernels that host code keeps and launches by itself, described as launches of their functions are.

``compiled = kernel.warmup(...)`` and then ``compiled[grid](...)`` is how Triton's own tutorials ask for a kernel's
registers before they choose a grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopwatch.static.facts import kernel_fingerprint
from flopwatch.static.specialization import config_text, variant_text
from flopwatch.static.stage_times import TIMES_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Of a binary's metadata: the key of Triton's cache, which is of texts and lines, a path of this machine, and how long
# the compiler took.
_NOT_OF_THE_KERNEL = frozenset({"hash", "extern_libs", TIMES_KEY})
_DIVISIBLE = "tt.divisibility"
#: What `CompiledKernel.run` is given before the kernel's own arguments: three sizes of the grid, stream, function,
#: metadata, metadata of the launch, and two hooks; so in Triton 3.6 to 3.9.
BEFORE_ARGUMENTS = 9


def handle_texts(kernel: Any) -> tuple[str, str]:  # noqa: ANN401 - untyped triton
    """Return the texts of a compiled kernel's configuration and variant, the same as of a launch of its function."""
    source, options = kernel.src, kernel.metadata._asdict()
    function = getattr(source, "fn", None)
    if function is None:
        return config_text({}, options, {}), variant_text([(kind, "") for kind in source.signature.values()])
    constants: dict[str, object] = {}
    blocks: dict[str, object] = {}
    others: list[tuple[Any, ...]] = []
    for index, parameter in enumerate(function.params):
        kind = source.signature.get(parameter.name, "constexpr")
        if parameter.is_constexpr:
            constants[parameter.name] = source.constants.get((index,))
            continue
        others.append(_specialization(source, kind, (index,)))
        if isinstance(kind, str) and kind.startswith("tensordesc<"):
            blocks[parameter.name] = _block_shape(kind)
    return config_text(constants, options, blocks), variant_text(others)


def handle_arguments(kernel: Any, values: Sequence[object]) -> Mapping[str, object]:  # noqa: ANN401 - untyped triton
    """Return the arguments of a launch by name, and by place where they have none."""
    function = getattr(kernel.src, "fn", None)
    names = [] if function is None else list(function.arg_names)
    return {names[place] if place < len(names) else str(place): value for place, value in enumerate(values)}


def binary_text(kernel: Any) -> tuple[str, str]:  # noqa: ANN401 - untyped triton
    """Return what a compiled kernel is, whatever file it was compiled from: its code, and all its metadata."""
    beside = {name: value for name, value in kernel.metadata._asdict().items() if name not in _NOT_OF_THE_KERNEL}
    return kernel_fingerprint(kernel), repr(sorted(beside.items()))


def _specialization(source: Any, kind: Any, path: tuple[int, ...]) -> tuple[Any, Any]:  # noqa: ANN401 - untyped triton
    """Return Triton's (type, key) of an argument, both of them nested where it is a tuple."""
    if isinstance(kind, tuple):
        inner = [_specialization(source, part, (*path, place)) for place, part in enumerate(kind)]
        return tuple(part for part, _ in inner), tuple(key for _, key in inner)
    if kind == "constexpr":
        return kind, source.constants.get(path)
    return kind, "D" if any(attribute[0] == _DIVISIBLE for attribute in source.attrs.get(path, ())) else ""


def _block_shape(kind: str) -> list[int]:
    """Return the block of a host-made descriptor's type.

    >>> _block_shape("tensordesc<fp16[128, 64]>")
    [128, 64]
    """
    return [int(size) for size in kind.partition("[")[2].partition("]")[0].split(",")]
