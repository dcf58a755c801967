"""Gradients in 16 bits, on top of the grouping that keeps the bits, where the user allows it.

The grouping that was found is the default of a second tuning, whose candidates are groupings in 16
bits. So compression is in use only if it beats the best that changes no result, and only after the
sums themselves were compared (`TOLERANCE`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from aoe.gradients.compression import TOLERANCE, Compression
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.training import CompressedTraining
from aoe.results.files import TuningResult
from aoe.results.gradients import CompressionReport, GdatReport
from aoe.tasks.gradients.bench import TrainingBench
from aoe.tuner.live_report import LiveReport


def compressed_training(
    bench: TrainingBench, compression: Compression, base: Segmentation | None
) -> CompressedTraining | None:
    """Return the training with sums in 16 bits, None where they may not be used; it is told why.

    Args:
        bench: Of the training in full; its report says what was found.
        compression: What the user allows.
        base: Grouping in use.
    """
    training = bench.training.compressed(compression, base)
    problem, deviation = training.problem(), None
    if problem is None:
        deviation = training.deviation()
        bench.progress.step(
            f"summed in {compression.type_name}, gradients differ by {deviation:.2%}, "
            f"at most {TOLERANCE:.0%} is allowed"
        )
        if not deviation <= TOLERANCE:
            problem = (
                f"gradients would differ by {deviation:.2%}, which is more than {TOLERANCE:.0%}"
            )
    report = CompressionReport(
        compression=compression,
        tolerance=TOLERANCE,
        deviation=deviation if deviation is not None and math.isfinite(deviation) else None,
        problem=problem or "",
    )
    bench.report.update(compression=report)
    if problem is not None:
        bench.progress.warn(f"{compression.type_name} is not used: {problem}")
        return None
    return training


def compressed_bench(bench: TrainingBench, training: CompressedTraining) -> TrainingBench:
    """Return the bench of a training in 16 bits, whose report is a part of the other's."""

    def publish(report: GdatReport) -> None:
        found = bench.report.value.compression
        assert found is not None
        bench.report.update(compression=replace(found, tuning=report))

    empty = replace(
        bench.report.value,
        modelhash=str(training.model_hash),
        result=TuningResult.INCOMPLETE,
        outcome=None,
        cost=None,
        before=None,
        after=None,
        estimate=None,
        candidates=(),
        compression=None,
    )
    return replace(bench, training=training, report=LiveReport(empty, publish, bench.stopwatch))
