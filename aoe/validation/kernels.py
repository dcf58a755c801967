"""Kernels in the whole model: kernels that won alone are kept or dropped by the model's gain.

kernels that won alone -> one library -> accuracy of the model -> without those that slow it down
-> proof of the gain over the untuned model -> notes for later runs
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.verdicts import BankNote
from aoe.execute.accuracy import MODEL_TOLERANCE
from aoe.execute.messages import ModelPart
from aoe.graph.weights import bytes_of
from aoe.kernels.roofline import kept_bytes, multiply_adds
from aoe.ort.calibration import is_quantised
from aoe.tasks.operators.chosen_kernel import ChosenKernel, kernels_of, lowest_precision
from aoe.tasks.operators.operator import TunedOperator
from aoe.tuner.live_report import Phase
from aoe.tuner.policies import final_policy, variant_policy
from aoe.tuner.tune_context import TuneContext
from aoe.validation.accuracy import HeldAccuracy
from aoe.validation.candidates import NO_TIMES, Drop, ModelTimes, P
from aoe.validation.comparing import ModelComparer, TimeIsUpError
from aoe.validation.in_model import times_in_model
from aoe.validation.intervals import least_early_gain
from aoe.validation.kernel_accuracy import AccuracyChecker
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.memory_pruning import PEAK_RATIO, within_memory
from aoe.validation.model_gain import PointMean
from aoe.validation.model_validator import (
    OF_ALL,
    OVER_PEAK,
    ModelValidator,
    ValidationResult,
    better_of,
    decide_candidates,
)
from aoe.validation.prior_result import PriorResult, prior_result_of
from aoe.validation.time_reserve import (
    HURRIED_PROCESSES,
    LEAST_PROCESSES,
    NO_COSTS,
    ModelCosts,
    beyond_limit,
)
from aoe.workload import Workload
from aoebank import Event, plural

SLOWER_FORM = Drop(reason="the whole model is slower in its form than as written", is_final=False)
"""Why nothing stays of a model whose form gives way to the imported one."""


def check_accuracy(tuning: TuneContext, assembly: Assembly) -> None:
    """Refuse a metric that fails, or a bound out of reach, before time is spent on tuning.

    Raises:
        AccuracyError: the metric fails on the untuned model, or misses its bound there.
        RunError: the untuned model cannot be run.
    """
    constraint = tuning.settings.precision.accuracy
    if constraint is not None:
        AccuracyChecker(
            assembly,
            tuning.machine.runner,
            constraint=constraint,
            inputs=tuning.subject.calibration,
        ).check()


Verdicts = Sequence[tuple[Workload, BankNote]]
"""What a model made of kernels, to be kept in the bank."""


def validate_model(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    tuned: Sequence[TunedOperator],
    costs: ModelCosts = NO_COSTS,
) -> ValidationResult[ChosenKernel]:
    """Return the kernels that stay in the whole model, and note the decision in the bank.

    See `validate_kernels`; the figures are those over the imported model.
    """
    validation, verdicts = validate_kernels(tuning, bank, assembly, tuned, costs)
    if verdicts:
        bank.note(verdicts)
    return with_figures(tuning, assembly, validation, costs)


def validate_kernels(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    tuned: Sequence[TunedOperator],
    costs: ModelCosts = NO_COSTS,
    *,
    is_proven_anew: bool = False,
    proven: ValidationResult[ChosenKernel] | None = None,
) -> tuple[ValidationResult[ChosenKernel], Verdicts]:
    """Return the kernels that stay in the run's graph; a library of the staying kernels is built.

    What cannot be judged within the time limit is not used, and a later run judges it. What an
    earlier run settled is believed; where all of it is, nothing is chosen again. What the model of
    `--base_result` has dropped between the same nodes stays out. With `REPEAT_TUNE` nothing is
    settled.

    Args:
        tuning: The model.
        bank: Knows what earlier runs settled.
        assembly: Puts the model together.
        tuned: Its operators.
        costs: What things take with this model.
        is_proven_anew: True to measure in full even where all kernels are settled.
        proven: The model of an early proof, which stays unless this one is better.

    Returns:
        The judgement, and what of it is to be kept.
    """
    tuning.time.phases.begin(Phase.VALIDATE)
    earlier = {t.operator.key: earlier_verdict(tuning, bank, t.operator.workload) for t in tuned}
    lookup_only = tuning.settings.lookup_only
    candidates = kernels_of(tuned)
    dropped = _dropped_in_base(
        tuning, bank, assembly, [k for k in candidates if not earlier[k.key]]
    )
    as_before = {
        one.name: Drop(reason=f"as in the earlier model: {note.search['reason']}")
        for one, note in dropped
    }
    for one, _ in dropped:
        tuning.progress.step(f"left out {one.name}, {as_before[one.name].reason}")
        earlier[one.key] = Event.DROPPED
    left_s = tuning.time.stopwatch.keeping(costs.finishing_s).left_s
    checker = _accuracy_checker(tuning, assembly, candidates, left_s, costs)
    _warn_of_precision(tuning, candidates)
    if checker is None:  # else what was dropped counts too, or a second run would trade otherwise
        candidates = [kernel for kernel in candidates if earlier[kernel.key] is not Event.DROPPED]
    candidates = kernels_within_memory(tuning, candidates)
    # one library for every model that is compared: a kernel that is left out stays in it
    comparer = model_comparer(tuning, assembly, costs, at_most_s=_at_most_s(tuning, costs, proven))
    in_library, lost = compiled(tuning, assembly, candidates, comparer)
    # accuracy before time: a kernel that has to go for it must not count in a gain
    accuracy = _held(tuning, checker, in_library) if checker is not None else None
    held = accuracy.kernels if accuracy is not None else in_library
    kernels = [kernel for kernel in held if earlier[kernel.key] is not Event.DROPPED]
    settled = () if is_proven_anew else kernels
    own = frozenset(one.name for one in settled if earlier[one.key] is Event.KEPT)
    losers: dict[str, Drop] = {}
    times = NO_TIMES
    if max(1, len(own)) < len(kernels) and not lookup_only:  # of one alone the proof decides
        times = times_in_model(tuning, assembly, kernels, costs, comparer.left_s())
    if not comparer.has_time_for_groups:
        kernels, losers = _without_losers(tuning, kernels, times, believed=own)
    validator = model_validator(tuning, comparer, times)
    validation, news = decide_candidates(
        validator,
        kernels,
        own=own,
        prior=lambda: _prior(tuning, bank, assembly, kernels, own),
        lookup_only=lookup_only,
        progress=tuning.progress,
        proven_gain=lambda: _proven_gain(bank, kernels),
        without="without kernels" if tuning.subject.is_rewritten else "untuned",
    )
    stays = (better := better_of(validation, proven)) is not validation
    if stays:
        validation, news = better, of_proven(tuning, assembly, better, news)
    noted = [
        (one.source.workload, validation.verdict(one, one.op_names, assembly.surroundings(one)))
        for one in news
    ]
    noted += [(one.source.workload, note) for one, note in dropped]
    if checker is not None and accuracy is not None and not stays:  # whose accuracy is known
        validation = _still_accurate(checker, accuracy, validator, validation)
    if len(validation.kept) < len(in_library):
        assembly.build(validation.kept)  # the library a second run will build
    validation = validation.with_drops({**losers, **lost, **as_before})
    return validation, () if lookup_only else noted


def _at_most_s(
    tuning: TuneContext, costs: ModelCosts, proven: ValidationResult[ChosenKernel] | None
) -> Callable[[], float] | None:
    """Return the seconds of the least comparison, beyond the limit where nothing is proven yet."""
    if proven is not None:
        return None
    return beyond_limit(tuning.time.stopwatch).keeping(costs.finishing_s).left_s


def _prior(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    own: frozenset[str],
) -> PriorResult:
    """Return the decisions of earlier models about these kernels.

    Args:
        own: Names of those that an earlier run on this model kept.
    """
    return prior_result_of(
        kernels,
        own,
        lambda one: bank.kept_before(one.source.workload),
        assembly.surroundings,
        repeat_tune=tuning.settings.repeat_tune,
        usual_share=bank.usual_kept_share(one.source.workload.op_type for one in kernels),
    )


def of_proven(
    tuning: TuneContext,
    assembly: Assembly,
    proven: ValidationResult[ChosenKernel],
    news: Sequence[ChosenKernel],
) -> list[ChosenKernel]:
    """Write the model of an early proof again; return the kernels the bank needs a note on.

    A kernel that was found since in the place of another one is no news: that one stays.
    """
    kept = plural(len(proven.kept), "kernel")
    tuning.progress.step(
        f"the model proven before stays: {proven.estimate.median:.3f}x with {kept}"
    )
    assembly.build(proven.kept)
    assembly.write_model(proven.kept)
    keys = {one.key for one in proven.kept}
    others = [one for one in news if one.key not in keys and proven.is_decided(one)]
    return [*others, *proven.kept]


def prove_early(
    bank: OperatorBank,
    assembly: Assembly,
    costs: ModelCosts,
    tuning: TuneContext,
    tuned: Sequence[TunedOperator],
) -> ValidationResult[ChosenKernel] | str:
    """Return the model with the kernels found so far if it is proven faster, else why it is not.

    Nothing is settled by that: the search goes on, and `validate_kernels` has the last word.

    Args:
        bank: Knows what earlier runs settled.
        assembly: Puts the model together.
        costs: What things take with this model.
        tuning: The model, with the time there is for the proof.
        tuned: Operators tuned so far.
    """
    tuning.time.phases.begin(Phase.VALIDATE)
    candidates = _not_dropped(tuning, bank, assembly, kernels_of(tuned))
    candidates = kernels_within_memory(tuning, candidates)
    comparer = model_comparer(tuning, assembly, costs)
    kernels, _ = compiled(tuning, assembly, candidates, comparer)
    threads = tuning.machine.runner.target.core_num
    proof = tuning.time.stopwatch.keeping(costs.early_proof_s(threads, LEAST_PROCESSES))
    checker = _accuracy_checker(tuning, assembly, kernels, proof.left_s, costs, is_early=True)
    accuracy = checker.hold(kernels) if checker is not None else None
    if accuracy is not None:
        if not accuracy.is_kept:
            return f"its accuracy is not known in that time: {accuracy}"
        kernels = list(accuracy.kernels)
    times = times_in_model(tuning, assembly, kernels, costs, comparer.left_s())
    kernels, _ = _without_losers(tuning, kernels, times)
    expected = times.expected_gain(kernels)
    processes = comparer.early_processes
    least = least_early_gain(processes)
    if expected is not None and expected < least:
        shown = f"profiles of the model show {expected:.2f}x"
        return f"{shown}, {least:.2f}x is what {processes} processes prove"
    tuning.progress.step(f"trying the whole model with {plural(len(kernels), 'kernel')}")
    found = model_validator(tuning, comparer, times).prove(kernels)
    if isinstance(found, str) or checker is None or accuracy is None:
        return found
    if len(found.kept) < len(accuracy.kernels):  # errors may add up anew
        again = checker.hold(found.kept)
        if not again.is_kept or again.trade.roll_back:
            return f"without the others it is not accurate enough: {again}"
        accuracy = accuracy.followed_by(again)
    return replace(found, accuracy=accuracy)


def _not_dropped(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
) -> list[ChosenKernel]:
    """Return the kernels that neither this model nor the earlier one has dropped."""
    earlier = {one.name: earlier_verdict(tuning, bank, one.source.workload) for one in kernels}
    undecided = [one for one in kernels if earlier[one.name] is None]
    dropped = {one.name for one, _ in _dropped_in_base(tuning, bank, assembly, undecided)}
    dropped.update(name for name, verdict in earlier.items() if verdict is Event.DROPPED)
    return [one for one in kernels if one.name not in dropped]


def _without_losers(
    tuning: TuneContext,
    kernels: Sequence[ChosenKernel],
    times: ModelTimes,
    believed: Collection[str] = (),
) -> tuple[list[ChosenKernel], dict[str, Drop]]:
    """Return the kernels that lose nothing by profiles of the model, and why others go back.

    Where there is time, groups of kernels are compared with and without instead, which is surer.
    """
    # a run with more time compares the model without them
    drops = {
        name: Drop(reason=reason, is_final=False)
        for name, reason in times.losses.items()
        if name not in believed
    }
    for name, drop in drops.items():
        tuning.progress.step(f"put back {name}: {drop.reason}")
    return [one for one in kernels if one.name not in drops], drops


def _proven_gain(bank: OperatorBank, kernels: Sequence[ChosenKernel]) -> float | None:
    """Return the least gain that was proven of this model with kernels, None if not of all."""
    gains = [bank.proven_gain(one.source.workload, one.name) for one in kernels]
    known = [gain for gain in gains if gain is not None]
    return min(known, default=None) if len(known) == len(gains) else None


def _dropped_in_base(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
) -> list[tuple[ChosenKernel, BankNote]]:
    """Return the kernels the earlier model has dropped where they stand here, with that verdict.

    What was dropped because of that whole model, see `OF_ALL`, is tried again.
    """
    if tuning.settings.repeat_tune:
        return []
    found = []
    for one in kernels:
        verdict = bank.dropped_in_base(one.source.workload, OF_ALL)
        here = assembly.surroundings(one) if verdict is not None else frozenset()
        if verdict is None or not here or not here <= verdict.surroundings:
            continue
        note = BankNote.of_model(
            Event.DROPPED,
            one.op_names,
            reason=verdict.reason,
            estimate=None,
            surroundings=here,
        )
        found.append((one, note))
    return found


def model_validator(
    tuning: TuneContext, comparer: ModelComparer[ChosenKernel], times: ModelTimes = NO_TIMES
) -> ModelValidator[ChosenKernel]:
    """Return the validator of a model, with its bound on memory: `--memory`, else the peak.

    What is settled in a graph an earlier mode has chosen is proven by `with_figures`.

    Args:
        tuning: The run.
        comparer: Compares models with and without kernels.
        times: What profiles of the model say of them.
    """
    weights = tuning.subject.model.proto.graph.initializer
    return ModelValidator(
        comparer,
        tuning.progress.step,
        bytes_kept_beside,
        math.inf if is_memory_given(tuning) else PEAK_RATIO,
        mapped_bytes=math.fsum(map(bytes_of, weights)),
        proves_settled=tuning.settings.proves_settled and not tuning.subject.is_rewritten,
        times=times,
        streams=tuning.subject.streams,
    )


def with_figures(
    tuning: TuneContext,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    costs: ModelCosts = NO_COSTS,
    comparer: ModelComparer[ChosenKernel] | None = None,
) -> ValidationResult[ChosenKernel]:
    """Return the judgement with the figures that count: over the imported model.

    Kernels were judged in the graph a run or an earlier mode of it has chosen, for that one's gain
    is not theirs. A model in another form, or in float32, that is slower than the imported one
    gives way to it, unless ONNX Runtime misreads that one: see `TuneContext.as_imported`.
    """
    if not tuning.subject.is_rewritten:
        return validation
    if tuning.settings.lookup_only:
        return replace(validation, graph_chosen=True)
    comparer = comparer or model_comparer(tuning, assembly, costs)
    found = over_imported(tuning, comparer, validation, assembly.imported)
    form = tuning.subject.written_as
    is_form = tuning.subject.chosen is None or tuning.subject.float32_form is not None
    is_needed = form is not None and form.is_needed
    if is_form and not is_needed and found.estimate.median < 1:
        tuning.progress.step(
            f"as written the model is {1 / found.estimate.median:.3f}x as fast: it stays as it is"
        )
        assembly.write_imported()
        drops = validation.drops | dict.fromkeys((one.name for one in validation.kept), SLOWER_FORM)
        return replace(
            validation, kept=(), drops=drops, comparison=found.comparison, estimate=found.estimate
        )
    return found


def over_imported(
    tuning: TuneContext,
    comparer: ModelComparer[P],
    validation: ValidationResult[P],
    imported: ModelPart,
) -> ValidationResult[P]:
    """Return a validation of parts of a chosen graph with its figures over the imported model."""
    tuning.progress.step("measuring the whole model against the imported one")
    try:
        gain = comparer.for_the_record(validation.kept, imported)
    except TimeIsUpError:
        gain = comparer.unmeasured(validation.kept)
        form = tuning.subject.written_as
        if validation.kept or tuning.subject.chosen or not form or not form.comparison:
            tuning.progress.warn("the time limit left no time to measure it: no gain is claimed")
        else:  # nothing has changed since then
            tuning.progress.step("its gain is that of the comparison its form was chosen by")
            gain = PointMean([1.0]).of_one(form.comparison)
    deviation = gain.comparison.deviation
    if not deviation.acceptable:  # the graph and its parts may each keep the tolerance alone
        tuning.progress.warn(
            f"its results differ from the imported model's beyond the tolerance: {deviation.detail}"
        )
    return replace(
        validation,
        comparison=gain.comparison,
        estimate=gain.estimate,
        surely=gain.surely,
        processes=len(gain.processes),
        points=gain.points,
        graph_chosen=True,
    )


def _accuracy_checker(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    left_s: Callable[[], float],
    costs: ModelCosts,
    *,
    is_early: bool = False,
) -> AccuracyChecker | None:
    """Return the accuracy checker of the model, None where nothing has to be held.

    An early one looks at no kernel alone where all of them may stay.
    """
    precision = tuning.settings.precision
    is_lower = lowest_precision(kernels, tuning.subject.precision).is_lower
    constraint = precision.constraint
    if constraint is None or (precision.accuracy is None and not is_lower):
        return None
    proof = final_policy(tuning.threads_validated, left_s=left_s())
    return AccuracyChecker(
        assembly,
        tuning.machine.runner,
        constraint=constraint,
        inputs=tuning.subject.calibration,
        left_s=left_s,
        run_s=costs.load_s + costs.run_s,
        following_s=math.inf if is_early else HURRIED_PROCESSES * costs.hurried_s(proof),
    )


def held_kernels(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    costs: ModelCosts,
) -> Sequence[ChosenKernel]:
    """Return the kernels with which a model keeps its accuracy, one for each occurrence.

    Empty where no time is left to find that out.

    Args:
        tuning: The model.
        assembly: Puts it together; its library holds every kernel.
        kernels: In the library; an occurrence may have several.
        costs: What things take with this model.

    Raises:
        RunError: the untuned model cannot be run.
        AccuracyError: the metric fails.
    """
    left_s = tuning.time.stopwatch.keeping(costs.finishing_s).left_s
    checker = _accuracy_checker(tuning, assembly, kernels, left_s, costs, is_early=True)
    return kernels if checker is None else checker.hold(kernels).kernels


def _warn_of_precision(tuning: TuneContext, kernels: Sequence[ChosenKernel]) -> None:
    """Warn if a lower precision was allowed and no kernel has it."""
    mode = tuning.settings.precision.mode
    if mode.lowest.is_lower and not lowest_precision(kernels, tuning.subject.precision).is_lower:
        lower = " or ".join(one.value for one in mode.lowered)
        tuning.progress.warn(f"no kernel in {lower} was proven faster than float32")


def kernels_within_memory(
    tuning: TuneContext, kernels: Sequence[ChosenKernel]
) -> list[ChosenKernel]:
    """Return the kernels that keep no more than the user allows; a later run may allow others."""
    limit = tuning.settings.kernel_memory_mib
    if limit is None:
        return list(kernels)
    kept, left_out = within_memory(kernels, bytes_kept_beside, _work_of, limit << 20)
    for name, reason in left_out.items():
        tuning.progress.step(f"left out {name}: {reason}")
    return kept


def bytes_kept_beside(kernel: ChosenKernel) -> float:
    """Return the bytes a kernel keeps besides the weights of the model, all occurrences together.

    Blocks of a kernel for any number of rows share the weights their algorithms have in common.
    """
    workload = kernel.source.workload
    algorithms = {part.schedule.algorithm for part in kernel.source.parts}
    kept = sum(kept_bytes(workload, algorithm) for algorithm in sorted(algorithms))
    return len(kernel.regions) * (kept - kept_bytes(workload, ""))


def _work_of(kernel: ChosenKernel) -> float:
    return float(len(kernel.regions) * multiply_adds(kernel.source.workload))


def _held(
    tuning: TuneContext, checker: AccuracyChecker, kernels: Sequence[ChosenKernel]
) -> HeldAccuracy[ChosenKernel]:
    tuning.progress.step("checking the accuracy of the whole model")
    held = checker.hold(kernels)
    if held.made_up and held.weighed:
        tuning.progress.warn(
            "accuracy is checked on made-up inputs, which say little: give real ones with "
            "--calibration or --inputs"
        )
    if not held.trade.holds:
        tuning.progress.warn(f"{held.constraint} does not hold, not even in float32")
    if held.weighed and not held.trade.in_time:
        tuning.progress.warn("the time limit left no time to find out which kernels are accurate")
    else:
        for name in held.trade.roll_back:
            tuning.progress.step(f"{name} goes back: the model is not accurate enough with it")
    return held


def _still_accurate(
    checker: AccuracyChecker,
    held: HeldAccuracy[ChosenKernel],
    validator: ModelValidator[ChosenKernel],
    validation: ValidationResult[ChosenKernel],
) -> ValidationResult[ChosenKernel]:
    """Return the judgement with its accuracy: errors may add up anew where kernels were dropped."""
    if {k.source.name for k in validation.kept} == {k.source.name for k in held.kernels}:
        return replace(validation, accuracy=held)
    again = checker.hold(validation.kept)
    if not again.trade.in_time:
        return validator.undecided(validation.kept)
    if again.trade.roll_back:
        validation = validator.confirm(again.kernels)
    return replace(validation, accuracy=held.followed_by(again))


def model_comparer(
    tuning: TuneContext, assembly: Assembly, costs: ModelCosts, **points: Any
) -> ModelComparer[ChosenKernel]:
    """Return the comparer of models with kernels, within the time limit.

    Args:
        tuning: The run.
        assembly: Puts the model together.
        costs: What things take with this model.
        points: `elsewhere`, `weight` and `at_most_s` of a `ModelComparer`.
    """
    threads, settings = tuning.threads_validated, tuning.settings
    left_s = tuning.time.stopwatch.keeping(costs.finishing_s).left_s
    rounds = is_quantised(tuning.subject.model.proto)
    return ModelComparer(
        assembly,
        tuning.machine.runner,
        screen=variant_policy(threads, accept_busy=settings.accept_busy, left_s=left_s()),
        final=final_policy(
            threads,
            accept_busy=settings.accept_busy,
            run_loop=settings.run_loop,
            left_s=left_s(),
        ),
        inputs=tuning.subject.inputs,
        left_s=left_s,
        costs=costs,
        streams=tuning.subject.streams,
        is_quantised=rounds,
        tolerance=math.inf if rounds and settings.precision.accuracy else MODEL_TOLERANCE,
        **points,
    )


def earlier_verdict(tuning: TuneContext, bank: OperatorBank, workload: Workload) -> Event | None:
    """Return the settled verdict of this model on a kernel, None where validation decides again.

    Kernels that were dropped for the model's peak memory are decided again under `--memory`.
    """
    if tuning.settings.repeat_tune:
        return None
    ignored = OVER_PEAK if is_memory_given(tuning) else None
    return bank.model_verdict(workload, ignored=ignored)


def is_memory_given(tuning: TuneContext) -> bool:
    """True if `--memory` bounds the kernels; else the peak of a session does."""
    return tuning.settings.kernel_memory_mib is not None


def compiled(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    comparer: ModelComparer[ChosenKernel],
) -> tuple[list[ChosenKernel], dict[str, Drop]]:
    """Build the library of a model; return the kernels that are in it, and why others are not.

    All of them were compiled before: what fails now says nothing of a kernel.
    """
    tuning.progress.step(f"compiling {plural(len(kernels), 'kernel')} for the model")
    errors = assembly.build(kernels, left_s=comparer.left_s() - comparer.least_s)
    for name, error in errors.items():
        tuning.progress.warn(f"kernel {name} left out: {error}")
    lost = {
        name: Drop(reason=f"not decided, its kernel could not be compiled: {error}", is_final=False)
        for name, error in errors.items()
    }
    return [kernel for kernel in kernels if kernel.source.name not in errors], lost
