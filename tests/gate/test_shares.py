from __future__ import annotations

import threading

from flopwatch.gate.shares import Shares
from flopwatch.model import Case

CASES = [Case(suite="Toy", values=(str(number), "flopwatch")) for number in range(12)]


def taken_by(shares: Shares, taker: str, most: int = len(CASES)) -> list[Case]:
    taken = (shares.take(taker) for _ in range(most))
    return [case for case in taken if case is not None]


def test_a_single_taker_gets_every_case_in_order() -> None:
    assert taken_by(Shares(CASES), "ada") == CASES


def test_the_second_taker_begins_in_the_middle_and_both_go_on_with_neighbours() -> None:
    shares = Shares(CASES)
    pairs = [(shares.take("ada"), shares.take("grace")) for _ in range(5)]
    assert [ada for ada, _ in pairs] == CASES[:5]
    assert [grace for _, grace in pairs] == CASES[6:11]


def test_who_has_none_left_takes_the_back_half_of_the_longest_row() -> None:
    shares = Shares(CASES)
    taken_by(shares, "ada", 1)
    taken_by(shares, "grace", 6)
    assert taken_by(shares, "grace", 3) == CASES[3:6]  # of the five that are ada's
    assert taken_by(shares, "ada") == CASES[1:3]


def test_a_case_of_one_who_is_busy_is_taken_by_another() -> None:
    shares = Shares(CASES[:2])
    assert (shares.take("ada"), shares.take("grace")) == (CASES[0], CASES[1])
    assert (shares.take("ada"), shares.take("grace"), len(shares)) == (None, None, 0)


def test_what_is_put_back_is_taken_by_whoever_has_none_left() -> None:
    shares = Shares(CASES[:1])
    assert taken_by(shares, "ada") == CASES[:1]
    shares.put_back(CASES[:1])
    assert len(shares) == 1
    assert taken_by(shares, "grace") == CASES[:1]


def test_takers_at_the_same_time_get_every_case_once() -> None:
    cases = [Case(suite="Toy", values=(str(number),)) for number in range(2000)]
    shares = Shares(cases)
    taken: list[Case] = []

    def take(taker: str) -> None:
        while (case := shares.take(taker)) is not None:
            taken.append(case)

    threads = [threading.Thread(target=take, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=cases.index) == cases
