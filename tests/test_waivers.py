from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from flopwatch.errors import ExitCode
from flopwatch.model import Mark, from_json, to_json
from flopwatch.waivers import (
    Timed,
    Waiver,
    WaiverState,
    WaiverUse,
    apply_waivers,
    printable,
    waived_cases,
    waiver_problems,
    waivers_exit_code,
)

TODAY = date(2026, 12, 1)
WAIVER = Waiver(case="Add*", reason="int64 offsets", owner="Ada", until=date(2026, 12, 31), limit_percent=5.0)
EXPIRED = replace(WAIVER, until=date(2026, 11, 30))
CASES = ("Add[1]", "Add[2]", "Matmul[1]")
TABLE = {"case": "Add*", "reason": "int64", "owner": "Ada", "until": "2026-12-31", "limit_percent": 5}


def slower(case_id: str, percent: float, *, proved: float | None = None) -> Timed:
    lower = math.log1p((percent - 0.2 if proved is None else proved) / 100)
    return Timed(case_id=case_id, mark=Mark.SLOWER, log_ratio=math.log1p(percent / 100), lower=lower)


def marked(mark: Mark, *case_ids: str) -> list[Timed]:
    return [Timed(case_id=case_id, mark=mark) for case_id in case_ids]


def applied(
    *timed: Timed, waivers: tuple[Waiver, ...] = (WAIVER,), selected: tuple[str, ...] = CASES, today: date = TODAY
) -> tuple[WaiverUse, ...]:
    return apply_waivers(waivers, timed, declared=CASES, selected=selected, today=today)


def states(*uses: WaiverUse) -> list[tuple[str, WaiverState]]:
    return [(use.case_id, use.state) for use in uses]


def test_a_slowdown_within_the_limit_is_waived_and_shown() -> None:
    uses = applied(slower("Add[1]", 1.8), *marked(Mark.SAME, "Add[2]"))

    assert states(*uses) == [("Add[1]", WaiverState.WAIVED)]
    assert uses[0].text == "Add[1]: 1.80 % slower, waived: Add*, up to 5 % until 2026-12-31 (int64 offsets; Ada)"
    assert waived_cases(uses) == {"Add[1]"}


def test_a_slowdown_past_the_limit_fails_and_says_by_how_much() -> None:
    uses = applied(slower("Add[1]", 7.0))

    assert states(*uses) == [("Add[1]", WaiverState.EXCEEDED)]
    assert uses[0].text == (
        "Add[1]: 7.00 % slower, 2.00 points more than is waived: Add*, up to 5 % until 2026-12-31 (int64 offsets; Ada)"
    )
    assert waived_cases(uses) == frozenset()


def test_the_limit_is_exceeded_only_where_that_is_proved() -> None:
    near = applied(slower("Add[1]", 5.4, proved=4.99))

    assert states(*near) == [("Add[1]", WaiverState.WAIVED)]
    assert near[0].text.startswith("Add[1]: 5.40 % slower, waived, as more than the limit is not proved: Add*, ")
    assert states(*applied(slower("Add[1]", 5.4, proved=5.01))) == [("Add[1]", WaiverState.EXCEEDED)]


def test_each_slower_case_is_held_against_the_limit() -> None:
    uses = applied(slower("Add[1]", 2.0), slower("Add[2]", 9.0), slower("Matmul[1]", 3.0))

    assert states(*uses) == [("Add[1]", WaiverState.WAIVED), ("Add[2]", WaiverState.EXCEEDED)]


def test_a_case_with_two_times_is_waived_only_where_both_are_within_the_limit() -> None:
    assert waived_cases(applied(slower("Add[1]", 2.0), slower("Add[1]", 3.0))) == {"Add[1]"}
    assert waived_cases(applied(slower("Add[1]", 2.0), slower("Add[1]", 9.0))) == frozenset()
    assert applied(*marked(Mark.UNSURE, "Add[1]"), *marked(Mark.SAME, "Add[1]", "Add[2]")) == ()


@pytest.mark.parametrize("mark", [Mark.BROKEN, Mark.UNSURE])
def test_only_a_slower_case_is_waived_and_no_other_says_that_a_waiver_is_unused(mark: Mark) -> None:
    hidden = Timed(case_id="Add[1]", mark=mark, log_ratio=0.02, lower=0.015)

    assert applied(hidden, *marked(Mark.SAME, "Add[2]")) == ()


def test_the_last_day_still_counts() -> None:
    assert states(*applied(slower("Add[1]", 2.0), today=WAIVER.until)) == [("Add[1]", WaiverState.WAIVED)]
    assert states(*applied(slower("Add[1]", 2.0), today=WAIVER.until + timedelta(days=1))) == [
        ("", WaiverState.EXPIRED)
    ]


@pytest.mark.parametrize("mark", list(Mark))
def test_an_expired_waiver_waives_nothing_and_says_so_whatever_the_verdict(mark: Mark) -> None:
    timed = Timed(case_id="Add[1]", mark=mark, log_ratio=0.02, lower=0.015)
    uses = applied(timed, waivers=(EXPIRED,))

    assert states(*uses) == [("", WaiverState.EXPIRED)]
    assert uses[0].text == (
        "expired 1 day ago: Add*, up to 5 % until 2026-11-30 (int64 offsets; Ada); "
        "remove it from pyproject.toml, or renew its date"
    )
    assert waived_cases(uses) == frozenset()


def test_an_expired_waiver_fails_beside_one_that_still_holds() -> None:
    general = replace(WAIVER, case="*", limit_percent=10.0)
    uses = applied(slower("Add[1]", 2.0), waivers=(EXPIRED, general))

    assert states(*uses) == [("Add[1]", WaiverState.WAIVED), ("", WaiverState.EXPIRED)]
    assert uses[0].waiver == general


def test_an_expired_waiver_fails_a_run_that_judged_no_time_too() -> None:
    uses = applied(waivers=(EXPIRED,))

    assert states(*uses) == [("", WaiverState.EXPIRED)]
    assert waivers_exit_code(uses, ExitCode.OK) is ExitCode.USAGE


def test_an_expired_waiver_of_cases_that_were_not_selected_is_left_alone() -> None:
    assert applied(*marked(Mark.SAME, "Matmul[1]"), waivers=(EXPIRED,), selected=("Matmul[1]",)) == ()


def test_a_waiver_that_no_case_needs_is_a_note() -> None:
    uses = applied(*marked(Mark.SAME, "Add[1]"), *marked(Mark.FASTER, "Add[2]"))

    assert states(*uses) == [("", WaiverState.UNUSED)]
    assert uses[0].text.startswith("unused, none of its cases is slower: Add*, ")


def test_a_waiver_that_matches_no_declared_case_is_a_note() -> None:
    uses = applied(*marked(Mark.SAME, *CASES), waivers=(replace(WAIVER, case="Softmax*"),))

    assert states(*uses) == [("", WaiverState.UNUSED)]
    assert uses[0].text.startswith("unused, no case has such a name: Softmax*, ")


@pytest.mark.parametrize("measured", [(), ("Add[1]",), ("Matmul[1]",)])
def test_a_run_of_a_selection_calls_no_waiver_unused(measured: tuple[str, ...]) -> None:
    assert applied(*marked(Mark.SAME, *measured)) == ()


def test_the_most_specific_waiver_decides() -> None:
    narrow = replace(WAIVER, case="Add[1]", limit_percent=1.0)
    wide = replace(WAIVER, limit_percent=50.0)

    for waivers in ((narrow, wide), (wide, narrow)):
        uses = applied(slower("Add[1]", 3.0), *marked(Mark.UNSURE, "Add[2]"), waivers=waivers)
        assert states(*uses) == [("Add[1]", WaiverState.EXCEEDED)]


def test_of_two_equally_specific_waivers_the_smaller_limit_decides() -> None:
    waivers = (replace(WAIVER, case="Add[*", limit_percent=9.0), replace(WAIVER, case="*d[1]", limit_percent=1.0))
    uses = applied(slower("Add[1]", 3.0), *marked(Mark.UNSURE, "Add[2]"), waivers=waivers)

    assert states(*uses) == [("Add[1]", WaiverState.EXCEEDED)]


@pytest.mark.parametrize(
    ("otherwise", "expected"),
    [
        (ExitCode.OK, ExitCode.USAGE),
        (ExitCode.UNDECIDED, ExitCode.USAGE),
        (ExitCode.REGRESSED, ExitCode.REGRESSED),
        (ExitCode.UNFIT, ExitCode.UNFIT),
    ],
)
def test_an_expired_waiver_fails_the_run_and_hides_no_regression(otherwise: ExitCode, expected: ExitCode) -> None:
    assert waivers_exit_code(applied(*marked(Mark.SAME, "Add[1]"), waivers=(EXPIRED,)), otherwise) == expected


@pytest.mark.parametrize("code", list(ExitCode))
def test_no_other_state_changes_the_exit_code(code: ExitCode) -> None:
    unused = replace(WAIVER, case="Softmax*")
    uses = applied(slower("Add[1]", 2.0), slower("Add[2]", 9.0), waivers=(WAIVER, unused))

    assert {use.state for use in uses} == set(WaiverState) - {WaiverState.EXPIRED}
    assert waivers_exit_code(uses, code) == code


def test_what_waivers_did_goes_to_json_and_back() -> None:
    uses = applied(slower("Add[1]", 2.0), slower("Add[2]", 9.0), waivers=(WAIVER, replace(WAIVER, case="Softmax*")))

    assert from_json(to_json(uses), tuple[WaiverUse, ...]) == uses


def test_a_reason_cannot_write_over_the_report() -> None:
    hostile = replace(WAIVER, reason="fine\r\n\x1b[2JNothing got slower\u202e")
    uses = applied(slower("Add[1]", 2.0), waivers=(hostile,))

    assert uses[0].text.isprintable()
    assert printable(hostile.reason) == "fine [2JNothing got slower"


def test_a_table_with_every_key_is_a_waiver() -> None:
    assert waiver_problems(TABLE) == {}
    assert waiver_problems(TABLE | {"until": TODAY, "limit_percent": 0.5}) == {}


@pytest.mark.parametrize("key", sorted(TABLE))
def test_every_key_is_mandatory(key: str) -> None:
    assert waiver_problems({name: value for name, value in TABLE.items() if name != key}) == {
        key: "missing, every waiver has one"
    }


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("case", "Matmul", "'Matmul' matches no case"),
        ("case", ["Add*"], "Expected `str`, got `array`"),
        ("reason", "", "is blank"),
        ("reason", "\n\t ", "is blank"),
        ("owner", " ", "is blank"),
        ("owner", 3, "Expected `str`, got `int`"),
        ("until", "2026-02-30", "'2026-02-30' is no date such as 2026-12-31"),
        ("until", "tomorrow", "'tomorrow' is no date"),
        ("until", 2026, "2026 is no date"),
        ("until", datetime(2026, 12, 31, tzinfo=UTC), "is no date"),
        ("limit_percent", 0, "0 is not a finite number > 0"),
        ("limit_percent", -1.5, "-1.5 is not a finite number > 0"),
        ("limit_percent", math.inf, "inf is not a finite number > 0"),
        ("limit_percent", math.nan, "nan is not a finite number > 0"),
        ("limit_percent", True, "Expected `float`, got `bool`"),
        ("limit_percent", "5%", "Expected `float`, got `str`"),
        ("limit_percent", 10**400, "Number out of range"),
        ("limit", 5, "no such key (known: case, reason, owner, until, limit_percent)"),
    ],
)
def test_each_problem_is_named_with_its_key(key: str, value: object, problem: str) -> None:
    problems = waiver_problems(TABLE | {key: value})

    assert list(problems) == [key]
    assert problem in problems[key]
