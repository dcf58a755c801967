"""Tasks of the measuring process, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.device.compiler import KernelSource, load_compiler
from aoe.device.forks import run_in_children
from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import BuildError, ScheduleError
from aoe.execute.accuracy import (
    MODEL_TOLERANCE,
    NARROW_TOLERANCE,
    Deviation,
    compare_model_results,
    worse_of,
)
from aoe.execute.idle_gate import OtherRuns, QuietPairs
from aoe.execute.messages import ModelPart, WorkerSetup
from aoe.execute.model_sessions import SessionsInTurns, node_times, open_and_run, open_part
from aoe.execute.rates import compare_itself, measure_rates
from aoe.execute.samplers import paired_samplers
from aoe.execute.unusual_inputs import (
    UnusualInputs,
    right_optimizations,
    within_rounding_steps,
)
from aoe.kernels.roofline import MachineRates
from aoe.measurement import (
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    PairedSamples,
    joined,
    measured,
)
from aoe.measurement.memory import MemoryUse, ModelMemory, mean_memory
from aoe.measurement.streams import LEAST_SAMPLE_US, FreeRun, streams_of
from aoe.ort.cold_cache import CacheBallast
from aoe.ort.inputs import ModelInputs
from aoe.ort.sessions import (
    bound_run,
    plain_run,
    run_session,
    session_options,
    use_shared_pool,
)
from aoe.ort.thread_pools import ThreadPool
from aoe.schedule import schedule_from_json
from aoe.target import Target
from aoe.workload import workload_from_json

if TYPE_CHECKING:
    import onnxruntime as ort

    from aoe.execute.candidates import CandidateMeasurer

PAIRS_OF_TWO_ROUNDS = 12
"""From so many pairs on, a comparison is made in two rounds."""
_KERNEL_TIMEOUT_S = 60.0
_LARGE_CALLS = 3
"""Calls of a sample of a model that is loaded for it: each walks through more than 1 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Two models, run in pairs on the same inputs."""

    measurement: Measurement  # Of the inputs that take most, where there are several points
    deviation: Deviation  # The worst at any point
    # What their sessions take, None where the system does not say.
    memory: ModelMemory | None = None
    # What the same sessions have shown at each of `ComparisonTerms.points`.
    elsewhere: tuple[ModelComparison, ...] = ()

    @property
    def points(self) -> tuple[Measurement, ...]:
        """The measurements at all points, that of the comparison itself last."""
        return (*(one.measurement for one in self.elsewhere), self.measurement)

    def with_points(self, measurements: Sequence[Measurement]) -> ModelComparison:
        """Return the comparison with other measurements, in the order of `points`."""
        *others, own = measurements
        pairs = zip(self.elsewhere, others, strict=True)
        elsewhere = tuple(replace(one, measurement=other) for one, other in pairs)
        return replace(self, measurement=own, elsewhere=elsewhere)

    @property
    def is_timed(self) -> bool:
        """True if a clock decides at every point."""
        return all(one.is_timed for one in self.points)

    @property
    def counts(self) -> bool:
        """True if the figures count at every point."""
        return all(one.counts for one in self.points)

    def with_deviation(self, deviation: Deviation) -> ModelComparison:
        """Return the comparison with the worse deviation of its own and another one."""
        worst = worse_of(self.deviation, deviation)
        measurement = self.measurement
        if not worst.acceptable:
            outcome = _outcome_of(worst)
            measurement = replace(measurement, outcome=outcome, detail=worst.detail)
        return replace(self, measurement=measurement, deviation=worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPoint:
    """Further inputs that two models are compared on, in the sessions of a comparison."""

    inputs: ModelInputs  # Of other shapes
    policy: MeasurePolicy  # How many pairs there are


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTerms:
    """Terms for comparing two models, besides their inputs."""

    # Largest error of a result, relative to its largest magnitude; 0 for equal bits, infinite
    # where a constraint on the whole model counts in its place.
    tolerance: float = MODEL_TOLERANCE
    # The untuned model where it rounds to integers: its own results then tell how far others may
    # be apart, see `within_rounding_steps`. None for any other.
    rounding: ModelPart | None = None
    # What passes through the caches before each run, as the rest of a model would; 0 for a whole
    # model.
    bytes_around: int = 0
    # Of each round, True if the tuned model is loaded first. Where there are too few pairs for all
    # rounds, only the first round is measured.
    orders: tuple[bool, ...] = (False, True)
    # Callers that run each model at the same time; times are those of the whole machine then, see
    # `Streams.timer`, and nothing passes around.
    streams: int = 1
    # Further inputs for the same sessions: loading them is shared.
    points: tuple[ComparedPoint, ...] = ()

    def tolerance_of(self, tuned: ModelPart) -> float:
        """Return the largest error of a result of a model."""
        return NARROW_TOLERANCE if self.tolerance and tuned.is_narrow else self.tolerance


WHOLE_MODELS = ComparisonTerms()
"""Terms for comparing whole models."""


def make_tasks(setup: WorkerSetup, others: OtherRuns) -> Mapping[str, Callable[..., Any]]:
    """Return the tasks of a worker by name.

    Args:
        setup: Of the worker.
        others: Runs that are let in between pairs, and while the worker waits.
    """
    pairs = QuietPairs(usage=setup.device.usage, others=others)

    measurer = cache(partial(_measurer, setup, pairs))

    def measure_candidates(
        workload: Mapping[str, Any],
        schedules: Sequence[Any],
        at: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> list[Measurement]:
        return measurer().measure(
            workload_from_json(workload),
            [schedule_from_json(schedule) for schedule in schedules],
            at=workload_from_json(at) if at is not None else None,
            **how,
        )

    def measure_format(workload: Mapping[str, Any], **how: Any) -> Measurement:
        return measurer().measure_format(workload_from_json(workload), **how)

    def compare_models(
        baseline: ModelPart,
        tuned: ModelPart,
        policy: MeasurePolicy,
        inputs: ModelInputs,
        terms: ComparisonTerms = WHOLE_MODELS,
    ) -> ModelComparison:
        return compare_parts(setup, pairs, (baseline, tuned), policy, inputs, terms)

    def run_model(part: ModelPart, inputs: ModelInputs) -> list[list[Any]]:
        session = open_part(setup, part)
        return [run_session(session, feed) for feed in inputs.feeds(session)]

    def machine_rates() -> MachineRates:
        options = session_options(threads=setup.target.core_num, optimize=True, pool=setup.pool)
        return measure_rates(setup.device, options)

    measuring: dict[str, Callable[..., Any]] = {
        "measure_candidates": measure_candidates,
        "measure_format": measure_format,
        "compare_models": compare_models,
        "run_model": run_model,
        "machine_rates": machine_rates,
        "compare_itself": partial(_compare_itself, setup, pairs),
        "compare_unusual": UnusualInputs(setup).compared,
        "right_optimizations": partial(right_optimizations, setup),
        "profile_models": partial(node_times, setup),
    }
    return {
        "load": lambda: None,  # who answers has loaded what most others need
        "check_schedule": partial(_check_schedule, setup),
        "compile_kernels": partial(_compile_kernels, setup),
        **{name: _with_pool(task, setup) for name, task in measuring.items()},
    }


def _measurer(setup: WorkerSetup, pairs: QuietPairs) -> CandidateMeasurer:
    # imports all kernel families, which workers that only compare models do without: a quarter of
    # the CPU time in which one starts, and a model is proven by several
    from aoe.execute.candidates import CandidateMeasurer

    return CandidateMeasurer(
        device=setup.device,
        target=setup.target,
        toolchain=Toolchain(command=setup.compiler, own_group=False, kept=setup.kept),
        directory=setup.directory,
        pairs=pairs,
        pool=setup.pool,
    )


def _compare_itself(setup: WorkerSetup, pairs: QuietPairs, policy: MeasurePolicy) -> Measurement:
    options = session_options(threads=setup.target.core_num, optimize=False, pool=setup.pool)
    return compare_itself(setup.device, options, pairs, policy)


_start_pool = cache(use_shared_pool)


def _with_pool(task: Callable[..., Any], setup: WorkerSetup) -> Callable[..., Any]:
    """Start the thread pool when it is needed: a worker that only compiles has none, and forks."""

    def run(**arguments: Any) -> Any:
        if setup.pool is ThreadPool.SHARED:
            _start_pool(setup.target.core_num)
        return task(**arguments)

    return run


def _source(name: str, workload: Mapping[str, Any], schedule: Any) -> KernelSource:
    return KernelSource(
        name=name,
        workload=workload_from_json(workload),
        schedule=schedule_from_json(schedule),
    )


def _check_schedule(setup: WorkerSetup, workload: Mapping[str, Any], schedule: Any) -> str:
    """Return the problem of a schedule, the empty string if there is none."""
    source = _source("schedule", workload, schedule)
    try:
        setup.device.check_kernel(source)
    except ScheduleError as error:
        return str(error)
    return setup.target.misfit(source.schedule.algorithm)


def _compile_kernels(
    setup: WorkerSetup,
    kernels: Sequence[tuple[str, Mapping[str, Any], Any]],
    directory: Path,
    at_once: int = 1,
    all_s: float = math.inf,
) -> dict[str, str]:
    """Compile (name, workload, schedule) triples, each in a fork of its own.

    Returns:
        By name what is wrong with a kernel; an empty text if it is compiled.
    """
    load_compiler()
    jobs = [
        partial(_compile_kernel, setup.device, setup.target, directory, *kernel)
        for kernel in kernels
    ]
    texts = run_in_children(jobs, at_once=at_once, each_s=_KERNEL_TIMEOUT_S, all_s=all_s)
    return {name: text for (name, _, _), text in zip(kernels, texts, strict=True)}


def _compile_kernel(device: Device, target: Target, directory: Path, *kernel: Any) -> str:
    try:
        device.compile_kernel(_source(*kernel), target, directory)
    except (ScheduleError, BuildError) as error:
        return str(error)
    return ""


def compare_parts(
    setup: WorkerSetup,
    pairs: QuietPairs,
    models: tuple[ModelPart, ModelPart],
    policy: MeasurePolicy,
    inputs: ModelInputs,
    terms: ComparisonTerms,
) -> ModelComparison:
    """Compare two models in two rounds: the model loaded first in one is second in the other.

    Where the weights of a session come to lie decides a few percent of its speed, and the
    session loaded first tends to get the better place: the same model against itself read 0.96
    to 1.02 with one order of loading, far outside the interval of its pairs. Large models are
    loaded in turns, but for streams, which need all of a machine at once. At all points a quiet
    machine is waited for as often as the policy says: of two clocks, the other one comes first.
    """
    points = (
        replace(point, policy=replace(point.policy, tries=policy.tries)) for point in terms.points
    )
    terms = replace(terms, points=tuple(points))
    if terms.streams == 1 and any(part.is_large for part in models):
        here, *others = (
            _compare_in_turns(setup, pairs, models, point.policy, point.inputs, terms)
            for point in (ComparedPoint(inputs=inputs, policy=policy), *terms.points)
        )
        return _with_points(here, others)
    found = [
        _compare_once(setup, pairs, models, share, inputs, terms, tuned_first=tuned_first)
        for tuned_first, share, terms in comparison_rounds(policy, terms)
    ]
    return joined_comparison(found, mean_memory)


def comparison_rounds(
    policy: MeasurePolicy, terms: ComparisonTerms
) -> list[tuple[bool, MeasurePolicy, ComparisonTerms]]:
    """Return the rounds of a comparison: whether the tuned model is loaded first, and its pairs.

    The terms are those of the round; at each point the pairs are shared like those of the policy.
    """
    orders = terms.orders if policy.pairs_max >= PAIRS_OF_TWO_ROUNDS else terms.orders[:1]

    def share(policy: MeasurePolicy) -> MeasurePolicy:
        return replace(
            policy,
            pairs_min=math.ceil(policy.pairs_min / len(orders)),
            pairs_max=math.ceil(policy.pairs_max / len(orders)),
        )

    points = tuple(replace(point, policy=share(point.policy)) for point in terms.points)
    of_round = replace(terms, points=points)
    return [(tuned_first, share(policy), of_round) for tuned_first in orders]


def joined_comparison(
    found: Sequence[ModelComparison],
    memory_of: Callable[[Iterable[ModelMemory | None]], ModelMemory | None],
) -> ModelComparison:
    """Return all pairs of several comparisons as one.

    Args:
        found: Of the same two models.
        memory_of: Returns the memory of all from that of each.
    """
    deviation = reduce(worse_of, (comparison.deviation for comparison in found))
    measurements = [comparison.measurement for comparison in found]
    at_points = zip(*(comparison.elsewhere for comparison in found), strict=True)
    return ModelComparison(
        measurement=joined(measurements, _outcome_of(deviation), deviation.detail),
        deviation=deviation,
        memory=memory_of(comparison.memory for comparison in found),
        elsewhere=tuple(joined_comparison(point, memory_of) for point in at_points),
    )


def _with_points(here: ModelComparison, others: Sequence[ModelComparison]) -> ModelComparison:
    """Return a comparison with other points; a wrong result at one point makes all of it wrong."""
    deviation = reduce(worse_of, (one.deviation for one in (here, *others)))
    return replace(here.with_deviation(deviation), elsewhere=tuple(others))


def _compare_once(
    setup: WorkerSetup,
    pairs: QuietPairs,
    models: tuple[ModelPart, ModelPart],
    policy: MeasurePolicy,
    inputs: ModelInputs,
    terms: ComparisonTerms,
    *,
    tuned_first: bool,
) -> ModelComparison:
    """Compare in one order of loading, binding, warming up and beginning a pair."""
    parts = models[::-1] if tuned_first else models
    opened = [open_and_run(setup, part, inputs) for part in parts]
    sessions = [session for session, _, _ in opened]
    results, uses = [found for _, found, _ in opened], [use for _, _, use in opened]
    if tuned_first:
        results, uses = results[::-1], uses[::-1]
    pairer = _SessionPairs(
        setup=setup,
        pairs=pairs,
        sessions=sessions,
        tuned=models[1],
        terms=terms,
        tuned_first=tuned_first,
    )
    others = [pairer.compared(point.inputs, point.policy) for point in terms.points]
    return _with_points(pairer.compared(inputs, policy, results, uses), others)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionPairs:
    """Two sessions that are compared on inputs of one shape after the other."""

    setup: WorkerSetup  # Of the worker
    pairs: QuietPairs  # Takes them
    sessions: Sequence[ort.InferenceSession]  # In the order of loading
    tuned: ModelPart  # The tuned model
    terms: ComparisonTerms  # Of the comparison
    tuned_first: bool  # True if the tuned model was loaded first

    def compared(
        self,
        inputs: ModelInputs,
        policy: MeasurePolicy,
        results: Sequence[list[Any]] | None = None,
        uses: Sequence[MemoryUse | None] = (None, None),
    ) -> ModelComparison:
        """Compare results and times on some inputs.

        Args:
            inputs: The first set is timed.
            policy: How many pairs there are.
            results: Of both models on that set, the baseline's first; None if it has not been run.
            uses: Memory of both.
        """
        baseline, tuned = reversed(self.sessions) if self.tuned_first else self.sessions
        first = inputs.first(baseline)
        if results is None:
            results = run_session(baseline, first), run_session(tuned, first)
        streams = self.terms.streams
        left, right = (
            _run_of(session, first, results[session is tuned], streams) for session in self.sessions
        )
        deviation = self._deviation(first, *results)
        for feed in islice(inputs.feeds(baseline), 1, None):
            found = self._deviation(feed, run_session(baseline, feed), run_session(tuned, feed))
            deviation = worse_of(deviation, found)
        timer, least_us = self.setup.device.timer, policy.sample_min_us
        if streams > 1:
            timer, least_us = streams_of(streams).timer, max(least_us, LEAST_SAMPLE_US)
        cold = _cold_cache(self.setup, self.terms)
        # streams run side by side: their calls follow their own in any case
        is_settled = streams == 1 and not cold
        samplers = paired_samplers(timer, left, right, least_us, **cold, is_settled=is_settled)
        # of streams, CPU time is not that of one call
        spins = streams > 1 or self.setup.pool.spins(self.setup.target.core_num)
        samples, load = self.pairs.take(*samplers, policy, spins=spins)
        if self.tuned_first:
            samples = samples.swapped()
        return _comparison(samples, load, deviation, uses)

    def _deviation(
        self, feed: Mapping[str, Any], expected: list[Any], found: list[Any]
    ) -> Deviation:
        return _deviation(self.setup, self.terms, self.tuned, feed, (expected, found))


def _deviation(
    setup: WorkerSetup,
    terms: ComparisonTerms,
    tuned: ModelPart,
    feed: Mapping[str, Any],
    results: tuple[list[Any], list[Any]],
) -> Deviation:
    """Return the deviation of results, less what rounding steps of the model explain."""
    tolerance = terms.tolerance_of(tuned)
    found = compare_model_results(*results, tuned.precision, tolerance=tolerance)
    if found.acceptable or terms.rounding is None:
        return found
    return within_rounding_steps(setup, terms.rounding, feed, results, tuned.precision)


def _compare_in_turns(
    setup: WorkerSetup,
    pairs: QuietPairs,
    models: tuple[ModelPart, ModelPart],
    policy: MeasurePolicy,
    inputs: ModelInputs,
    terms: ComparisonTerms,
) -> ModelComparison:
    """Compare two models of which one is loaded at a time.

    Each is loaded anew for every other sample, and comes to lie somewhere else: no order of
    loading has to be evened out.
    """
    turns = SessionsInTurns(setup, models, inputs)
    (feeds, expected, before), (_, found, after) = turns.first_run(0), turns.first_run(1)
    if terms.rounding is not None:  # whose own results may be asked for
        turns.unload()
    results = zip(expected, found, strict=True)
    deviation = reduce(
        worse_of,
        (
            _deviation(setup, terms, models[1], feed, both)
            for feed, both in zip(feeds, results, strict=True)
        ),
    )
    # memory is short beside models of this size
    del feeds, expected, found
    baseline, tuned = (turns.timer(side, repeats=_LARGE_CALLS) for side in (0, 1))
    # whoever is loaded has run once before it is timed
    at_once = replace(policy, warmup=0)
    spins = setup.pool.spins(setup.target.core_num)
    samples, load = pairs.take(baseline, tuned, at_once, spins=spins, lets_in=False)
    return _comparison(samples, load, deviation, [before, after])


def _comparison(
    samples: PairedSamples,
    load: MachineLoad,
    deviation: Deviation,
    uses: Sequence[MemoryUse | None],
) -> ModelComparison:
    """Put together what was found; `uses` is the memory of the baseline, then of the other."""
    measurement = measured(samples, load, _outcome_of(deviation), deviation.detail)
    baseline, tuned = uses
    memory = None
    if baseline is not None and tuned is not None:
        memory = ModelMemory(baseline=baseline, tuned=tuned)
    return ModelComparison(measurement=measurement, deviation=deviation, memory=memory)


def _outcome_of(deviation: Deviation) -> Outcome:
    return Outcome.CORRECT if deviation.acceptable else Outcome.CORRECTNESS


def _run_of(
    session: ort.InferenceSession, feed: Mapping[str, Any], results: Sequence[Any], streams: int
) -> Callable[[], object]:
    """Return a run of a session on fixed inputs; of several streams, each has its own memory."""
    if streams == 1:
        return plain_run(session, feed)
    return FreeRun([bound_run(session, feed, results) for _ in range(streams)])


def _cold_cache(setup: WorkerSetup, terms: ComparisonTerms) -> dict[str, Any]:
    """Return the cold-cache calls before each sample, and the most calls of a sample."""
    if not terms.bytes_around:
        return {}
    options = session_options(threads=setup.target.core_num, optimize=True, pool=setup.pool)
    ballast = CacheBallast(
        lambda model: setup.device.open_session(model, options), terms.bytes_around
    )
    return {"before": ballast.pass_through, "calls_max": ballast.calls_max}
