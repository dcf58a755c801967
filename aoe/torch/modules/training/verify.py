"""Parts of a training graph in a bank: each is measured alone, against PyTorch's own operators.

A record says what it computes, so no script is needed. Its tensors are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import strategy_of, workload_of
from aoe.bank.sources import kernel_source
from aoe.execute.compiling import KernelCompilers
from aoe.measurement import Measurement
from aoe.runs.verify_records import RecordedGain, RecordReader, VerifyContext
from aoe.workload import TRAINING_CONVOLUTION, TRAINING_LOOP, Workload
from aoebank import Record


def reader(context: VerifyContext) -> TrainingReader:
    """Return the reader of records of a training."""
    return TrainingReader(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAnswer:
    """The answer of such a record; see `MeasurableAnswer`."""

    workload: Workload
    way: str  # What computes it
    context: VerifyContext
    model: Path | None = None
    default: str = "PyTorch's own"

    @property
    def op_type(self) -> str:
        """Name its bank file has."""
        return self.workload.op_type

    @property
    def source(self) -> str | None:
        """Digest of the sources that make it."""
        return kernel_source(self.op_type)

    def measure(self, recorded: RecordedGain | None, compilers: KernelCompilers) -> Measurement:
        """Return fresh pairs of the answer and of PyTorch's operators, in this process."""
        from aoe.torch.modules.training.remeasuring import measured_again

        found: Measurement = measured_again(
            self.workload,
            self.way,
            threads=self.context.target.core_num,
            seed=self.context.seed,
            least_quiet=self.context.policy.least_quiet,
        )
        return found

    def timed(self, record: Record, latency_us: float) -> Record:
        """Return the record with a new time."""
        return replace(record, cost_us=round(latency_us, 3))

    def facts(self, recorded: RecordedGain | None) -> dict[str, Any]:
        """Return nothing: the caches are as the pairs leave them."""
        return {}


class TrainingReader(RecordReader):
    """Reads the records of training graphs in files of its target.

    Args:
        context: What with; records for another number of threads are passed over.
    """

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._bank = OperatorBank(context.journal, core_num=context.target.core_num)

    def read(self, file: Path, record: Record) -> TrainingAnswer | str | None:
        """Return the answer of such a record, or why it is not measured; None for another one."""
        if record.op_type not in (TRAINING_CONVOLUTION, TRAINING_LOOP):
            return None
        workload, strategy = workload_of(record), strategy_of(record)
        if workload is None or strategy is None:
            return None
        if file != self._bank.file(record.op_type):
            return f"made for another number of threads than {self._bank.core_num}"
        if find_spec("torch") is None:
            return "of a training: PyTorch is not installed"
        way = strategy[0].algorithm
        return TrainingAnswer(workload=workload, way=way, context=self._context)
