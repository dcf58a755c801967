"""The whole model at the points of a range: which kernels stay, and what they gain at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aoe.bank.operators import OperatorBank
from aoe.bank.verdicts import BankNote
from aoe.entry.shape_range import ShapePoint
from aoe.runs.operators.result import PointGain
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuner.live_report import Phase
from aoe.tuner.tune_context import TuneContext
from aoe.validation.comparing import ModelComparer, PointInputs
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.kernels import (
    compiled,
    earlier_verdict,
    kernels_within_memory,
    model_comparer,
    model_validator,
    of_proven,
    with_figures,
)
from aoe.validation.model_validator import ValidationResult, better_of, decide_candidates
from aoe.validation.prior_result import PriorResult
from aoe.validation.time_reserve import ModelCosts
from aoe.workload import Workload
from aoebank import Event, plural


def validate_points(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    points: Sequence[ShapePoint],
    costs: ModelCosts,
    proven: ValidationResult[ChosenKernel] | None = None,
) -> tuple[ValidationResult[ChosenKernel], tuple[PointGain, ...]]:
    """Return the kernels that stay, and their gains; a library of the staying kernels is built.

    Kernels are judged as those of fixed shapes are, at all points in the same processes. They stay
    if the geometric mean of the gains is proven, no result is wrong and no point surely loses.
    The bank remembers that for the next run over the same range, see `validate_kernels`.

    Args:
        tuning: The run.
        bank: Knows what earlier runs settled.
        assembly: Puts the model together.
        kernels: For any number of rows.
        points: The smallest first, with their counts.
        costs: What things take with this model, at these points.
        proven: The model of an early proof, which stays unless this one is better.
    """
    tuning.time.phases.begin(Phase.VALIDATE)
    comparer = _comparer(tuning, assembly, costs, points)
    earlier = {one.name: _earlier(tuning, bank, one) for one in kernels}
    candidates = [one for one in kernels if earlier[one.name] is not Event.DROPPED]
    candidates = kernels_within_memory(tuning, candidates)
    in_library, lost = compiled(tuning, assembly, candidates, comparer)
    own = frozenset(one.name for one in in_library if earlier[one.name] is Event.KEPT)
    validation, _ = decide_candidates(
        model_validator(tuning, comparer),
        in_library,
        own=own,
        prior=lambda: PriorResult(proven=own, believed=own),  # with others, all is proven anew
        lookup_only=tuning.settings.lookup_only,
        progress=tuning.progress,
    )
    better = better_of(validation, proven)
    if better is not validation:
        validation = better
        of_proven(tuning, assembly, better, ())
        in_library = [*in_library, *(one for one in better.kept if one not in in_library)]
    validation = validation.with_drops(lost)
    if tuning.settings.lookup_only:
        return with_figures(tuning, assembly, validation, costs), ()
    if len(validation.kept) < len(in_library):
        assembly.build(validation.kept)  # the library a second run will build
    gains = _gains(validation, points)
    decided = [one for one in in_library if validation.is_decided(one)]
    news = [one for one in decided if one.name not in own or one not in validation.kept]
    bank.note([note for one in news for note in _notes(assembly, validation, one, gains)])
    validation = with_figures(tuning, assembly, validation, costs, comparer)
    return validation, _gains(validation, points)


def prove_points_early(
    bank: OperatorBank,
    assembly: Assembly,
    points: Sequence[ShapePoint],
    costs: ModelCosts,
    tuning: TuneContext,
    kernels: Sequence[ChosenKernel],
) -> ValidationResult[ChosenKernel] | str:
    """Return the model with some kernels if it is proven faster over the points, else why not.

    Nothing is settled by that: the search goes on, and `validate_points` has the last word.

    Args:
        bank: Knows what earlier runs settled.
        assembly: Puts the model together.
        points: The smallest first, with their counts.
        costs: What things take with this model, at these points.
        tuning: The run, with the time there is for the proof.
        kernels: For any number of rows, found so far.
    """
    candidates = kernels_within_memory(
        tuning, [one for one in kernels if _earlier(tuning, bank, one) is not Event.DROPPED]
    )
    if not candidates:
        return "no operator has a kernel for all of the range"
    tuning.time.phases.begin(Phase.VALIDATE)
    comparer = _comparer(tuning, assembly, costs, points)
    in_library, _ = compiled(tuning, assembly, candidates, comparer)
    tuning.progress.step(f"trying the whole model with {plural(len(in_library), 'kernel')}")
    return model_validator(tuning, comparer).prove(in_library)


def _gains(
    validation: ValidationResult[ChosenKernel], points: Sequence[ShapePoint]
) -> tuple[PointGain, ...]:
    return tuple(
        PointGain(
            shapes=str(points[gain.number]),
            estimate=gain.estimate,
            baseline_us=gain.measurement.baseline_latency_us,
        )
        for gain in validation.points
    )


def _earlier(tuning: TuneContext, bank: OperatorBank, kernel: ChosenKernel) -> Event | None:
    """Return the settled verdict on a kernel: that on all of its records, since each may change."""
    verdicts = {earlier_verdict(tuning, bank, one) for one in kernel.workloads}
    return verdicts.pop() if len(verdicts) == 1 else None


def _notes(
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    kernel: ChosenKernel,
    gains: Sequence[PointGain],
) -> list[tuple[Workload, BankNote]]:
    """Return the verdict on a kernel as a note on each of its records, with the model's times."""
    note = validation.verdict(kernel, kernel.op_names, assembly.surroundings(kernel))
    if kernel in validation.kept:
        times = {
            gain.shapes: [round(us, 1) for us in (gain.baseline_us, gain.tuned_us)]
            for gain in gains
        }
        note = replace(note, search={**note.search, "points_us": times})
    return [(one, note) for one in kernel.workloads]


def _comparer(
    tuning: TuneContext,
    assembly: Assembly,
    costs: ModelCosts,
    points: Sequence[ShapePoint],
) -> ModelComparer[ChosenKernel]:
    """Return the comparer of models at all points at once.

    Where the time is too short to time all of them, the ends and the middle will do, and only the
    results are compared at the others.
    """
    *others, largest = points
    ends_and_middle = (points[0], points[len(points) // 2], largest)

    def comparer(timed: Sequence[ShapePoint]) -> ModelComparer[ChosenKernel]:
        elsewhere = [
            PointInputs(
                inputs=at_point(tuning, one).subject.inputs,
                weight=one.count if one in timed else 0,
            )
            for one in others
        ]
        return model_comparer(
            at_point(tuning, largest),
            assembly,
            costs,
            elsewhere=elsewhere,
            weight=largest.count,
        )

    everywhere = comparer(points)
    return comparer(ends_and_middle) if everywhere.is_pressed else everywhere


def at_point(tuning: TuneContext, point: ShapePoint) -> TuneContext:
    """Return the run whose model is run on made-up arrays of these shapes."""
    inputs = replace(tuning.subject.inputs, shapes=dict(point.shapes))
    return replace(tuning, subject=replace(tuning.subject, inputs=inputs))
