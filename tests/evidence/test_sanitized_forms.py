from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from evidence import sanitized_forms
from evidence.forms.suites import (
    ODD,
    PRODUCTS,
    VARIED,
    WHOLE,
    AttentionForms,
    CopyForms,
    CopyingForms,
    Fp8Forms,
    ProductForms,
    attention_form,
)

from flopwatch.kernels import routes
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, HopperAttentionConfig
from flopwatch.kernels.hopper_choice import fp8_product_config, lengths_config, product_config
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.hopper_short import ShortConfig
from flopwatch.kernels.known import TABLES, known_choices
from flopwatch.kernels.thin_fp8 import THIN_FP8
from flopwatch.kernels.thin_matmul import ThinConfig
from flopwatch.measure.client import Code, Mode, Worker
from flopwatch.model import Case, KernelFacts

#: What the code of a kernel branches on, by the class of its configurations.
FIELDS: dict[type, tuple[str, ...]] = {
    HopperAttentionConfig: (
        "groups",
        "ping_pong",
        "polynomial",
        "q_stages",
        "q_held",
        "own_out",
        "out_parts",
        "persistent",
        "resident",
    ),
    HopperConfig: ("consumers", "rows", "shares", "per_processor", "dependent"),
    ShortConfig: ("warps", "row_step", "turned", "dependent"),
    ThinConfig: ("num_warps", "upright", "dependent"),
}
#: Multiprocessors of GPUs of compute capability 9.0: of an H200, an H100 on a PCIe card, and an H20.
PROCESSORS = (132, 114, 78)
#: M, N and K of the products that rules are asked about.
SIDES = (64, 96, 128, 144, 256, 320, 384, 512, 640, 768, 1024, 2048, 2304, 4096, 5000, 6144, 8192, 11008, 16384)
FORMS = Path(__file__).parents[2] / "evidence" / "forms"


def parts(config: object) -> set[tuple[str, object]]:
    """Return what a kernel's code branches on, as far as sizes do not decide it."""
    found: set[tuple[str, object]] = {(name, getattr(config, name)) for name in FIELDS[type(config)]}
    match config:
        case HopperConfig():
            found.add(("stored", (config.slices, config.c_buffers)))
        case ShortConfig():
            found.add(("more", config.more > 0))
        case ThinConfig():
            found.add(("split", config.splits > 1))
    return found


def together(kind: object, config: object) -> tuple[object, type, frozenset[tuple[str, object]]]:
    """Return all of that, for a kind of call."""
    return kind, type(config), frozenset(parts(config))


def fp8_config(sums: str, name: str) -> object:
    """Return a configuration of products of float8."""
    promotes = sums == "float32"
    return {**FP8_CONFIGS[promotes], **THIN_FP8[promotes]}[name]


def test_of_attention_there_is_a_form_for_all_that_tables_have() -> None:
    forms = [attention_form(form) for form in AttentionForms.params[0]]
    taken = {together((head_dim, causal), config) for config, causal, head_dim, _sizes in forms}
    configs = {(head_dim, config.name): config for head_dim, all_of in HOPPER_ATTENTION.items() for config in all_of}
    tabled = set()
    for (_gpu, key), name in known_choices("hopper_attention_kernel", TABLES).items():
        values = key.split(", ")
        head_dim, causal = int(values[5]), values[6] == "True"
        tabled.add(together((head_dim, causal), configs[head_dim, name]))

    assert tabled <= taken
    assert len(forms) == len({(head_dim, causal, sizes, config) for config, causal, head_dim, sizes in forms})


def test_of_attention_there_are_forms_of_all_lengths() -> None:
    """Of each head_dim and mask: others have a second loop, or a mask, or clear values past a length."""
    forms = [attention_form(form) for form in AttentionForms.params[0]]
    taken = {(head_dim, causal, sizes) for _config, causal, head_dim, sizes in forms}

    assert taken == set(itertools.product((32, 64, 128, 256), (False, True), (WHOLE, ODD, VARIED)))


def test_of_lengths_there_is_a_form_of_what_calls_take() -> None:
    forms = [attention_form(form) for form in AttentionForms.params[0]]
    varied = {(head_dim, causal, config.name) for config, causal, head_dim, sizes in forms if sizes == VARIED}
    taken = {
        (head_dim, causal, lengths_config((64, 2048 // head_dim, positions, head_dim), causal=causal))
        for head_dim, causal, positions in itertools.product((32, 64, 128, 256), (False, True), (512, 2048, 8192))
    }

    assert {each for each in taken if each[2]} <= varied


def products_of_forms() -> set[object]:
    """Return what the forms of products branch on."""
    forms = [form.partition(", ") for form in ProductForms.params[0]]
    found: set[object] = {together(columns or "by rows", PRODUCTS[name]) for name, _, columns in forms}
    for form in Fp8Forms.params[0]:
        kind, name = form.split(": ")
        sums = kind.split()[0]
        found.add(together(sums, fp8_config(sums, name)))
    return found


def test_of_products_there_is_a_form_for_all_that_tables_have() -> None:
    tabled = set()
    for (_gpu, key), (_kernel, name) in routes.known_routes((*routes.PRODUCTS, *routes.FP8_PRODUCTS), TABLES).items():
        if "float8" in key:
            sums = "float32" if key.split(", ")[3] == "True" else "fast"
            tabled.add(together(sums, fp8_config(sums, name)))
        else:
            tabled.add(together("by columns" if key.endswith(", by columns") else "by rows", PRODUCTS[name]))

    assert tabled <= products_of_forms()


def test_of_products_there_is_a_form_for_all_that_rules_take() -> None:
    ruled = {}
    for sizes, processors in itertools.product(itertools.product(SIDES, repeat=3), PROCESSORS):
        rows, columns = (product_config(*sizes, processors=processors, by_columns=turned) for turned in (False, True))
        fast, promoted = (fp8_product_config(*sizes, processors=processors, promotes=each) for each in (False, True))
        for kind, config in (("by rows", rows), ("by columns", columns), ("fast", fast), ("float32", promoted)):
            if config is not None:
                ruled[together(kind, config)] = f"{kind}: {config}"
    taken = products_of_forms()

    assert len(ruled) >= 67
    assert [text for branches, text in ruled.items() if branches not in taken] == []


def test_of_each_kernel_for_products_there_is_a_form_by_columns() -> None:
    by_columns = [PRODUCTS[form.partition(", ")[0]] for form in ProductForms.params[0] if form.endswith(", by columns")]

    assert {type(config) for config in by_columns} == {HopperConfig, ShortConfig, ThinConfig}
    assert {config.shares for config in by_columns if isinstance(config, HopperConfig)} == {False, True}
    assert {config.turned for config in by_columns if isinstance(config, ShortConfig)} == {False, True}


def test_of_products_that_copy_there_is_a_form_for_each_constant_of_the_kernel() -> None:
    facts: list[KernelFacts] = []
    with Worker(Mode.STATIC, Code(benchmarks=FORMS, device="h200")) as worker:
        for form in CopyingForms.params[0]:
            facts += worker.compile(Case(suite="CopyingForms", values=(form, "flopwatch"))).facts
    constants: dict[str, set[str]] = {}
    for fact in facts:
        assert fact.spill_bytes == 0
        for name, value in (constant.split("=") for constant in fact.config.split(",")):
            constants.setdefault(name, set()).add(value)

    assert {fact.kernel for fact in facts} == {"hopper_copying_kernel", "hopper_copying_short_kernel"}
    assert constants["A_READS"] == {"", "words", "down"}
    assert constants["B_READS"] == {"", "words", "eights"}
    assert constants["C_WIDTH"] == {"0", "1", "2", "4"}
    for name in ("B_BY_COLUMNS", "SHARES", "TURNED"):
        assert constants[name] == {"False", "True"}
    assert constants["CONSUMERS"] == {"1", "2", "3"}


@pytest.mark.parametrize(
    ("suite", "kernel"),
    [
        (AttentionForms, "hopper_attention_kernel"),
        (ProductForms, "hopper_matmul_kernel"),
        (Fp8Forms, "hopper_matmul_kernel"),
        (CopyForms, "copy_kernel"),
        (CopyingForms, "hopper_copying_kernel"),
    ],
)
def test_a_form_launches_its_kernel_alone(suite: type[AttentionForms | ProductForms | CopyForms], kernel: str) -> None:
    form = suite.params[0][0]
    with Worker(Mode.STATIC, Code(benchmarks=FORMS, device="h200")) as worker:
        facts = worker.compile(Case(suite=suite.__name__, values=(form, "flopwatch"))).facts

    assert [fact.kernel for fact in facts] == [kernel]
    assert not any(fact.spill_bytes for fact in facts)


def test_without_a_gpu_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sanitized_forms, "has_gpu", lambda: False)

    assert sanitized_forms.main(["--tool", "memcheck"]) == 4
    assert "do:  run this on a GPU of compute capability 9.0" in capsys.readouterr().err


def test_a_tool_that_is_none_of_compute_sanitizer_s_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        sanitized_forms.main(["--tool", "memcheck,asan"])

    assert "'asan' is none of memcheck, racecheck, initcheck, synccheck" in capsys.readouterr().err


@pytest.mark.parametrize("form", CopyForms.params[0])
def test_a_form_of_copies_is_what_is_expected_of_it(form: str) -> None:
    m, n, k = CopyForms.sizes(form)
    by_columns = form.endswith("by columns")
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(shape, generator=generator).half() for shape in ((m, k), (n, k) if by_columns else (k, n)))
    given = a, b.T if by_columns else b, form

    assert torch.equal(CopyForms().run(*given).double(), CopyForms().reference(*given))
