"""Measures what a bank has of a training again, in the training, as tuning confirms its winner.

A gradient bank has sizes and times, not what a training step computes. So a record is measured
where its training script runs: in its processes, DDP's own buckets against the recorded grouping.

record                                              -> what becomes of it
of another model, number of processes or library       not measured
where all-reduce or a step takes another time          fresh pairs, undecided: another cluster
else                                                   fresh pairs, and a verdict on them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aoe.bank.journal import VERIFYING
from aoe.bank.records.gradient import GradientVerdict, Miss, StoredGradients
from aoe.device.registry import default_device
from aoe.execute.compiling import KernelCompilers
from aoe.gradients.training import Training, TrainingProgram
from aoe.measurement import Measurement, MeasurePolicy, SpeedupEstimate
from aoe.runs.gradients.run import run_program
from aoe.runs.verify_records import (
    Holding,
    MeasurableRecord,
    PassedOver,
    RecordedGain,
    RecordReader,
    Verified,
    VerifiedBank,
    VerifiedRecord,
    VerifyContext,
    measured_by,
    recorded_gain,
    verdict_on,
)
from aoe.settings import accept_busy, environment, lock_path
from aoe.tasks.gradients.bench import (
    GdatSettings,
    TrainingBench,
    busy_words,
    measuring_together,
    on_first,
    open_reading_bench,
    warn_if_busy,
)
from aoe.tasks.gradients.looking_up import FitCheck, misfit_of, was_measured_here
from aoe.tasks.gradients.racing import fresh_pairs
from aoe.tuner.progress import Progress, TellProgress, progress_of
from aoebank import Event, Record

OP_TYPE = "gradients"
_PAIRS = MeasurePolicy(pairs_min=24, pairs_max=24)
"""Between the fewest and the most a search confirms its winner with."""
_WAY_OUT = (
    "gradients are measured in their training: aoe verify BANK --script TRAIN.py, or of a model "
    "file with --model and --loss_name"
)


class GradientReader(RecordReader):
    """Says how the records of gradients are measured: without their training, none can be."""

    def read(self, file: Path, record: Record) -> str | None:
        """Return the reason a record of gradients is not measured, None for another record."""
        strategy = record.strategy
        is_ours = isinstance(strategy, Mapping) and "gradientSize" in strategy
        return _WAY_OUT if is_ours else None


def reader(context: VerifyContext) -> GradientReader:
    """Return the reader of gradient records; see `Verifier`."""
    return GradientReader()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientAnswer:
    """A grouping of gradients that was measured in its training; see `MeasurableAnswer`."""

    measurement: Measurement
    op_type: str = OP_TYPE
    source: str | None = None
    model: Path | None = None
    default: str = "DDP's own buckets"

    def measure(self, recorded: RecordedGain | None, compilers: KernelCompilers) -> Measurement:
        """Return the pairs there are."""
        return self.measurement

    def timed(self, record: Record, latency_us: float) -> Record:
        """Return the record unchanged: it has times of backward, not of a step."""
        return record

    def facts(self, recorded: RecordedGain | None) -> Mapping[str, Any]:
        """Return nothing: the side-car line has the cluster."""
        return {}


def verify_program(
    program: TrainingProgram,
    bank: Path | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | TellProgress | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> VerifiedBank | None:
    """Measure what a bank has of a training program again, as `aoe verify --script` does.

    Every process of the program's group calls this.

    Args:
        program: The program, such as `aoe.torch.TrainingScript`.
        bank: Folder of the gradient bank; None for what `TUNE_BANK_PATH` says.
        dry_run: True to write nothing into the bank.
        progress: As for `aoe.tune`; None for silence.
        env: Environment variables; None for those of the process.
        cwd: Directory relative paths are taken from; None for that of the process.

    Returns:
        What was found out; None in all processes but the first.

    Raises:
        AoeError: the program fails, or trains no `DistributedDataParallel` model.
        AoebankError: the bank cannot be used.
    """
    env, cwd = environment() if env is None else env, cwd or Path.cwd()
    verify = partial(
        verify_training,
        env=env if bank is None else {**env, "TUNE_BANK_PATH": str(cwd / bank)},
        cwd=cwd,
        progress=progress_of(progress),
        dry_run=dry_run,
    )
    return run_program(program, verify)[0]


def verify_training(
    training: Training,
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
    dry_run: bool = False,
) -> VerifiedBank | None:
    """Measure what a bank has of a training that runs; every process of its group calls this.

    Args:
        training: The run; it is left with its default grouping.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        progress: Told what happens, in the first process.
        dry_run: True to write nothing into the bank.

    Returns:
        What was found out; None in all processes but the first.
    """
    bench = open_reading_bench(
        training, GdatSettings(accept_busy=accept_busy(env)), env=env, cwd=cwd, progress=progress
    )
    with measuring_together(training, lock_path(env), bench.progress.warn):
        stored = on_first(training, lambda: _stored(bench))
        found = stored if isinstance(stored, str) else _measured(bench, stored)
        training.apply(None)
    verified = list[VerifiedBank]()
    on_first(training, lambda: verified.append(_verified(bench, found, dry_run=dry_run)))
    return verified[0] if verified else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A recorded grouping, measured again."""

    stored: StoredGradients  # The record
    measurement: Measurement  # Fresh pairs of training steps
    estimate: SpeedupEstimate  # What they prove in other runs, too
    misfit: str | None  # How times differ from the record's, None if they fit


def _stored(bench: TrainingBench) -> StoredGradients | str:
    """Return the record of a training, or why there is none to measure in this group."""
    training = bench.training
    found = bench.bank.look_up(training.model_hash, training.sizes_bytes)
    stored = found.stored
    if stored is None:
        model = f"{training.model_name} (modelhash {training.model_hash})"
        if found.miss is None or found.miss is Miss.ABSENT:
            return f"the bank has no record of {model}"
        return f"{model}: {found.miss.value}"
    if stored.segmentation is None:
        return "no line of the side-car says how its gradients were grouped"
    if (stored.world_size, stored.backend) != (training.world_size, training.backend):
        return (
            f"measured with {stored.world_size} processes over {stored.backend}, here are "
            f"{training.world_size} over {training.backend}"
        )
    return stored


def _measured(bench: TrainingBench, stored: StoredGradients) -> _Measured | str:
    """Return the grouping of a record, measured again, or why it is not."""
    training = bench.training
    if not was_measured_here(stored, training):
        return "its gradients are not those of this training"
    before = training.usage()
    misfit = misfit_of(training, FitCheck(training), stored)
    training.look_at_default()
    bench.progress.step(f"{_PAIRS.pairs_max} pairs of training steps, {training.default_name}")
    measurement, estimate = fresh_pairs(
        partial(training.sample_us, None), partial(training.sample_us, stored.segmentation), _PAIRS
    )
    warn_if_busy(bench, busy_words(bench, before))
    return _Measured(stored=stored, measurement=measurement, estimate=estimate, misfit=misfit)


def _verified(bench: TrainingBench, found: _Measured | str, *, dry_run: bool) -> VerifiedBank:
    """Return the findings, and note the decisions; in the first process."""
    bank, key = bench.bank, bench.training.model_hash
    record = bank.record(key)
    records, passed_over = list[VerifiedRecord](), list[PassedOver]()
    if isinstance(found, str) or record is None:
        reason = found if isinstance(found, str) else "its record has gone meanwhile"
        is_there = record is not None
        passed_over.append(
            PassedOver(file=bank.file, key=str(key), reason=reason, is_there=is_there)
        )
    else:
        records.append(_record(bench, record, found, dry_run=dry_run))
    return VerifiedBank(
        root=bank.file.parent,
        target=replace(default_device().describe(), soc_version=bench.training.soc_version),
        records=tuple(records),
        passed_over=tuple(passed_over),
        left=sum(one != str(key) for one in bank.modelhashes()),
        dry_run=dry_run,
    )


def _record(
    bench: TrainingBench, record: Record, found: _Measured, *, dry_run: bool
) -> VerifiedRecord:
    training, bank = bench.training, bench.bank
    key, estimate = training.model_hash, found.estimate
    one = MeasurableRecord(
        file=bank.file,
        record=record,
        answer=GradientAnswer(measurement=found.measurement),
        op_names=(training.model_name,),
        recorded=recorded_gain(bank.last_figure(key)),
        drift=bank.drift(key),
    )
    verified = _verdict(training, one.recorded, found)
    told = ", ".join(filter(None, (f"{estimate.median:.3f}x", verified.reason)))
    bench.progress.step(f"{training.model_name}: {verified.verdict} ({told})")
    written = verified.is_decided and not dry_run
    if written:
        bank.note(key, _note(training, found, verified), found.stored.trace)
    return VerifiedRecord(one=one, found=verified, written=written)


def _verdict(training: Training, recorded: RecordedGain | None, found: _Measured) -> Verified:
    """Return the verdict on a grouping; undecided where the times differ from the record's."""
    if found.misfit is None:
        default = f"{training.default_name}'s own buckets"
        return verdict_on(recorded, found.measurement, estimate=found.estimate, default=default)
    return Verified(
        verdict=Holding.UNDECIDED,
        reason=f"another cluster, or a busy one: {found.misfit}",
        measurement=found.measurement,
        estimate=found.estimate,
    )


def _note(training: Training, found: _Measured, verified: Verified) -> GradientVerdict:
    stored, measurement = found.stored, found.measurement
    return GradientVerdict(
        event=Event.RESERVED,
        world_size=training.world_size,
        backend=training.backend,
        segmentation=stored.segmentation,
        origin=stored.origin,
        inflation=stored.inflation,
        estimate=found.estimate,
        baseline_us=measurement.baseline_us,
        tuned_us=measurement.tuned_us,
        step_us=measurement.latency_us,
        search={"method": VERIFYING, "verdict": verified.verdict.value, **measured_by()},
    )
