"""Canonical texts for what a launch asked of the compiler: its configuration and its variant."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DEFAULT_OPTIONS = {"num_warps": 4, "num_stages": 3}
#: Options that are named only where they differ from Triton's defaults; from the fourth on they are AMD's. What
#: `schedule_hint` is by default differs between Triton 3.6 and 3.9.
_RARE_OPTIONS: dict[str, tuple[object, ...]] = {
    "num_ctas": (1,),
    "maxnreg": (None,),
    "enable_fp_fusion": (True,),
    "waves_per_eu": (0,),
    "matrix_instr_nonkdim": (0,),
    "kpack": (1,),
    "schedule_hint": ("none", ""),
}
_LONGEST_VARIANT = 80


def config_text(constants: Mapping[str, object], options: Mapping[str, object], blocks: Mapping[str, object]) -> str:
    """Return a launch's configuration: its constants, warps, stages and descriptor blocks, sorted by name.

    Args:
        constants: the kernel's ``tl.constexpr`` arguments.
        options: the launch's own, such as ``num_warps``.
        blocks: block shapes of host-made tensor descriptors, by argument.

    >>> config_text({"BLOCK_M": 128, "ACTIVATION": ""}, {"num_warps": 8}, {"a_desc": (128, 64)})
    'ACTIVATION=,BLOCK_M=128,a_desc=128x64,num_stages=3,num_warps=8'
    """
    named = {name: options.get(name, default) for name, default in _DEFAULT_OPTIONS.items()}
    named |= {name: options[name] for name, usual in _RARE_OPTIONS.items() if options.get(name, usual[0]) not in usual}
    named |= {name: "x".join(map(str, shape)) for name, shape in blocks.items() if isinstance(shape, list | tuple)}
    return ",".join(f"{name}={_value_text(value)}" for name, value in sorted({**constants, **named}.items()))


def variant_text(specialization: Sequence[tuple[Any, ...]]) -> str:
    """Return the types of a launch's arguments, and which of them Triton takes to be multiples of 16 or equal to 1.

    Nothing in it depends on where the kernel's file lies. Long ones end in a hash of the whole.

    Args:
        specialization: Triton's own (type, key) of each argument that is not declared a constant, for those are the
            configuration's. An integer that equals 1 is a constant to Triton all the same.

    >>> variant_text([("*fp16", "D"), ("i32", "D"), ("i32", ""), ("constexpr", 1)])
    '*fp16:16,i32:16,i32,1'
    """
    return _shortened([_argument_text(*entry[:2]) for entry in specialization])


def _argument_text(kind: object, key: object) -> str:
    if isinstance(kind, tuple):
        keys = key if isinstance(key, tuple) else (None,) * len(kind)
        return "(" + ",".join(_argument_text(*pair) for pair in zip(kind, keys, strict=True)) + ")"
    if kind == "constexpr":
        return _value_text(key)
    # A descriptor's block shape belongs to the configuration.
    name = str(kind).split("[", 1)[0] + ">" if str(kind).startswith("tensordesc<") else str(kind)
    return f"{name}:16" if isinstance(key, str) and "D" in key else name


def _shortened(arguments: Iterable[str]) -> str:
    text = ",".join(arguments)
    if len(text) <= _LONGEST_VARIANT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: _LONGEST_VARIANT - 12].rsplit(',', 1)[0]},...{digest}"


def _value_text(value: object) -> str:
    """Write a constant without addresses: functions and dtypes by name."""
    value = getattr(value, "value", value)
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return str(name if isinstance(name, str) else value).replace(",", ";")
