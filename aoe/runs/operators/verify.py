"""Operators of a bank: each is measured alone, with its kernel compiled anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aoe.bank.journal import VERIFYING
from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import strategy_of, workload_of
from aoe.bank.sources import kernel_source
from aoe.bank.verdicts import BankNote, UndecidedOperator, left_open_members
from aoe.errors import ScheduleError
from aoe.execute.compiling import KernelCompilers
from aoe.kernels.family import KernelTarget
from aoe.kernels.host_products import with_host_products
from aoe.kernels.registry import FAMILIES, get_family
from aoe.measurement import Measurement, estimate_speedup
from aoe.ort.cold_cache import BALLAST_BYTES_MAX
from aoe.results.files import RepoOutcome
from aoe.runs.verify_records import (
    ONNX_RUNTIME,
    DecidedOperator,
    Holding,
    MeasurableAnswer,
    RecordedGain,
    RecordReader,
    Verified,
    VerifyContext,
    verdict_on,
)
from aoe.schedule import Schedule
from aoe.tasks.operators.lookup import settle
from aoe.tasks.operators.operator_task import OperatorTask, measure_schedules
from aoe.tuner.policies import screen_policy
from aoe.tuner.task_search import SearchSettings
from aoe.workload import Workload
from aoebank import Event, Record


def reader(context: VerifyContext) -> OperatorReader:
    """Return the reader of operator records."""
    return OperatorReader(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAnswer(MeasurableAnswer):
    """The answer of an operator's record; see `MeasurableAnswer`."""

    workload: Workload
    schedule: Schedule
    context: VerifyContext
    model: Path | None = None
    default: str = ONNX_RUNTIME

    @property
    def op_type(self) -> str:
        """Kernel family."""
        return self.workload.op_type

    @property
    def source(self) -> str | None:
        """Digest of the sources kernels of the family are made by."""
        return kernel_source(self.op_type)

    def measure(self, recorded: RecordedGain | None, compilers: KernelCompilers) -> Measurement:
        """Return fresh pairs of the kernel and of the default."""
        around = _bytes_around(recorded)
        return _fresh_pairs(self.context, self.workload, self.schedule, around, compilers)

    def facts(self, recorded: RecordedGain | None) -> dict[str, Any]:
        """Return the bytes read and written before each run."""
        return {"bytes_around": _bytes_around(recorded)}


class OperatorReader(RecordReader):
    """Reads the records of operators in files of its target.

    Args:
        context: What with; records for another number of cores are passed over.
    """

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._bank = OperatorBank(context.journal, core_num=context.target.core_num)

    def read(self, file: Path, record: Record) -> OperatorAnswer | str | None:
        """Return the answer of an operator's record, or why it is not measured."""
        op_type, workload, strategy = record.op_type, workload_of(record), strategy_of(record)
        if strategy is None or workload is None or op_type is None:
            return None
        if file != self._bank.file(op_type):
            return f"made for another number of cores than {self._bank.core_num}"
        return OperatorAnswer(workload=workload, schedule=strategy[0], context=self._context)

    def undecided(self) -> Iterator[Callable[[KernelCompilers], DecidedOperator]]:
        """Yield the function that decides each operator that a busy machine left undecided."""
        for op_type in FAMILIES:
            for one in self._bank.undecided(op_type):
                yield partial(self._decided, one)

    def _decided(self, one: UndecidedOperator, compilers: KernelCompilers) -> DecidedOperator:
        """Measure the candidate that was ahead on a busy machine, with all pairs.

        A gain becomes a record, as after a search. A loss is noted, and the next tuning searches
        the operator again.
        """
        context, workload, file = self._context, one.workload, self._bank.file(one.workload.op_type)
        family = with_host_products(get_family(workload.op_type), context.target)
        try:
            schedule = family.schedule(workload, one.best, KernelTarget.of(context.target))
        except (ScheduleError, ValueError, KeyError) as error:
            lost = Verified(verdict=Holding.LOST, reason=f"its candidate cannot be built: {error}")
            return DecidedOperator(file=file, one=one, found=lost)
        measured = _fresh_pairs(context, workload, schedule, one.bytes_around, compilers)
        found = verdict_on(None, measured)
        if not measured.counts or not measured.is_correct:
            return DecidedOperator(file=file, one=one, found=found)
        estimate = estimate_speedup(measured)
        outcome = settle(None, estimate, None)
        gains = outcome is RepoOutcome.ADD
        if not gains:  # of all its pairs: what there is of a gain is too small for a record
            reason = found.reason if found.verdict is Holding.LOST else "too small a gain"
            found = replace(found, verdict=Holding.LOST, reason=reason)
        if context.dry_run:
            return DecidedOperator(file=file, one=one, found=found)
        verdict = BankNote(
            event=Event(outcome.value),
            op_names=one.op_names,
            estimate=estimate,
            measurement=measured,
            search={
                "method": VERIFYING,
                "limit": 1,
                "trials": 1,
                "measured": 1,
                "bytes_around": one.bytes_around,
                **context.who,
                **({} if gains else left_open_members(one.best, is_again=False)),
            },
        )
        if gains:
            self._bank.save(workload, schedule, one.best, verdict)
        else:
            self._bank.note([(workload, verdict)])
        return DecidedOperator(file=file, one=one, found=found, written=True)


def _fresh_pairs(
    context: VerifyContext,
    workload: Workload,
    schedule: Schedule,
    bytes_around: int,
    compilers: KernelCompilers,
) -> Measurement:
    """Return fresh pairs of an operator's kernel and of the default."""
    target = context.target
    screen = screen_policy(target.core_num)
    task = OperatorTask(
        runner=compilers.runner,
        family=with_host_products(get_family(workload.op_type), target),
        workload=workload,
        kernel_target=KernelTarget.of(target),
        settings=SearchSettings(method=VERIFYING, budget=1, seed=context.seed, screen=screen),
        bytes_around=bytes_around,
        compilers=compilers,
    )
    return measure_schedules(task, [schedule], context.policy)[0]


def _bytes_around(recorded: RecordedGain | None) -> int:
    """Return the bytes read and written before each run: as recorded, else as in a large model."""
    if recorded is None or recorded.bytes_around is None:
        return BALLAST_BYTES_MAX
    return recorded.bytes_around
