from __future__ import annotations

import triton.language as tl

from flopwatch.static.specialization import config_text, variant_text


def test_a_configuration_is_sorted_and_has_warps_and_stages() -> None:
    assert config_text({"B": 1, "A": True}, {}, {}) == "A=True,B=1,num_stages=3,num_warps=4"


def test_rare_options_are_named_where_they_differ() -> None:
    options = {"num_ctas": 1, "maxnreg": 64}
    assert config_text({}, options, {}) == "maxnreg=64,num_stages=3,num_warps=4"


def test_amds_options_are_named_where_they_differ() -> None:
    usual = {"waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1}
    for hint in ("none", ""):
        assert config_text({}, {**usual, "schedule_hint": hint}, {}) == config_text({}, {}, {})
    named = config_text({}, {**usual, "waves_per_eu": 2, "schedule_hint": "attention"}, {})
    assert named == "num_stages=3,num_warps=4,schedule_hint=attention,waves_per_eu=2"


def test_constants_are_named_without_addresses_or_commas() -> None:
    text = config_text({"DTYPE": tl.float16, "ACTIVATION": len, "SHAPE": (1, 2)}, {}, {})
    assert text == "ACTIVATION=len,DTYPE=fp16,SHAPE=(1; 2),num_stages=3,num_warps=4"


def test_blocks_of_a_descriptor_belong_to_the_configuration_not_the_variant() -> None:
    assert "a=128x64" in config_text({}, {}, {"a": [128, 64]}).split(",")
    assert variant_text([("tensordesc<fp16[128, 64]>", None)]) == "tensordesc<fp16>"


def test_tuples_are_written_by_element() -> None:
    assert variant_text([(("*fp16", "i32"), ("D", ""))]) == "(*fp16:16,i32)"


def test_long_variants_are_short_and_differ() -> None:
    one = variant_text([("*fp16", "D")] * 40)
    other = variant_text([("*fp16", "D")] * 39 + [("*fp16", "")])
    assert max(len(one), len(other)) <= 80
    assert one != other
    assert one.startswith("*fp16:16,")
