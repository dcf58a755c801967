"""Paired timing: how a candidate is measured against its baseline and what that proves."""

from aoe.measurement.clocks import deciding_clock, joined, measured, pairs_that_count
from aoe.measurement.estimates import (
    ACCEPT_COVERAGE,
    Scatter,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
    expected_gain,
    mean_estimate,
)
from aoe.measurement.load import QUIET_SHARE, CpuUse, MachineLoad
from aoe.measurement.looks import Look, median_interval, planned_look, variance_ratio
from aoe.measurement.pairs import MeasurePolicy, run_pairs
from aoe.measurement.race import Race, RacePolicy, run_race
from aoe.measurement.samples import (
    OF_THE_MACHINE,
    CallTime,
    Clock,
    Measurement,
    Outcome,
    PairedSamples,
    RoundingSteps,
    joined_loads,
)

__all__ = [
    "ACCEPT_COVERAGE",
    "OF_THE_MACHINE",
    "QUIET_SHARE",
    "CallTime",
    "Clock",
    "CpuUse",
    "Look",
    "MachineLoad",
    "MeasurePolicy",
    "Measurement",
    "Outcome",
    "PairedSamples",
    "Race",
    "RacePolicy",
    "RoundingSteps",
    "Scatter",
    "SpeedupEstimate",
    "accepts",
    "deciding_clock",
    "estimate_speedup",
    "expected_gain",
    "joined",
    "joined_loads",
    "mean_estimate",
    "measured",
    "median_interval",
    "pairs_that_count",
    "planned_look",
    "run_pairs",
    "run_race",
    "variance_ratio",
]
