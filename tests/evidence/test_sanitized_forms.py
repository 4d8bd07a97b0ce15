from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence import sanitized_forms
from evidence.forms.suites import PRODUCTS, AttentionForms, Fp8Forms, ProductForms, attention_form

from flopwatch.kernels import routes
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, HopperAttentionConfig
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.hopper_short import ShortConfig
from flopwatch.kernels.known import TABLES, known_choices
from flopwatch.kernels.thin_fp8 import THIN_FP8
from flopwatch.kernels.thin_matmul import ThinConfig
from flopwatch.measure.client import Code, Mode, Worker
from flopwatch.model import Case

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def all_parts(configs: Iterable[tuple[object, object]]) -> set[tuple[object, type, str, object]]:
    """Return the parts of all of these, apart for each kind of call and each kernel."""
    return {(kind, type(config), *part) for kind, config in configs for part in parts(config)}


def test_forms_of_attention_take_every_branch_that_tables_take() -> None:
    forms = [attention_form(form) for form in AttentionForms.params[0]]
    taken = all_parts((head_dim, config) for config, _causal, head_dim, _sizes in forms)
    configs = {(head_dim, config.name): config for head_dim, all_of in HOPPER_ATTENTION.items() for config in all_of}
    tabled, masks = set(), set()
    for (_gpu, key), name in known_choices("hopper_attention_kernel", TABLES).items():
        _b, _h, _h_kv, _s, _s_kv, head_dim, causal, *_ = key.split(", ")
        tabled.add((int(head_dim), configs[int(head_dim), name]))
        masks.add((int(head_dim), causal == "True"))

    assert all_parts(tabled) <= taken
    assert masks <= {(head_dim, causal) for _config, causal, head_dim, _sizes in forms}


def test_forms_of_products_take_every_branch_that_tables_take() -> None:
    taken = all_parts(("16 bits", PRODUCTS[form]) for form in ProductForms.params[0] if not form.startswith("plain"))
    for form in Fp8Forms.params[0]:
        kind, name = form.split(": ")
        sums = kind.split()[0]
        promotes = sums == "float32"
        taken |= all_parts([(sums, {**FP8_CONFIGS[promotes], **THIN_FP8[promotes]}[name])])
    tabled: set[tuple[object, object]] = set()
    for (_gpu, key), (_kernel, name) in routes.known_routes((*routes.PRODUCTS, *routes.FP8_PRODUCTS), TABLES).items():
        if "float8" in key:
            promotes = key.split(", ")[3] == "True"
            sums = "float32" if promotes else "fast"
            tabled.add((sums, {**FP8_CONFIGS[promotes], **THIN_FP8[promotes]}[name]))
        else:
            tabled.add(("16 bits", PRODUCTS[name]))

    assert all_parts(tabled) <= taken


@pytest.mark.parametrize("suite", [AttentionForms, ProductForms, Fp8Forms])
def test_a_form_launches_its_kernel_alone(suite: type[AttentionForms | ProductForms]) -> None:
    form = suite.params[0][0]
    with Worker(Mode.STATIC, Code(benchmarks=FORMS, device="h200")) as worker:
        facts = worker.compile(Case(suite=suite.__name__, values=(form, "flopwatch"))).facts

    assert [fact.kernel for fact in facts] == [
        "hopper_attention_kernel" if suite is AttentionForms else "hopper_matmul_kernel"
    ]
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
