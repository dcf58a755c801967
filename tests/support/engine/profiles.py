"""Profiles nobody has measured: times are what a test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.measurement import SpeedupEstimate
from aoe.operators import Shape
from aoe.ort.profile import NodeRun
from aoe.profiling.counters import HardwareCounters
from aoe.profiling.figures import OperatorProfile, ProfiledModel
from aoe.profiling.peak import BandwidthLevel, MachinePeak, NodeWork, OperatorBound

PEAK = MachinePeak(
    threads=2,
    flops_per_us=1000.0,
    levels=(
        BandwidthLevel(name="l2", working_bytes=1 << 20, bytes_per_us=400.0),
        BandwidthLevel(name="l3", working_bytes=8 << 20, bytes_per_us=200.0),
        BandwidthLevel(name="memory", working_bytes=256 << 20, bytes_per_us=50.0),
    ),
)
"""Round figures."""


def make_operator_profile(
    name: str = "conv",
    *,
    median_us: float = 100.0,
    roofline_us: float | None = 40.0,
    op_type: str = "Conv",
    op_names: tuple[str, ...] | None = None,
    op_types: tuple[str, ...] | None = None,
    reads: tuple[str, ...] = (),
    output_shape: Shape = (1, 16, 8, 8),
    **members: Any,
) -> OperatorProfile:
    """Return an operator that computes one node of its own name."""
    names = (name,) if op_names is None else op_names
    return OperatorProfile(
        name=name,
        op_names=names,
        op_type=op_type,
        op_types=(op_type,) * len(names) if op_types is None else op_types,
        reads=reads,
        input_shapes=((1, 16, 8, 8),),
        output_shapes=(output_shape,),
        median_us=median_us,
        roofline_us=roofline_us,
        **{
            "dtype": "float32",
            "min_us": median_us * 0.9,
            "bound": OperatorBound.COMPUTE if roofline_us is not None else OperatorBound.UNKNOWN,
            "work": None
            if roofline_us is None
            else NodeWork(
                flops=round(roofline_us * PEAK.flops_per_us),
                weight_bytes=1000,
                activation_bytes=3000,
            ),
            **members,
        },
    )


def make_tried(
    action: str, median: float | None, verdict: TrialVerdict, **members: Any
) -> TriedAction:
    """Return an action of advice that was tried, at this speed-up; None where it failed."""
    estimate = None
    if median is not None:
        estimate = SpeedupEstimate(
            median=median, low=median - 0.01, high=median + 0.01, pairs=20, coverage=0.95
        )
    facts: dict[str, Any] = {"needs_retraining": False, "reason": "", **members}
    return TriedAction(
        action=action,
        what="this becomes that",
        op_names=("conv",),
        room_us=60.0,
        estimate=estimate,
        verdict=verdict,
        **facts,
    )


def make_counters(**per_run: float) -> HardwareCounters:
    """Return what the counters of the processor read in a run."""
    return HardwareCounters(per_run=per_run, reason="")


def make_profile(
    *operators: OperatorProfile,
    model: str = "net.onnx",
    by_threads: Mapping[int, float] | None = None,
    counters: HardwareCounters | None = None,
) -> ProfiledModel:
    """Return a profile of these operators, which ran one after the other."""
    timeline, now_us = [], 0.0
    for operator in operators:
        timeline.append(
            NodeRun(node=operator.name, start_us=now_us, duration_us=operator.median_us)
        )
        now_us += operator.median_us
    return ProfiledModel(
        model=model,
        soc_version="x86-64-test",
        cpu_model="Test CPU",
        threads=2,
        runs=10,
        model_us=now_us + 10.0,
        model_min_us=now_us,
        model_us_by_threads=by_threads or {},
        peak=PEAK,
        operators=operators,
        timeline=tuple(timeline),
        counters=counters or HardwareCounters(),
        versions={"aoebank": "0.1.0", "onnxruntime": "1.31.1"},
    )
