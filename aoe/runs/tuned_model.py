"""Writes the tuned model of a run, and the records of its kernels beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.remembered import remembered_to_json
from aoe.device.compiler import required_features
from aoe.om.file import KernelUse, Manifest, write_offline_model
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.tuner.live_report import Phase
from aoe.tuner.tune_context import TuneContext
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.model_validator import ValidationResult
from aoe.workload import workload_to_json


def write_tuned_model(tuning: TuneContext, parts: Path, **own: Any) -> None:
    """Write the tuned model of a run.

    Args:
        tuning: The run.
        parts: Directory of what is in it.
        own: Members of the `Manifest` that the run does not know: kernels, subgraphs, ...

    Raises:
        OutputError: it cannot be written.
    """
    target, model = tuning.machine.runner.target, tuning.subject.model
    tuning.time.phases.begin(Phase.WRITE)
    tuning.progress.step(f"writing {tuning.places.om_file}")
    manifest: dict[str, Any] = {
        "name": model.name,
        "model_sha256": model.sha256,
        "soc_version": target.soc_version,
        "core_num": target.core_num,
        "cpu_features": (),
        "nchwc_block": tuning.machine.runner.device.channel_block(),
        "versions": dict(tuning.machine.versions),
        "operators": tuning.subject.operators,
        "kernels": (),
        "parts": {},
        "streams": tuning.subject.streams,
        "written_as": tuning.subject.form_words,
    }
    write_offline_model(tuning.places.om_file, parts, Manifest(**manifest | own))


def write_model(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
) -> None:
    """Write the tuned model of a closed assembly, and the records of its kernels beside it.

    Raises:
        OutputError: it cannot be written.
    """
    assembly.drop_unused_weights()
    write_proven_model(tuning, bank, assembly, validation)


def write_proven_model(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
) -> None:
    """Write the same of an assembly that others of its models may follow.

    Raises:
        OutputError: it cannot be written.
    """
    kept, chosen = validation.kept, tuning.subject.chosen
    write_tuned_model(
        tuning,
        assembly.directory,
        cpu_features=required_features(
            [kernel.source for kernel in kept], tuning.machine.runner.target
        ),
        kernels=tuple(_use(kernel, bank) for kernel in kept),
        precision=lowest_precision(kept, tuning.subject.precision),
        subgraphs=chosen.uses if chosen is not None else (),
        accuracy=str(validation.accuracy or ""),
        shape_range=tuning.settings.shape_range or "",
    )
    if tuning.places.bank is not None:
        bank.copy_to(tuning.places.bank, [one for kernel in kept for one in kernel.workloads])


def _use(kernel: ChosenKernel, bank: OperatorBank) -> KernelUse:
    op_type = kernel.source.workload.op_type
    return KernelUse(
        name=kernel.source.name,
        op_type=op_type,
        key=kernel.key,
        bank_file=bank.file_of(kernel.source.workload).name,
        op_names=kernel.op_names,
        precision=kernel.source.workload.precision,
        record={
            "workload": workload_to_json(kernel.source.workload),
            **remembered_to_json(bank.remembered(kernel.source.workload).without_samples()),
        },
    )
