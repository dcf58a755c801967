"""Paired timing: how a candidate is measured against its baseline and what that proves."""

from aoe.measurement.estimates import (
    ACCEPT_COVERAGE,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
    expected_gain,
    median_interval,
)
from aoe.measurement.load import QUIET_SHARE, CpuUse, MachineLoad
from aoe.measurement.pairs import MeasurePolicy, run_pairs
from aoe.measurement.race import Race, RacePolicy, run_race
from aoe.measurement.samples import (
    OF_THE_MACHINE,
    Measurement,
    Outcome,
    PairedSamples,
    joined_loads,
)
from aoe.measurement.scatter import Scatter

__all__ = [
    "ACCEPT_COVERAGE",
    "OF_THE_MACHINE",
    "QUIET_SHARE",
    "CpuUse",
    "MachineLoad",
    "MeasurePolicy",
    "Measurement",
    "Outcome",
    "PairedSamples",
    "Race",
    "RacePolicy",
    "Scatter",
    "SpeedupEstimate",
    "accepts",
    "estimate_speedup",
    "expected_gain",
    "joined_loads",
    "median_interval",
    "run_pairs",
    "run_race",
]
