"""The statistics of the paired gate: plain values in, plain values out, numpy alone."""

from flopwatch.model import SeriesResult
from flopwatch.stats.design import Design
from flopwatch.stats.interval import Interval, interval, single_p
from flopwatch.stats.power import Plan, detectable, pairs_needed, pairs_to_settle, plan, power_of
from flopwatch.stats.prior import PRIOR, Prior, fit_prior
from flopwatch.stats.procedure import Decision, Sampler, Stage, decide
from flopwatch.stats.signflip import max_t, p_slower, standardise

__all__ = [
    "PRIOR",
    "Decision",
    "Design",
    "Interval",
    "Plan",
    "Prior",
    "Sampler",
    "SeriesResult",
    "Stage",
    "decide",
    "detectable",
    "fit_prior",
    "interval",
    "max_t",
    "p_slower",
    "pairs_needed",
    "pairs_to_settle",
    "plan",
    "power_of",
    "single_p",
    "standardise",
]
