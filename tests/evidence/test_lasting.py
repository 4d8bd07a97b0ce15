from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence.lasting import by_places, lasting, table

if TYPE_CHECKING:
    from evidence.samples import Samples


def drawn(samples: Samples, *, lasts: float, places: float) -> Samples:
    """Return pairs of 400 us a sample, whose slots differ by so much for good and by so much at each of six places."""
    rng = np.random.default_rng(5)
    pairs, cases = samples.seconds.shape[:2]
    errors = rng.normal(0, lasts, (pairs, cases, 1)) + rng.normal(0, places, (pairs, cases, 6))
    seconds = np.full((pairs, cases, 2, 6, 2, 3), 4e-4) / samples.calls[:, None, None, None, None]
    seconds[:, :, 1] *= np.exp(errors)[..., None, None]
    seconds[::2, :, :, 5:] = np.nan
    return replace(samples, seconds=seconds.astype(np.float32))


@pytest.mark.parametrize("lasts", [0.0, 0.001])
def test_what_lasts_is_told_from_what_changes_with_the_place(samples: Samples, lasts: float) -> None:
    variance = np.nanmean(lasting(drawn(samples, lasts=lasts, places=0.001)))
    assert variance == pytest.approx(lasts**2, abs=2e-7)


def test_the_table_has_the_time_of_a_sample_that_it_is(samples: Samples) -> None:
    lines = table([drawn(samples, lasts=0.001, places=0.0005)] * 2)
    assert len(lines) == 2
    length, cases, time_us, part = (cell.split()[0] for cell in lines[1].removeprefix("samples ").split(" | "))
    assert (length, cases) == ("400", "16")
    assert float(time_us) == pytest.approx(0.4, abs=0.06)
    assert float(part) == pytest.approx(0.1, abs=0.015)


def test_pairs_that_stop_early_are_told_from_those_that_do_not(samples: Samples) -> None:
    """Of 200 pairs of 400 us a call, half have three places and err by 0.2 %; the others have six, and err by 0.1 %."""
    rng = np.random.default_rng(7)
    seconds = np.full((200, 16, 2, 6, 2, 3), 4e-4)
    seconds[:, :, 1] *= np.exp(rng.normal(0, 0.001, (200, 16)) * np.where(np.arange(200) % 2, 1, 2)[:, None])[
        ..., None, None, None
    ]
    seconds[::2, :, :, 3:] = np.nan
    drawn = replace(samples, seconds=seconds.astype(np.float32), calls=np.ones_like(samples.calls))
    _, three, six = (line.split(" | ") for line in by_places([drawn]))

    assert (three[:2], six[:2]) == (["3", "1600"], ["6", "1600"])
    assert float(three[2]) == pytest.approx(2 / np.sqrt(2.5), abs=0.06)
    assert float(six[2]) == pytest.approx(1 / np.sqrt(2.5), abs=0.04)


def test_a_single_place_says_nothing(samples: Samples) -> None:
    single = replace(samples, seconds=samples.seconds[:, :, :, :1])
    assert np.isnan(lasting(single)).all()
    assert len(table([single])) == len(by_places([single])) == 1
