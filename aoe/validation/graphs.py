"""Rewrites and operators together against operators alone: the better of both is kept.

A rewrite that gains by itself may keep operator tuning from a larger gain: what it has taken apart
is no kernel any more. So where an earlier mode of the run has chosen a graph, the model with the
operators tuned in that is held against the imported model with the same operators tuned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aoe.bank.operators import OperatorBank
from aoe.bank.subgraphs import BESIDE_OPERATORS, SubgraphBank
from aoe.bank.verdicts import BankNote
from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph
from aoe.measurement import SpeedupEstimate
from aoe.ort.profile import ModelProfile
from aoe.tasks.operators.chosen_kernel import ChosenKernel, kernels_of
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tuner.tune_context import TuneContext
from aoe.validation.comparing import TimeIsUpError
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.kernels import (
    compiled,
    held_kernels,
    model_comparer,
    validate_kernels,
    with_figures,
)
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts
from aoebank import Event

FINAL_COMPARISONS = 3
"""Of the whole model, where an earlier mode has chosen its graph: kernels in that graph, all of it
against operators alone, and against the imported model."""

_CLEAR_GAIN = 2.0
"""Speed-up of a graph in integers from which on operator tuning without it is not tried. Source:
docs/benchmarks.md, 1.3x in float32, and 2.2x to 2.4x with bfloat16 where a CPU has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedGraph:
    """A graph of the model whose operators are tuned."""

    tuning: TuneContext  # The model; its chosen graph is this one, None for the imported one
    graph: ModelGraph  # ONNX Runtime's optimised form of it
    profile: ModelProfile  # Where the time of that goes
    tuned: TunedOperators  # Its operators
    assembly: Assembly  # Puts the tuned model together
    costs: ModelCosts  # What things take with this model
    # The model of an early proof, None if there was none.
    proven: ValidationResult[ChosenKernel] | None = None


def rewrite_bank(tuning: TuneContext) -> SubgraphBank:
    """Return the bank of rewrite candidates."""
    base = tuning.banks.base.bank if tuning.banks.base is not None else None
    return SubgraphBank(tuning.banks.journal, anonymous=tuning.settings.anonymous, base=base)


def is_open(tuning: TuneContext) -> bool:
    """True if rewrites of an earlier mode are to be held against operator tuning alone."""
    if tuning.subject.chosen is None or tuning.settings.lookup_only:
        return False
    speedup = tuning.subject.chosen.speedup
    if speedup is not None and speedup < _CLEAR_GAIN:
        return True
    rewrites = rewrite_bank(tuning)
    is_settled = all(
        rewrites.is_kept_beside_operators(use.graph_id) for use in tuning.subject.chosen.uses
    )
    return tuning.settings.repeat_tune or not is_settled


def validate_graphs(
    made: TunedGraph, alone: TunedGraph | None, bank: OperatorBank
) -> tuple[TunedGraph, ValidationResult[ChosenKernel]]:
    """Return the graph that stays, and what holds up in it, with figures over the imported model.

    Args:
        made: The graph of the run.
        alone: The one an earlier mode began with where that has chosen another, None where nothing
            is to be decided.
        bank: Knows what earlier runs settled, and is told what this one does.
    """
    validation, verdicts = validate_kernels(
        made.tuning,
        bank,
        made.assembly,
        made.tuned.operators,
        made.costs,
        proven=made.proven,
    )
    if verdicts:  # none where answers are only looked up
        bank.note(verdicts)
    if alone is not None and not validation.undecided:
        better = _validated_alone(made, validation, alone, bank)
        if better is not None:
            made, validation = alone, better
    found = with_figures(made.tuning, made.assembly, validation, made.costs)
    if made.tuning.subject.is_rewritten and not found.is_changed:
        made = replace(made, tuning=made.tuning.as_imported())
    return made, found


def _validated_alone(
    made: TunedGraph,
    validation: ValidationResult[ChosenKernel],
    alone: TunedGraph,
    bank: OperatorBank,
) -> ValidationResult[ChosenKernel] | None:
    """Return the validation in the imported graph, None unless that is the faster model."""
    progress = made.tuning.progress
    progress.step("holding the whole model against operator tuning alone")
    with_rewrites = _gain_of_rewrites(made, validation, alone)
    if with_rewrites is None:
        return None
    if with_rewrites.median >= 1:
        progress.step(f"it is {with_rewrites.median:.3f}x as fast as with operators alone")
        _note_rewrites(made.tuning, Event.KEPT, with_rewrites)
        return None
    found, verdicts = validate_kernels(
        alone.tuning,
        bank,
        alone.assembly,
        alone.tuned.operators,
        alone.costs,
        is_proven_anew=True,
    )
    if not found.kept:
        return None
    progress.step(
        f"its rewrites go: with operators alone it is {1 / with_rewrites.median:.3f}x as fast"
    )
    bank.note(verdicts)
    _note_rewrites(made.tuning, Event.DROPPED, with_rewrites)
    return found


def _gain_of_rewrites(
    made: TunedGraph, validation: ValidationResult[ChosenKernel], alone: TunedGraph
) -> SpeedupEstimate | None:
    """Return the speed-up of rewrites and operators over operators alone, None if that is open.

    Kernels the model does not keep with its rewrites are left out without them, too.
    """
    progress = made.tuning.progress
    comparer = model_comparer(made.tuning, made.assembly, made.costs)
    kept = {one.name for one in validation.kept}
    gone = {one.name for one in kernels_of(made.tuned.operators)} - kept
    kernels = [one for one in kernels_of(alone.tuned.operators) if one.name not in gone]
    in_library, _ = compiled(alone.tuning, alone.assembly, kernels, comparer)
    try:
        held = held_kernels(alone.tuning, alone.assembly, in_library, alone.costs)
        if not held:
            return None  # the rewrites have been held against that model already
        gain = comparer.for_the_record(validation.kept, alone.assembly.write_model(held))
    except TimeIsUpError:
        progress.warn("the time limit left no time for that: the rewrites stay")
        return None
    except RunError as error:
        progress.warn(f"that cannot be run, the rewrites stay: {error}")
        return None
    found = gain.comparison
    if not found.deviation.acceptable or not found.measurement.counts:
        reason = found.deviation.detail or f"the machine was busy: {found.measurement.busy_words}"
        progress.warn(f"not decided, the rewrites stay: {reason}")
        return None
    return gain.estimate


def _note_rewrites(tuning: TuneContext, event: Event, with_rewrites: SpeedupEstimate) -> None:
    """Keep in the bank which is faster, so that a second run makes the same choice."""
    assert tuning.subject.chosen is not None
    rewrites, uses, is_kept = rewrite_bank(tuning), tuning.subject.chosen.uses, event is Event.KEPT
    faster = "faster" if is_kept else "slower"
    reason = f"the whole model is {faster} with it and operators tuned than with these alone"
    notes = [
        (
            use.graph_id,
            BankNote(
                event=event,
                op_names=use.op_names,
                estimate=with_rewrites,
                search={
                    "strategy": use.strategy,
                    "reason": reason,
                    BESIDE_OPERATORS: True,
                },
            ),
        )
        for use in uses
    ]
    rewrites.note(notes)
    if tuning.places.bank is not None and is_kept:
        rewrites.copy_to(tuning.places.bank, [use.graph_id for use in uses])
