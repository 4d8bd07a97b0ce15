from __future__ import annotations

from dataclasses import replace

import pytest
from tests.report.test_explain import FOUND, printed

from flopwatch.model import Choice, Failure
from flopwatch.profile import Counted, ProfiledCase, ProfiledPair
from flopwatch.profile.comparison import FramePair, Taken
from flopwatch.report.explain_markdown import explanation_markdown
from flopwatch.report.explain_page import explanation_page
from flopwatch.report.explain_profile import MAX_FRAMES, profile_parts

BASE = ProfiledCase(
    case=FOUND.case,
    flops=FOUND.flops,
    bytes_moved=FOUND.bytes_moved,
    calls=24,
    kernel_seconds=230e-6,
    call_seconds=231.4e-6,
    host_seconds=9e-6,
    wall_seconds=232e-6,
    choices=(Choice(kernel="matmul_kernel", config="num_stages: 3"), Choice(kernel="fill_kernel", config="BLOCK: 8")),
    counters=(
        Counted(
            kernel="matmul_kernel", counters={"dram__bytes_read.sum": 67108864.0, "lts__t_sector_hit_rate.pct": 80.0}
        ),
    ),
)
HEAD = replace(
    BASE,
    kernel_seconds=355e-6,
    call_seconds=346.9e-6,
    host_seconds=90e-6,
    wall_seconds=600e-6,
    choices=(Choice(kernel="matmul_kernel", config="num_stages: 1"),),
    counters=(
        Counted(kernel="cast_kernel", counters={"dram__bytes_read.sum": 2048.0}),
        Counted(
            kernel="matmul_kernel", counters={"dram__bytes_read.sum": 134217728.0, "lts__t_sector_hit_rate.pct": 40.0}
        ),
    ),
)
PAIR = ProfiledPair(
    gpu="NVIDIA H200",
    base=BASE,
    head=HEAD,
    frames=(
        FramePair(
            path=(),
            is_kernel=False,
            base=Taken(seconds=230e-6, launches=1.0, flops=FOUND.flops, bytes_moved=FOUND.bytes_moved),
            head=Taken(seconds=355e-6, launches=2.0, flops=FOUND.flops, bytes_moved=FOUND.bytes_moved),
        ),
        FramePair(
            path=("matmul_kernel",),
            is_kernel=True,
            base=Taken(seconds=230e-6, launches=1.0),
            head=Taken(seconds=345e-6, launches=1.0),
        ),
        FramePair(path=("cast", "cast_kernel"), is_kernel=True, base=None, head=Taken(seconds=10e-6, launches=1.0)),
    ),
    spread=0.0042,
    notes=("this GPU has no lts__t_sector_hit_rate.pct",),
)


def test_the_terminal_tells_kernels_then_what_a_launch_costs_then_counters() -> None:
    text = printed(replace(FOUND, profile=PAIR))
    start, end = text.index("Profile of"), text.index("\nmatmul_kernel: what changed")
    assert "\n".join(line.rstrip() for line in text[start:end].splitlines()) == (
        "Profile of a call on NVIDIA H200, inputs in the cache where they fit\n"
        "scope or kernel           base        head     change    launches    base, TFLOPS   "
        " head, TFLOPS    base, GB/s    head, GB/s\n"
        "all kernels           230.0 µs    355.0 µs    +54.3 %      1 -> 2           597.6        "
        "   387.2         437.7         283.6\n"
        "matmul_kernel         230.0 µs    345.0 µs    +50.0 %           1\n"
        "cast / cast_kernel                10.00 µs                      1\n"
        "  base: matmul_kernel runs in num_stages: 3\n"
        "  launched by head alone: cast / cast_kernel\n"
        "  head: matmul_kernel runs in num_stages: 1\n"
        "  processes of one side are up to 0.4 % apart: what differs by less is no difference, and"
        " of the rest flopwatch gate is the judge\n"
        "\n"
        "What a call takes beside its kernels\n"
        "time                                          base        head      change\n"
        "from a cold cache, by the gate's timer    231.4 µs    346.9 µs     +49.9 %\n"
        "of the host                               9.000 µs    90.00 µs         10x\n"
        "in a loop of calls                        232.0 µs    600.0 µs    +158.6 %\n"
        "of that, without a kernel                 2.000 µs    245.0 µs        123x\n"
        "  head: a loop of calls waits for the host, whatever its kernels take\n"
        "\n"
        "matmul_kernel: counters of a launch, caches flushed\n"
        "counter                         base       head      change\n"
        "dram__bytes_read.sum          64 MiB    128 MiB    +100.0 %\n"
        "lts__t_sector_hit_rate.pct    80.0 %     40.0 %\n"
        "\n"
        "cast_kernel: counters of a launch, caches flushed\n"
        "counter                 base     head    change\n"
        "dram__bytes_read.sum            2 KiB"
    )


def test_each_form_has_every_number() -> None:
    found = replace(FOUND, profile=PAIR)
    for text in (printed(found), explanation_markdown(found), explanation_page(found)):
        for number in ("345.0 µs", "+50.0 %", "1 -&gt; 2" if "<html" in text else "1 -> 2", "128 MiB", "90.00 µs"):
            assert number in text


def test_a_name_that_is_longer_than_a_line_costs_no_number() -> None:
    name = f"void at::native::vectorized_elementwise_kernel<{'4, at::native::FillFunctor<float>, ' * 6}int>"
    frame = FramePair(path=(name,), is_kernel=True, base=Taken(seconds=1e-6, launches=3.0), head=None)
    text = printed(replace(FOUND, profile=replace(PAIR, frames=(*PAIR.frames, frame))))
    for number in ("345.0 µs", "+50.0 %", "1 -> 2", "1.000 µs", "597.6"):
        assert number in text


def test_a_note_of_the_profile_stands_among_the_notes() -> None:
    assert printed(replace(FOUND, profile=PAIR)).rstrip().endswith("this GPU has no lts__t_sector_hit_rate.pct")


def test_a_side_that_failed_is_told_and_nothing_is_called_the_other_s_alone() -> None:
    failed = replace(PAIR, head=replace(HEAD, counters=(), failure=Failure(kind="RuntimeError", message="an address")))
    frames = tuple(replace(frame, head=None) for frame in PAIR.frames[:2])
    frames_part, launch, *counters = profile_parts(replace(failed, frames=frames, spread=None))
    assert frames_part.lines[0] == "head cannot be profiled: RuntimeError: an address"
    assert not any("alone" in line for line in frames_part.lines)
    assert [row[2] for row in launch.rows] == ["", "", "", ""]
    assert launch.lines == ()
    assert len(counters) == 1


def test_where_nothing_was_recorded_the_causes_are_all_there_is() -> None:
    died = Failure(kind="ProfileFailed", message="the process that profiles died")
    pair = replace(PAIR, base=replace(BASE, failure=died), head=replace(HEAD, failure=died), frames=())
    (part,) = profile_parts(pair)
    assert part.lines == tuple(f"{side} cannot be profiled: ProfileFailed: {died.message}" for side in ("base", "head"))
    (part,) = profile_parts(replace(PAIR, frames=()))
    assert part.lines == ("a call launches no kernel",)


def test_of_many_kernels_the_longest_are_shown_in_their_order() -> None:
    many = tuple(
        FramePair(path=(f"k{number}",), is_kernel=True, base=Taken(seconds=number * 1e-6, launches=1.0), head=None)
        for number in range(1, MAX_FRAMES + 3)
    )
    part, *_ = profile_parts(replace(PAIR, frames=(PAIR.frames[0], *many)))
    assert [row[0] for row in part.rows] == ["all kernels", *(f"k{number}" for number in range(4, MAX_FRAMES + 3))]
    assert part.lines[0] == "and 3 more, which take less"


def test_a_kernel_that_is_launched_twice_has_its_counters_twice() -> None:
    twice = tuple(Counted(kernel="k", counters={"gpu__time_duration.sum": time}) for time in (1e3, 2e3))
    pair = replace(PAIR, base=replace(BASE, counters=twice[:1]), head=replace(HEAD, counters=twice))
    *_, first, second = profile_parts(pair)
    assert first.rows == (("gpu__time_duration.sum", "1.000 µs", "1.000 µs", "+0.0 %"),)
    assert second.rows == (("gpu__time_duration.sum", "", "2.000 µs", ""),)


def test_rates_have_columns_only_where_work_was_declared() -> None:
    part, *_ = profile_parts(replace(PAIR, frames=PAIR.frames[1:]))
    assert part.header == ("scope or kernel", "base", "head", "change", "launches")
    assert {len(row) for row in part.rows} == {5}


@pytest.mark.parametrize("evil", ["<script>x</script>", "[red]x[/red]", "\x1b[2J", "::error::x", "```\n# x"])
def test_text_of_others_stays_text(evil: str) -> None:
    frames = (*PAIR.frames, FramePair(path=(evil,), is_kernel=True, base=Taken(seconds=1e-6, launches=1.0), head=None))
    failed = replace(HEAD, failure=Failure(kind="E", message=evil))
    counted = replace(BASE, counters=(Counted(kernel=evil, counters={evil: 1.0}),))
    found = replace(FOUND, profile=replace(PAIR, gpu=evil, frames=frames, base=counted, head=failed, notes=(evil,)))
    texts = [printed(found), explanation_markdown(found), explanation_page(found)]
    assert "<script>" not in texts[2]
    assert all("\x1b" not in text and "\n# x" not in text for text in texts)
    assert "\n::error" not in texts[1] + texts[2]
    assert texts[1].count("```") % 2 == 0
