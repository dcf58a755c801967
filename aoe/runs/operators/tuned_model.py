"""Writes the tuned model of operators, and the records of its kernels beside it."""

from __future__ import annotations

from aoe.bank.operators import OperatorBank
from aoe.bank.remembered import remembered_to_json
from aoe.device.compiler import required_features
from aoe.om.file import KernelUse
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.tuner.tune_context import TuneContext
from aoe.tuner.tuned_model import write_tuned_model
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.model_validator import ValidationResult
from aoe.workload import workload_to_json


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
    kept, chosen = validation.kept, tuning.subject.chosen
    assembly.drop_unused_weights()
    write_tuned_model(
        tuning,
        assembly.directory,
        cpu_features=required_features(
            [kernel.source for kernel in kept], tuning.machine.runner.target
        ),
        kernels=tuple(_use(kernel, bank) for kernel in kept),
        precision=lowest_precision(kept),
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
