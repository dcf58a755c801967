"""What the steps of a run work with: its bank, compilers, budget, measuring places, assembly.

Used by operator tuning, and by those that plan, verify or tune subgraphs with the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.errors import RunError, TurnTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import MeasurePool, RemoteMeasurePool, SerialExecutor
from aoe.graph.model_graph import ModelGraph
from aoe.kernels.family import KernelTarget
from aoe.kernels.roofline import MachineRates
from aoe.ort.profile import ModelProfile
from aoe.tasks.operators.operator import OperatorTools
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operator_tasks import OperatorPool
from aoe.tasks.operators.operators import ChosenOperators, Operator
from aoe.tuner.live_report import Phase, Stopwatch
from aoe.tuner.operator_choice import OPTION
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.reuse.covering_records import CoveringRecords, GuardedRecords
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.tune_context import TuneContext
from aoe.validation.kernel_assembly import Assembly
from aoe.workload import Workload

_RATES_TIMEOUT_S = 60.0


def open_bank(tuning: TuneContext, base: EarlierResult | None) -> OperatorBank:
    """Return the bank of a run, with those that are looked up behind it."""
    return OperatorBank(
        tuning.banks.journal,
        core_num=tuning.machine.runner.target.core_num,
        built_in=tuning.banks.built_in,
        base=base.bank if base is not None else None,
    )


def precision_plan(tuning: TuneContext) -> PrecisionPlan:
    """Return in which precisions operators of a model are tuned."""
    return PrecisionPlan(
        settings=tuning.settings.precision,
        target=KernelTarget.of(tuning.machine.runner.target),
        imported=tuning.subject.start,
    )


def operator_tools(
    tuning: TuneContext,
    bank: OperatorBank,
    graph: ModelGraph,
    searching: Stopwatch,
    compilers: KernelCompilers,
) -> OperatorTools:
    """Return the tools that tune the operators of a run."""
    return OperatorTools(
        settings=tuning.settings,
        runner=tuning.machine.runner,
        bank=bank,
        progress=tuning.progress,
        left_s=searching.left_s,
        bytes_touched=graph.bytes_touched(),
        compilers=compilers,
        compilers_of=partial(open_compilers, tuning),
        is_chosen=_chosen(tuning, graph),
        covering=covering_of(tuning, bank),
        clock=tuning.time.stopwatch.clock,
    )


def covering_of(
    tuning: TuneContext, bank: OperatorBank
) -> Callable[[Workload], Iterable[StoredAnswer]]:
    """Return the look-up of ranges for fixed shapes; blocks of a range have none."""
    if tuning.settings.shape_range is not None:
        return lambda workload: ()
    found = CoveringRecords(bank, KernelTarget.of(tuning.machine.runner.target))
    return GuardedRecords(found, tuning.progress.warn)


def _chosen(tuning: TuneContext, graph: ModelGraph) -> Callable[[Operator], bool]:
    """Return the filter of operators to tune; unknown names are told."""
    choice = tuning.settings.tune_ops
    if choice is None:
        return lambda operator: True
    chosen = ChosenOperators(choice, graph, tuning.subject.start)
    for stranger in chosen.strangers():
        tuning.progress.warn(f"{OPTION}: no node of this model has this name or type: {stranger}")
    return chosen


def measure_rates(tuning: TuneContext) -> MachineRates | None:
    """Return the machine's rates, None where nothing is searched: no order depends on them.

    None too where it cannot be measured: operators are searched in a worse order then.
    """
    if tuning.settings.lookup_only:
        return None
    try:
        found: MachineRates = tuning.machine.runner.call(
            "machine_rates", timeout_s=_RATES_TIMEOUT_S
        )
    except TurnTimeoutError:
        raise
    except RunError as error:
        tuning.progress.warn(f"what the machine can do is not known: {error}")
        return None
    return found


def make_budget(
    tuning: TuneContext,
    profile: ModelProfile,
    searching: Stopwatch,
    measure_pool: OperatorPool,
    rates: MachineRates | None,
) -> OperatorBudget:
    """Return the budget of a run, shared among its operators; tuning begins with it."""
    tuning.time.phases.begin(Phase.SEARCH)
    return OperatorBudget(
        rates=rates or MachineRates(multiply_adds_per_us=1.0, bytes_per_us=1.0),
        target=KernelTarget.of(tuning.machine.runner.target),
        model_us=profile.nodes_us or 1.0,
        trials=tuning.settings.trials,
        left_s=lambda: searching.left_s() * measure_pool.places(),
    )


def open_compilers(tuning: TuneContext, runner: TaskRunner | None = None) -> KernelCompilers:
    """Return the compilers of kernels that a runner measures; to be closed.

    Args:
        tuning: The run.
        runner: Of a worker on another machine, which compiles there; None for the run's own.
    """
    is_own = runner is None
    return KernelCompilers(
        runner or tuning.machine.runner,
        tuning.machine.objects,
        processes=tuning.settings.compile_processes,
        apart=tuning.machine.runner.apart() if is_own and tuning.subject.streams == 1 else None,
        clock=tuning.time.stopwatch.clock,
    )


def open_measure_pool(tuning: TuneContext) -> AbstractContextManager[MeasurePool[Any]]:
    """Return the measure pool: the workers there are, else this machine."""
    if tuning.machine.remote_pool is None:
        return nullcontext(SerialExecutor())
    return closing(RemoteMeasurePool(tuning.machine.remote_pool))


def open_assembly(tuning: TuneContext, graph: ModelGraph, compilers: KernelCompilers) -> Assembly:
    """Return the assembly of the tuned model, in the graph the run begins with; to be closed."""
    return Assembly(
        tuning.scratch / "parts",
        tuning.subject.model.proto,
        graph,
        compilers,
        chosen=tuning.subject.chosen.proto if tuning.subject.chosen is not None else None,
        clock=tuning.time.stopwatch.clock,
    )
