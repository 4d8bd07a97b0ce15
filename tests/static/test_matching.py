from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.model import KernelFacts
from flopwatch.static.matching import match_configs, match_kernels, match_variants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopwatch.static.matching import Facts

ONE = KernelFacts(kernel="a", device="h200", config="M=1,N=1", variant="*fp16,i32", chosen=False, code_fingerprint="1")


def names(pairs: Iterable[tuple[Facts, Facts]], attribute: str) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        old, new = (" ".join(sorted({getattr(fact, attribute) for fact in facts})) for facts in pair)
        found.append((old, new))
    return found


def with_code(*fingerprints: str, kernel: str = "a", variant: str = ONE.variant) -> list[KernelFacts]:
    return [
        replace(ONE, kernel=kernel, variant=variant, code_fingerprint=code, config=f"M={code},N=1")
        for code in fingerprints
    ]


def test_names_that_both_sides_have_decide_whatever_the_code() -> None:
    base = [replace(ONE, kernel="a"), replace(ONE, kernel="b", code_fingerprint="2")]
    head = [replace(ONE, kernel="a", code_fingerprint="2"), replace(ONE, kernel="b")]
    assert names(match_kernels(base, head), "kernel") == [("a", "a"), ("b", "b")]


def test_of_kernels_that_are_gone_equal_code_goes_before_equal_settings() -> None:
    base = [*with_code("1", "2", kernel="a"), *with_code("3", "4", kernel="b")]
    head = [*with_code("3", "4", kernel="c"), *with_code("1", "9", kernel="d")]
    assert names(match_kernels(base, head), "kernel") == [("a", "d"), ("b", "c")]


def test_a_kernel_with_half_of_the_same_settings_is_the_one_that_is_gone_and_with_fewer_it_is_not() -> None:
    base = with_code("1", "2", "3", "4", kernel="a")
    new = [replace(fact, code_fingerprint="new") for fact in base]
    half = [*new[:2], *[replace(fact, config=f"{fact.config},K=1") for fact in new[2:]]]
    fewer = [*new[:1], *[replace(fact, config=f"{fact.config},K=1") for fact in new[1:]]]
    for facts, expected in ((half, [("a", "z")]), (fewer, [("a", ""), ("", "z")])):
        head = [replace(fact, kernel="z") for fact in facts]
        assert names(match_kernels(base, head), "kernel") == expected


def test_kernels_of_two_devices_are_not_one() -> None:
    pairs = match_kernels([ONE], [replace(ONE, kernel="b", device="a100")])
    assert names(pairs, "kernel") == [("a", ""), ("", "b")]


def test_variants_are_paired_by_code_and_then_by_their_arguments_in_any_order() -> None:
    base = with_code("1", variant="*fp16,i32,fp32") + with_code("2", variant="*bf16,i32,fp32")
    head = with_code("8", variant="i32,*bf16,fp32") + with_code("9", variant="fp32,*fp16,i32")
    assert names(match_variants(base, head), "variant") == [
        ("*bf16,i32,fp32", "i32,*bf16,fp32"),
        ("*fp16,i32,fp32", "fp32,*fp16,i32"),
    ]


def test_variants_of_other_arguments_are_not_one() -> None:
    base, head = with_code("1", variant="*fp16,i32,i32"), with_code("2", variant="*fp32,i32,fp32,fp32,fp32,fp32")
    assert names(match_variants(base, head), "variant") == [
        ("*fp16,i32,i32", ""),
        ("", "*fp32,i32,fp32,fp32,fp32,fp32"),
    ]


def test_configurations_are_paired_by_code_then_by_all_settings_but_one() -> None:
    base = [replace(ONE, config="M=1,N=1"), replace(ONE, config="M=2,N=2", code_fingerprint="2")]
    head = [
        replace(ONE, config="M=2,N=3", code_fingerprint="3"),
        replace(ONE, config="M=7,N=7"),
        replace(ONE, config="M=8,N=8", code_fingerprint="4"),
    ]
    assert names(match_configs(base, head), "config") == [
        ("M=1,N=1", "M=7,N=7"),
        ("M=2,N=2", "M=2,N=3"),
        ("", "M=8,N=8"),
    ]


def test_a_setting_that_is_gone_is_one_that_differs() -> None:
    head = replace(ONE, config="M=1", code_fingerprint="2")
    assert names(match_configs([ONE], [head]), "config") == [("M=1,N=1", "M=1")]


def test_kernels_without_code_are_not_equal_by_that() -> None:
    base, head = replace(ONE, code_fingerprint=""), replace(ONE, code_fingerprint="", config="M=2,N=2")
    assert names(match_configs([base], [head]), "config") == [("M=1,N=1", ""), ("", "M=2,N=2")]
