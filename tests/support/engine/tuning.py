"""Workloads, operators and banks for tests of the tuning layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aoe.bank.journal import BankJournal
from aoe.bank.operators import OperatorBank, OperatorVerdict, key_of
from aoe.device.compiler import KernelSource, kernel_name
from aoe.graph.regions import Region
from aoe.kernels.elementwise import Elementwise
from aoe.measurement import Measurement, Outcome, SpeedupEstimate, estimate_speedup
from aoe.schedule import Configuration, Schedule
from aoe.testing.fakes import BASELINE_US, make_target
from aoe.tuning.opat.assembly import ChosenKernel
from aoe.tuning.opat.operators import Operator
from aoe.workload import Workload
from aoebank import Event
from support.engine.families import chain_workload, kernel_target

FINGERPRINT: Mapping[str, Any] = {
    "soc_version": "x86-64-test",
    "core_num": 2,
    "cpu_model": "Test CPU",
    "features": "avx2",
    "onnxruntime": "1.23.0",
    "halide": "21.0.0",
}


def make_bank(root: Path, *, model: str = "net", **fingerprint: Any) -> OperatorBank:
    """Return a bank at `root`; `fingerprint` changes the environment it is used in."""
    facts = {**FINGERPRINT, **fingerprint}
    journal = BankJournal(
        root,
        facts["soc_version"],
        fingerprint=facts,
        model={"name": model, "sha256": model * 8},
        engine_version="0.1.0",
        clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    return OperatorBank(journal, core_num=facts["core_num"])


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


def make_verdict(event: Event, speedup: float | None = None, **search: Any) -> OperatorVerdict:
    """Return a note about a workload."""
    return OperatorVerdict(
        event=event,
        op_names=("n0",),
        estimate=make_estimate(speedup) if speedup else None,
        measurement=make_measurement(speedup) if speedup else None,
        search=search,
    )


def guesses_of(workload: Workload) -> list[Configuration]:
    """Return the element-wise family's first guesses."""
    space = Elementwise().space(workload, kernel_target(make_target()))
    return [Configuration(guess) for guess in space.first_guesses]


def guess_of(workload: Workload) -> tuple[Schedule, Configuration]:
    """Return the element-wise family's first guess."""
    guess = guesses_of(workload)[0]
    return Elementwise().schedule(workload, guess, kernel_target(make_target())), guess


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


def make_kernel(number: int, *, gain_us: float = 100.0) -> ChosenKernel:
    """Return one of many distinct kernels."""
    workload = chain_workload(("Exp",), shape=(number + 1, 8))
    schedule, _ = guess_of(workload)
    operator = make_operator(workload, op_names=(f"n{number}",))
    return ChosenKernel(
        source=KernelSource(
            name=kernel_name(workload, schedule), workload=workload, schedule=schedule
        ),
        key=operator.key,
        regions=operator.regions,
        op_names=operator.op_names,
        gain_us=gain_us,
    )
