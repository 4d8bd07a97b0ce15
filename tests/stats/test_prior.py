from __future__ import annotations

import numpy as np
import pytest

from flopwatch.stats.prior import MAX_DEGREES, Prior, _digamma, _inverse_trigamma, _trigamma, fit_prior


def test_digamma_and_trigamma_have_their_known_values() -> None:
    assert _digamma(1) == pytest.approx(-0.5772156649015329)
    assert _digamma(0.5) == pytest.approx(-1.9635100260214235)
    assert _trigamma(1) == pytest.approx(np.pi**2 / 6)
    assert _trigamma(0.5) == pytest.approx(np.pi**2 / 2)


@pytest.mark.parametrize("x", [0.3, 1.0, 7.0, 200.0])
def test_the_inverse_inverts(x: float) -> None:
    assert _inverse_trigamma(_trigamma(x)) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize("degrees", [4.0, 10.0])
def test_a_planted_prior_is_found_again(degrees: float) -> None:
    rng = np.random.default_rng(1)
    deviations = 0.001 * np.sqrt(degrees / rng.chisquare(degrees, size=(2000, 1)))

    prior = fit_prior(deviations * rng.normal(size=(2000, 13)))

    assert prior.degrees == pytest.approx(degrees, rel=0.25)
    assert prior.deviation == pytest.approx(0.001, rel=0.05)


def test_outliers_and_invalid_pairs_do_not_spoil_the_fit() -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(scale=0.001, size=(500, 12))
    table[:5, 3] = 0.3
    table[5:50, 0] = np.nan

    assert fit_prior(table).deviation == pytest.approx(0.001, rel=0.05)


def test_series_that_agree_have_as_many_degrees_as_there_are() -> None:
    table = 0.001 * np.resize([1.0, -1.0], (20, 12))

    assert fit_prior(table).degrees == MAX_DEGREES


def test_a_single_series_is_refused() -> None:
    with pytest.raises(ValueError, match="two series or more"):
        fit_prior(np.ones((1, 5)))


@pytest.mark.parametrize(("degrees", "deviation"), [(-1, 0.001), (8, 0), (8, float("nan"))])
def test_a_prior_that_is_none_is_refused(degrees: float, deviation: float) -> None:
    with pytest.raises(ValueError, match="a prior needs"):
        Prior(degrees=degrees, deviation=deviation)
