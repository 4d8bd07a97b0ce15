from __future__ import annotations

import pytest

from flopwatch.static.traffic.needed import needed_values
from flopwatch.static.traffic.program import Type
from flopwatch.static.traffic.ttir import TtirError, parse_ttir

TTIR = """\
#loc = loc("/home/a/kernel.py":3:0)
#loc1 = loc(unknown)
#loc5 = loc("x"(#loc3))
module {
  tt.func public @kernel(%x_ptr: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc("x_ptr"(#loc)), \
%n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<64xf32> loc(#loc1)
    %c0_i32 = arith.constant 0 : i32 loc(#loc1)
    %true = arith.constant true loc(#loc1)
    %0 = arith.cmpi eq, %n, %c0_i32 : i32 loc(#loc2)
    cf.cond_br %0, ^bb1, ^bb2(%n : i32) loc(#loc2)
  ^bb1:  // pred: ^bb0
    tt.return loc(#loc2)
  ^bb2(%m: i32 loc("m"(#loc))):  // pred: ^bb0
    %k:2 = scf.while (%acc = %cst, %at = %c0_i32) : (tensor<64xf32>, i32) -> (tensor<64xf32>, i32) {
      %1 = arith.cmpi slt, %at, %m : i32 loc(#loc2)
      scf.condition(%1) %acc, %at : tensor<64xf32>, i32 loc(#loc2)
    } do {
    ^bb0(%acc: tensor<64xf32> loc("acc"), %at: i32 loc("at")):
      %2 = arith.addi %at, %n : i32 loc(#loc4)
      scf.yield %acc, %2 : tensor<64xf32>, i32 loc(#loc4)
    } loc(#loc4)
    %s = "tt.reduce"(%k#0) <{axis = 0 : i32}> ({
    ^bb0(%a: f32 loc(callsite(#loc1 at #loc5)), %b: f32 loc(callsite(#loc1 at #loc5))):
      %3 = arith.addf %a, %b : f32 loc(#loc4)
      tt.reduce.return %3 : f32 loc(#loc4)
    }) : (tensor<64xf32>) -> f32 loc(#loc6)
    tt.print "a { %brace loc( ^bb1" {hex = false, isSigned = array<i32: 0>} : %n : i32 loc(#loc2)
    tt.return loc(#loc4)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("/home/a/kernel.py":7:14)
#loc3 = loc("/home/a/kernel.py":9:4)
#loc4 = loc("/lib/triton/language/standard.py":291:36)
#loc6 = loc(callsite(#loc4 at #loc5))
"""


def test_results_have_their_types_whatever_the_operation() -> None:
    module = parse_ttir(TTIR)
    named = {operation.name: operation for operation in module.operations() if operation.results}
    types = {name: [module.types[result] for result in operation.results] for name, operation in named.items()}
    assert [Type(shape=(64,), element="f32"), Type(shape=(), element="i32")] == types["scf.while"]
    assert [Type(shape=(), element="f32")] == types["tt.reduce"]
    assert [Type(shape=(), element="i1")] == types["arith.cmpi"]
    assert [Type(shape=(), element="!tt.ptr<f16>"), Type(shape=(), element="i32")] == [
        module.types[value] for value in module.entry.parameters
    ]


def test_the_same_name_in_two_regions_is_two_values() -> None:
    (loop,) = (operation for operation in parse_ttir(TTIR).operations() if operation.name == "scf.while")
    before, after = (region.blocks[0] for region in loop.regions)
    assert set(before.arguments).isdisjoint(after.arguments)
    assert before.operations[-1].operands[1:] == before.arguments


def test_blocks_and_where_they_go_on_are_kept() -> None:
    module = parse_ttir(TTIR)
    blocks = module.entry.body.blocks
    assert ["bb0", "bb1", "bb2"] == [block.label for block in blocks]
    assert (("bb1", ()), ("bb2", (module.entry.parameters[1],))) == blocks[0].operations[-1].successors


def test_a_line_is_the_kernels_own_and_not_that_of_tritons_library() -> None:
    lines = {operation.name: operation.where for operation in parse_ttir(TTIR).operations()}
    assert ("kernel.py:9", "standard.py:291") == (lines["tt.reduce"], lines["arith.addi"])


def test_only_what_decides_about_control_and_memory_is_needed() -> None:
    module = parse_ttir(TTIR)
    needed = needed_values(module)
    decided = {operation.name for operation in module.operations() if needed.intersection(operation.results)}
    assert {"arith.constant", "arith.cmpi", "arith.addi"} == decided


@pytest.mark.parametrize(
    "text",
    [
        "",
        "module {\n}\n",
        TTIR.replace("%at, %n : i32 loc(#loc4)", "%nothing, %n : i32 loc(#loc4)"),
        TTIR.replace("    } do {", "    something else"),
        TTIR[: len(TTIR) // 2],
    ],
)
def test_what_is_no_ttir_is_refused(text: str) -> None:
    with pytest.raises(TtirError):
        parse_ttir(text)
