"""Workloads, operators, banks and results for tests of the tuning layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aoe.bank.journal import BankJournal
from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.verdicts import BankNote
from aoe.device.compiler import KernelSource
from aoe.execute.accuracy import Deviation
from aoe.execute.tasks import ModelComparison
from aoe.graph.regions import Refusal, Region
from aoe.kernels.elementwise import Elementwise
from aoe.kernels.family import KernelTarget
from aoe.measurement import Measurement, Outcome, SpeedupEstimate, estimate_speedup
from aoe.ort.profile import ModelProfile
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.opat import OpatReport
from aoe.runs.operators.result import OpatResult
from aoe.schedule import Configuration, Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import (
    OperatorContext,
    TunedOperator,
    begin_search,
    look_up_operator,
)
from aoe.tasks.operators.operators import Operator
from aoe.tuner.task_search import SearchResult, TrialRecord
from aoe.tuner.tune_context import ResultPlaces
from aoe.validation.model_validator import ValidationResult
from aoe.workload import Precision, Workload
from aoebank import Bank, Event
from support.contracts.kernels import operation, plain
from support.engine.fakes import BASELINE_US, make_target
from support.engine.families import chain_workload

FINGERPRINT: Mapping[str, Any] = {
    "soc_version": "x86-64-test",
    "core_num": 2,
    "cpu_model": "Test CPU",
    "features": "avx2",
    "onnxruntime": "1.23.0",
    "halide": "21.0.0",
}


def make_journal(root: Path | Bank, *, model: str = "net", **fingerprint: Any) -> BankJournal:
    """Return a journal at `root`; `fingerprint` changes the environment it is used in."""
    facts = {**FINGERPRINT, **fingerprint}
    return BankJournal(
        root,
        facts["soc_version"],
        fingerprint=facts,
        model={"name": model, "sha256": model * 8},
        engine_version="0.1.0",
        clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


def make_bank(root: Path, *, model: str = "net", **fingerprint: Any) -> OperatorBank:
    """Return a bank at `root`; `fingerprint` changes the environment it is used in."""
    journal = make_journal(root, model=model, **fingerprint)
    return OperatorBank(journal, core_num={**FINGERPRINT, **fingerprint}["core_num"])


def make_measurement(speedup: float, pairs: int = 20) -> Measurement:
    """Return a correct measurement without noise."""
    return Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=(BASELINE_US,) * pairs,
        tuned_us=(BASELINE_US / speedup,) * pairs,
    )


def make_estimate(speedup: float, half_width: float = 0.0) -> SpeedupEstimate:
    """Return an estimate of 20 pairs."""
    exact = estimate_speedup(make_measurement(speedup))
    return replace(exact, low=speedup - half_width, high=speedup + half_width)


def make_verdict(event: Event, speedup: float | None = None, **search: Any) -> BankNote:
    """Return a note about a workload."""
    return BankNote(
        event=event,
        op_names=("n0",),
        estimate=make_estimate(speedup) if speedup else None,
        measurement=make_measurement(speedup) if speedup else None,
        search=search,
    )


def guesses_of(workload: Workload) -> list[Configuration]:
    """Return the element-wise family's first guesses."""
    space = Elementwise().space(workload, KernelTarget.of(make_target()))
    return [Configuration(guess) for guess in space.first_guesses]


def guess_of(workload: Workload) -> tuple[Schedule, Configuration]:
    """Return the element-wise family's first guess."""
    guess = guesses_of(workload)[0]
    return Elementwise().schedule(workload, guess, KernelTarget.of(make_target())), guess


def make_operator(
    workload: Workload | None = None, *, share: float = 0.5, op_names: tuple[str, ...] = ("n0",)
) -> Operator:
    """Return a workload of a model with one place for each of `op_names`."""
    chosen = workload or chain_workload(("Exp",))
    regions = tuple(
        Region(nodes=(i,), inputs=("x",), scalars=(), output=f"{name}_out", workload=chosen)
        for i, name in enumerate(op_names)
    )
    return Operator(
        workload=chosen,
        key=key_of(chosen),
        regions=regions,
        op_names=op_names,
        share=share,
        default_us=BASELINE_US,
    )


def placed_operator(workload: Workload, default_us: float, places: int = 1) -> Operator:
    """Return an operator at places of its own, but for the precision it is computed in."""
    names = tuple(f"n{number}" for number in range(places))
    made = make_operator(workload, op_names=names)
    first = sum(map(ord, str((workload.operations, workload.output.shape))))
    regions = tuple(
        replace(region, nodes=(1000 * first + number,))
        for number, region in enumerate(made.regions)
    )
    return replace(made, regions=regions, default_us=default_us)


def matrix_product(columns: int = 512, precision: Precision = Precision.FLOAT32) -> Workload:
    """Return a product of 512 x 512 with a constant matrix of so many columns."""
    return Workload(
        op_type="matmul",
        inputs=(plain(512, 512), plain(512, columns, constant=True)),
        operations=(operation("MatMul", "x0 x1"),),
        output=plain(512, columns),
        precision=precision,
    )


def make_kernel(number: int, *, gain_us: float = 100.0) -> ChosenKernel:
    """Return one of many distinct kernels."""
    workload = chain_workload(("Exp",), shape=(number + 1, 8))
    schedule, _ = guess_of(workload)
    operator = make_operator(workload, op_names=(f"n{number}",))
    return ChosenKernel(
        source=KernelSource.of(workload, schedule),
        key=operator.key,
        regions=operator.regions,
        op_names=operator.op_names,
        gain_us=gain_us,
    )


def make_tuned(name: str, extent: int = 8, *, searched: bool = True) -> TunedOperator:
    """Return an operator that was added to the bank, twice as fast as the default."""
    workload = chain_workload(("Exp",), shape=(1, 8, extent, extent))
    schedule, guess = guess_of(workload)
    failure = Measurement.failure(Outcome.COMPILE, "illegal")
    search = SearchResult(
        configuration=guess,
        answer=schedule,
        measurement=make_measurement(2.0),
        estimate=make_estimate(2.0),
        trials=(
            TrialRecord(configuration=guess, measurement=make_measurement(2.0)),
            TrialRecord(configuration=Configuration({"a": 1}), measurement=failure),
        ),
    )
    return TunedOperator(
        operator=make_operator(workload, op_names=(name,)),
        outcome=RepoOutcome.ADD,
        reason="better than the default",
        schedule=schedule,
        speedup=2.0,
        estimate=make_estimate(2.0),
        before_us=100.0,
        after_us=50.0,
        search=search if searched else None,
    )


def make_opat_result(*tuned: TunedOperator, max_abs_err: float = 1e-6) -> OpatResult:
    """Return a run whose model keeps the first operator and is 1.5x as fast."""
    comparison = ModelComparison(
        measurement=make_measurement(1.5),
        deviation=Deviation(max_abs_err=max_abs_err, excess=0.1),
    )
    kernel = make_kernel(1)
    kept = (replace(kernel, key=tuned[0].operator.key),) if tuned else ()
    profile = ModelProfile(node_us={"a": 30.0, "b": 70.0}, model_us=110.0)
    return OpatResult(
        model={"name": "net", "path": "net.onnx", "sha256": "0" * 64},
        target=make_target(),
        versions={"aoe": "0.1.0"},
        bank=Path("bank"),
        places=ResultPlaces(
            tuning_name="net_20260101",
            om_file=Path("out/net_tune.om"),
            results=Path("out"),
            result_file=Path("out/aoe_result_opat_20260101000000000_1.json"),
        ),
        operators=tuned,
        refusals=(Refusal(node="r", op_type="Relu", reason="touches 8 elements only"),),
        validation=ValidationResult(
            kept=kept, drops={}, comparison=comparison, estimate=make_estimate(1.5)
        ),
        profile=profile,
        tuned_profile=replace(profile, node_us={"a": 5.0}),
        report=OpatReport(tuning_name="net_20260101", result=TuningResult.SUCCESSFUL),
        seconds=12.34,
    )


def tune_operator(operator: Operator, context: OperatorContext, budget: int) -> TunedOperator:
    """Return the tuned operator, after a search of at most so many candidates where one is due."""
    found = look_up_operator(operator, context)
    if isinstance(found, TunedOperator):
        return found
    begun = begin_search(operator, context, budget, found)
    return begun if isinstance(begun, TunedOperator) else begun.finish(context, budget)
