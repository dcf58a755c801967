"""Result of a run of operator tuning, and its files: AOE's rows, details, profiles, summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoe.bank.operators import key_of
from aoe.bank.remembered import RememberedOperator, remembered_to_json
from aoe.graph.regions import Refusal
from aoe.graph.rewrite import kernel_node_name
from aoe.kernels.algorithms import KNOB
from aoe.measurement import SpeedupEstimate
from aoe.operators.model_types import main_type, model_types
from aoe.ort.profile import ModelProfile
from aoe.profiling.figures import OperatorProfile
from aoe.results.files import (
    NOT_TRIED_OUT,
    Gain,
    GainKind,
    RepoOutcome,
    finite_or_none,
    machine_to_json,
    steps_to_json,
    write_json,
    write_table,
)
from aoe.results.opat import OpatReport, OperatorResult
from aoe.runs.model_mode import (
    ModelTuning,
    rounded,
    task_members,
    trial_members,
)
from aoe.schedule import Schedule, schedule_to_json
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.tasks.operators.operator import TunedOperator
from aoe.tuner.mode import JobType
from aoe.tuner.precision.settings import KEEP_FLOAT32, PrecisionSettings
from aoe.tuner.task_search import SearchResult
from aoe.validation.accuracy import HeldAccuracy
from aoe.validation.calibrated import Calibration, form_to_json
from aoe.workload import Precision, shape_text, workload_to_json

_UNSAFE = str.maketrans(dict.fromkeys('/\\:*?"<>| ', "_"))
_PROFILE_COLUMNS = (
    *("node", "time_us", "share_percent", "measured_us", "min_us", "op_names", "op_type"),
    *("op_types", "input_shapes", "output_shapes", "dtype", "layout", "calls", "flops", "bytes"),
    *("gflops_per_s", "gbytes_per_s", "roofline_us", "lost_us", "peak_percent", "bound"),
    "recalled",
)
_LONGEST_NAME = 80
"""Characters of an operator type in a file name; file systems take 255 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointGain:
    """Gain of the whole model at one shape of the range it is tuned for."""

    shapes: str  # The shape, as `--input_shape` says it
    estimate: SpeedupEstimate  # Speed-up with its 95 % interval
    baseline_us: float  # Time of the untuned model

    @property
    def tuned_us(self) -> float:
        """Time of the tuned model."""
        return self.baseline_us / self.estimate.median


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatResult(ModelTuning[ChosenKernel]):
    """Result of a run of operator tuning."""

    job = JobType.OPAT

    operators: tuple[TunedOperator, ...]  # Every operator looked at, largest share of time first
    refusals: tuple[Refusal, ...]  # Nodes left to ONNX Runtime, with the reason
    profile: ModelProfile  # Of the untuned model
    tuned_profile: ModelProfile  # Of the tuned model
    report: OpatReport  # Contents of AOE's result file
    allowed: PrecisionSettings = KEEP_FLOAT32  # What precision the run might use
    graph_precision: Precision = Precision.FLOAT32  # The lowest of the graph without kernels
    calibration: Calibration | None = None  # Forms in integers, None where none was asked for
    # Of the nodes of the untuned and of the tuned model, see `aoe profile`.
    figures: tuple[tuple[OperatorProfile, ...], tuple[OperatorProfile, ...]] = ((), ())
    shape_range: str = ""  # Text of `--input_shape` where the model is tuned for a range of shapes
    # What it gains at shapes of that range; the speed-up is their geometric mean.
    points: tuple[PointGain, ...] = ()

    @property
    def precision(self) -> Precision:
        """The lowest the tuned model computes in: what its speed-up is of."""
        return lowest_precision(self.validation.kept, self.graph_precision)

    @property
    def used_keys(self) -> frozenset[str]:
        """Record keys of the kernels in the tuned model, and of all they are made of."""
        kept = self.validation.kept
        parts = {key_of(one) for kernel in kept for one in kernel.workloads}
        return frozenset(parts | {kernel.key for kernel in kept})

    def rows(self) -> list[dict[str, Any]]:
        """Return the operators as the summary has them."""
        return [_operator_row(tuned, self) for tuned in self.operators]

    def own_members(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return undecided operators, points of a range, the precision, and refusals."""
        accuracy = self.validation.accuracy
        return {
            "undecided_ops": sum(row["reason"].startswith(NOT_TRIED_OUT) for row in rows),
            **_range_members(self),
            "profile_recalled": self.profile.is_recalled,
            "precision": self.precision.value,
            "precision_mode": self.allowed.mode.value,
            "strict_fp32": self.allowed.strict,
            "accuracy": _accuracy(accuracy) if accuracy else None,
            "calibration": _forms(self.calibration) if self.calibration else None,
            "calibration_from_bank": self.calibration is not None and self.calibration.is_stored,
            "left_to_onnxruntime": [
                {"node": r.node, "op_type": r.op_type, "reason": r.reason} for r in self.refusals
            ],
        }


def _forms(found: Calibration) -> list[dict[str, Any]]:
    """Return the forms in integers that were measured, as the summary has them."""
    return [*map(form_to_json, found.forms)]


def write_details(result: OpatResult) -> None:
    """Write `op_tuning/` and `profiling/`.

    Raises:
        OutputError: one of them cannot be written.
    """
    directory = result.places.results
    for name, alike in _detail_files(result.operators).items():
        write_json(
            directory / "op_tuning" / name, [_operator_detail(tuned, result) for tuned in alike]
        )
    before, after = _node_times(result)
    profiling = directory / "profiling"
    untuned, tuned = result.figures
    _write_profile(profiling / "before_tuning", result.profile, before, untuned)
    _write_profile(profiling / "after_tuning", result.tuned_profile, after, tuned)


def _range_members(result: OpatResult) -> dict[str, Any]:
    """Return the members of a run for a range of shapes, none for other runs."""
    if not result.shape_range:
        return {}
    points = [
        {
            "shapes": point.shapes,
            "baseline_ms": round(point.baseline_us / 1e3, 4),
            "tuned_ms": round(point.tuned_us / 1e3, 4),
            "speedup": round(point.estimate.median, 4),
            "speedup_low": round(point.estimate.low, 4),
            "speedup_high": round(point.estimate.high, 4),
        }
        for point in result.points
    ]
    return {"shape_range": result.shape_range, "points": points}


def _accuracy(held: HeldAccuracy[ChosenKernel]) -> dict[str, Any]:
    trade = held.trade
    return {
        "constraint": str(held.constraint),
        "value": finite_or_none(trade.value),
        "holds": trade.holds,
        "value_before_putting_back": finite_or_none(trade.at_first),
        "input_sets": held.sets,
        "made_up_inputs": held.made_up,
        "kernels": [
            {
                "kernel": kernel.source.name,
                "op_names": list(kernel.op_names),
                "precision": kernel.source.workload.precision.value,
                "saves_us": round(kernel.gain_us, 3),
                "value_alone": finite_or_none(trade.alone.get(kernel.source.name, math.nan)),
                "put_back": kernel.source.name in trade.roll_back,
            }
            for kernel in held.weighed
        ],
    }


def _detail_files(operators: Sequence[TunedOperator]) -> dict[str, list[TunedOperator]]:
    """Return the operators by the file that tells about them: one for each type and precision."""
    files: dict[str, list[TunedOperator]] = {}
    for tuned in operators:
        workload = tuned.operator.workload
        kind = main_type(workload.operations).translate(_UNSAFE)[:_LONGEST_NAME]
        files.setdefault(f"{kind}_{workload.precision.value}.json", []).append(tuned)
    return files


def _operator_row(tuned: TunedOperator, result: OpatResult) -> dict[str, Any]:
    operator = tuned.operator
    return {
        "key": operator.key,
        "op_type": operator.workload.op_type,
        "op_name": operator.op_name,
        "op_names": list(operator.op_names),
        "model_op_names": list(operator.model_op_names),
        "precision": operator.workload.precision.value,
        "model_op_types": list(model_types(operator.workload.operations)),
        "operations": [op.op_type for op in operator.workload.operations],
        "share_percent": round(operator.share * 100, 2),
        **task_members(tuned, in_model=operator.key in result.used_keys),
        "one_step_off": steps_to_json(tuned.rounding),
    }


def _operator_detail(tuned: TunedOperator, result: OpatResult) -> dict[str, Any]:
    trials = tuned.search.trials if tuned.search is not None else ()
    found = tuned.search.measurement if tuned.search is not None else None
    return {
        "schema": "aoe.op_tuning/1",
        "key": tuned.operator.key,
        "op_names": list(tuned.operator.op_names),
        "workload": workload_to_json(tuned.operator.workload),
        "outcome": tuned.outcome.value,
        "reason": tuned.reason,
        "speedup": rounded(tuned.speedup),
        "one_step_off": steps_to_json(tuned.rounding),
        "machine": machine_to_json(found) if found is not None else None,
        "strategy": schedule_to_json(tuned.schedule) if tuned.schedule is not None else None,
        "trials": [
            {
                "configuration": dict(trial.configuration),
                **trial_members(trial.measurement),
            }
            for trial in trials
        ],
        **remembered_to_json(result.remembered.get(tuned.operator.key, RememberedOperator())),
    }


_NodeTimes = Mapping[str, tuple[float, bool]]
"""Time of an operator in microseconds, by node it ends at; True if an earlier run measured it."""


def _node_times(result: OpatResult) -> tuple[_NodeTimes, _NodeTimes]:
    """Return the measured times of operators, by node of the untuned and of the tuned model.

    A profiler's run is another one: its times tell which nodes count, these what tuning changed.
    """
    by_key = {tuned.operator.key: tuned for tuned in result.operators}
    before = {
        name: (tuned.before_us, tuned.is_recalled)
        for tuned in result.operators
        if tuned.before_us is not None
        for name in tuned.operator.op_names
    }
    after = dict(before)
    for kernel in result.validation.kept:
        found = by_key.get(kernel.key)
        if found is not None and found.after_us is not None:
            time = found.after_us, found.is_recalled
            nodes = (kernel_node_name(name, kernel.source.name) for name in kernel.op_names)
            after |= dict.fromkeys(nodes, time)
    return before, after


def _write_profile(
    directory: Path,
    profile: ModelProfile,
    measured_us: _NodeTimes,
    figures: Sequence[OperatorProfile],
) -> None:
    total = profile.nodes_us or 1.0
    known = {operator.name: _figure_columns(operator) for operator in figures}
    rows = []
    for name, us in sorted(profile.node_us.items(), key=lambda item: -item[1]):
        alone_us, is_recalled = measured_us.get(name, (None, False))
        recalled = {"time_us": profile.is_recalled, "measured_us": is_recalled}
        rows.append(
            {
                "node": name,
                "time_us": round(us, 3),
                "share_percent": round(us / total * 100, 3),
                "measured_us": rounded(alone_us),
                **known.get(name, {}),
                "recalled": " ".join(column for column, is_so in recalled.items() if is_so),
            }
        )
    write_table(directory / "op_summary.csv", _PROFILE_COLUMNS, rows)


def _figure_columns(operator: OperatorProfile) -> dict[str, Any]:
    """Return the figures of `aoe profile` in columns; empty where there is none."""
    # a kernel that does less than the definition of its operator has no rate of the machine
    share = None if operator.peak_share is None else min(1.0, operator.peak_share)
    return {
        "min_us": rounded(operator.min_us),
        "op_names": " ".join(operator.op_names),
        "op_type": operator.op_type,
        "op_types": " ".join(operator.op_types),
        "input_shapes": " ".join(map(shape_text, operator.input_shapes)),
        "output_shapes": " ".join(map(shape_text, operator.output_shapes)),
        "dtype": operator.dtype,
        "layout": operator.layout,
        "calls": operator.calls,
        "flops": operator.flops,
        "bytes": operator.bytes,
        "gflops_per_s": rounded(operator.gflops_per_s),
        "gbytes_per_s": rounded(operator.gbytes_per_s),
        "roofline_us": rounded(operator.roofline_us),
        "lost_us": rounded(operator.lost_us),
        "peak_percent": rounded(None if share is None else 100 * share),
        "bound": operator.bound.value if operator.roofline_us is not None else None,
    }


def operator_result(tuned: TunedOperator) -> OperatorResult:
    """Return the row of an operator in AOE's result file."""
    workload = tuned.operator.workload
    return OperatorResult(
        op_name=tuned.operator.op_name,
        fused=tuned.operator.model_op_names,
        op_types=model_types(workload.operations),
        outcome=tuned.outcome,
        gains=gains_of(tuned),
        failed=tuned.outcome is RepoOutcome.UNSATISFIED and has_failed(tuned),
        precision=workload.precision,
        rounding=tuned.rounding,
    )


def has_failed(tuned: TunedOperator) -> bool:
    """Return True if candidates were tried and none could be compiled, run, or was right."""
    trials = tuned.search.trials if tuned.search is not None else ()
    return bool(trials) and not any(trial.measurement.is_correct for trial in trials)


def gains_of(tuned: TunedOperator) -> tuple[Gain, ...]:
    """Return the gains of an operator that was added or updated.

    Of the default, what changes the layout goes first; what is left gives way to another
    implementation with its first guess of a schedule, then that schedule to the best one. Where the
    first guess is slower than what it takes the place of, the implementation alone is no gain, and
    all of it is the schedule's. No more is the layout's than was gained at all.
    """
    before_us, after_us = tuned.before_us, tuned.after_us
    modified = tuned.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    if not modified or before_us is None or after_us is None or tuned.search is None:
        return ()
    formatted_us = before_us
    if tuned.formatted_us is not None:
        formatted_us = min(before_us, max(tuned.formatted_us, after_us))
    guessed_us = min(formatted_us, after_us / _share_of_first_guess(tuned.search))
    steps = (
        Gain(kind=GainKind.FORMAT, before_us=before_us, after_us=formatted_us),
        Gain(kind=GainKind.IMPL, before_us=formatted_us, after_us=guessed_us),
        Gain(kind=GainKind.SCHEDULE, before_us=guessed_us, after_us=after_us),
    )
    return tuple(gain for gain in steps if gain.before_us > gain.after_us)


def _share_of_first_guess(search: SearchResult[Schedule]) -> float:
    """Return the speed of the winner's implementation with its first schedule over the winner's.

    Both were measured against the default in pairs of one session.
    """
    best = search.configuration
    if best is None:
        return 1.0
    alike = [
        trial
        for trial in search.trials
        if trial.measurement.is_correct and trial.configuration.get(KNOB) == best.get(KNOB)
    ]
    of_best = [trial for trial in alike if trial.configuration == best]
    if not of_best:
        return 1.0
    return min(1.0, alike[0].measurement.speedup / of_best[0].measurement.speedup)
