"""Tools of gradient tuning: its settings, the processes of the training, bank and report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from aoe.bank.damage import without_damaged
from aoe.bank.gradients import GradientBank, gradient_banks
from aoe.bank.journal import BankJournal
from aoe.device.registry import default_device
from aoe.errors import AoeError, LeftAloneError, OptionError
from aoe.folders.turns import Turns, join_turn
from aoe.gradients.compression import Compression
from aoe.gradients.training import Training
from aoe.measurement import CpuUse, MeasurePolicy, RacePolicy
from aoe.results.files import BANK_FOLDER, result_name, timestamp_of, write_json
from aoe.results.gradients import GdatReport, gdat_report_to_json
from aoe.settings import work_path
from aoe.tuner.live_report import LiveReport, Stopwatch, start_stopwatch
from aoe.tuner.mode import JobType
from aoe.tuner.policies import step_final_policy, step_race_policy
from aoe.tuner.progress import Progress, SilentProgress
from aoe.tuner.study import StudyWriter
from aoebank import AoebankError, Bank, BankWithSpare, Resolution, SpareBank, UnionBank

DEFAULT_LOOPS = 8
GRID_MIB = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Values of `bucket_cap_mb` people try by hand; measured beside the computed groupings."""

ACCEPT_STEP_SPEEDUP = 1.01
"""Lower bound of the speed-up of a training step. The same bound as for a whole model."""
_FEWEST_LOOPS = 4
"""Of each gradient the three slowest times do not count."""


def checked_loops(run_loop: int | None) -> int:
    """Return the number of backward passes recorded.

    Raises:
        OptionError: `RUN_LOOP` leaves nothing to take a mean of.
    """
    if run_loop is not None and run_loop < _FEWEST_LOOPS:
        raise OptionError(
            "RUN_LOOP",
            "too few for gradient tuning, which leaves the three slowest out",
            got=run_loop,
            expected=f"{_FEWEST_LOOPS} or more",
        )
    return run_loop or DEFAULT_LOOPS


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatSettings:
    """One gradient tuning run."""

    loops: int = DEFAULT_LOOPS  # Backward passes that are recorded, more than three
    repeat_tune: bool = False  # True to tune what the bank already has
    # No further grouping is tried after so many seconds; None: no limit.
    tuning_time_limit_s: float | None = None
    grid_mib: tuple[float, ...] = GRID_MIB  # Bucket sizes tried beside the computed groupings
    # Policy for all candidates beside each other.
    race: RacePolicy = field(default_factory=step_race_policy)
    final: MeasurePolicy = field(default_factory=step_final_policy)  # Policy for the best one
    least_speedup: float = ACCEPT_STEP_SPEEDUP  # What the lower end of its interval has to exceed
    accept_busy: bool = False  # True to say nothing of a busy machine
    # What gradients may be summed in, so that results differ in rounding; None for all their bits.
    compression: Compression | None = None
    study: str | None = None  # File for a study of Optuna; None for none

    def __post_init__(self) -> None:
        if self.loops < _FEWEST_LOOPS:
            raise ValueError(f"loops must be {_FEWEST_LOOPS} or more (got {self.loops})")
        if any(mib <= 0 for mib in self.grid_mib):
            raise ValueError(f"grid_mib must hold sizes above 0 (got {self.grid_mib})")


T = TypeVar("T")

_TRIES, _TRY_S = 360, 5.0
"""How often, and how long each time, a training waits for another run on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBench:
    """A training and what it takes to tune it."""

    training: Training  # The run
    bank: GradientBank  # Of the first process; the others' is not used
    spare: SpareBank = field(default_factory=SpareBank)  # Takes what that bank cannot
    settings: GdatSettings  # What to do
    report: LiveReport[GdatReport]  # Follows the run, in the first process
    progress: Progress  # Told what happens
    stopwatch: Stopwatch  # Of the run
    study: StudyWriter | None = None  # In the first process, if one is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlaces:
    """Files of a run on a training, as its first process sees them."""

    tuning_name: str  # Name of the run, `<model>_<timestamp>`
    banks: Resolution  # Folders of gradient banks
    result_file: Path  # AOE's result file


def find_places(
    training: Training, output: Path | None, *, env: Mapping[str, str], cwd: Path, now: datetime
) -> TrainingPlaces:
    """Return the places of a run's files.

    Raises:
        AoebankError: the bank cannot be used.
        OutputError: the work path cannot.
    """
    stamp = timestamp_of(now)
    return TrainingPlaces(
        tuning_name=f"{training.model_name}_{stamp}",
        banks=gradient_banks(env, cwd, training.soc_version),
        result_file=work_path(env, cwd, output) / result_name(JobType.GDAT, stamp, os.getpid()),
    )


def open_bank(
    training: Training,
    bank: Path | Bank,
    on_event: Callable[[str], None],
    *,
    may_write: bool = False,
) -> GradientBank:
    """Return a gradient bank in the name of a training.

    Args:
        training: Its first process alone looks for damaged files, and does without them.
        bank: Folder of its file, or several of them.
        on_event: Is told of each.
        may_write: True to set them aside, False to pass over them.
    """
    journal = BankJournal(
        bank,
        training.soc_version,
        fingerprint=training.machine,
        model={"name": training.model_name},
        engine_version=version("aoebank"),
    )
    if training.is_first:
        for one in without_damaged(journal.bank, training.soc_version, may_write=may_write):
            on_event(str(one))
    cluster = {"world_size": training.world_size, "backend": training.backend}
    return GradientBank(journal, cluster=cluster)


def union_of(banks: Resolution) -> UnionBank:
    """Return the banks of a look-up as one."""
    return UnionBank(banks.root, banks.roots, banks.union)


def open_bench(
    training: Training,
    settings: GdatSettings,
    places: TrainingPlaces,
    *,
    progress: Progress,
    stopwatch: Stopwatch,
) -> TrainingBench:
    """Return the bench of a training; its first process writes and speaks."""

    def publish(report: GdatReport) -> None:
        on_first(training, lambda: write_json(places.result_file, gdat_report_to_json(report)))

    spare, place = SpareBank(), places.result_file.parent / BANK_FOLDER
    banks = places.banks
    bank = BankWithSpare(banks.root, spare, place, progress.warn, banks.roots, banks.union)
    return TrainingBench(
        training=training,
        bank=open_bank(training, bank, progress.warn, may_write=True),
        spare=spare,
        settings=settings,
        report=LiveReport(_empty_report(training, places.tuning_name), publish, stopwatch),
        progress=progress if training.is_first else SilentProgress(),
        stopwatch=stopwatch,
    )


def open_reading_bench(
    training: Training,
    settings: GdatSettings,
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
) -> TrainingBench:
    """Return the bench of a training that is looked at: it leaves no report, and no time limit.

    Raises:
        AoebankError: the bank cannot be used; every process raises.
    """
    banks = on_first(training, lambda: gradient_banks(env, cwd, training.soc_version, writes=False))
    stopwatch = start_stopwatch(time.monotonic, None)
    report = LiveReport(_empty_report(training, training.model_name), lambda _: None, stopwatch)
    return TrainingBench(
        training=training,
        bank=open_bank(training, union_of(banks), progress.warn),
        settings=settings,
        report=report,
        progress=progress if training.is_first else SilentProgress(),
        stopwatch=stopwatch,
    )


def busy_words(bench: TrainingBench, before: CpuUse) -> str:
    """Return the load beside the worst served process in words; empty for a quiet machine.

    Every process calls this.

    Args:
        bench: Of the training; one that accepts a busy machine is told nothing.
        before: Counters of this process when the steps began.
    """
    load = bench.training.load_since(before)
    if load.is_quiet or bench.settings.accept_busy:
        return ""
    return f"the process served worst got {load}"


def warn_if_busy(bench: TrainingBench, words: str) -> None:
    """Warn of what a busy machine does to step times, unless there are no such words."""
    if words:
        bench.progress.warn(
            f"the machine is busy: {words}. Step times scatter by that, intervals get wide, and "
            "small gains stay unseen; stop other work, or give each process fewer threads"
        )


def _empty_report(training: Training, tuning_name: str) -> GdatReport:
    return GdatReport(
        tuning_name=tuning_name,
        modelhash=str(training.model_hash),
        gradients=len(training.sizes_bytes),
        total_bytes=sum(training.sizes_bytes),
        world_size=training.world_size,
        backend=training.backend,
        machine=training.machine,
        versions={"aoe": version("aoebank"), **training.versions},
    )


@contextmanager
def measuring_together(
    training: Training,
    locks: Path,
    on_event: Callable[[str], None],
    *,
    tries: int = _TRIES,
    try_s: float = _TRY_S,
) -> Iterator[None]:
    """Have the machine for a `with` block: the first process takes the turn for all.

    Args:
        training: The run; every process of its group calls this.
        locks: Where runs on this machine take turns.
        on_event: Is told whom the run waits for.
        tries: How often the first process waits for another run.
        try_s: Seconds it waits each time.

    Raises:
        LeftAloneError: another run has not ended its turn in time; every process raises.
    """
    turns = Turns(locks, default_device().cores(all_of_them=True), on_event)
    with ExitStack() as held:
        for _ in range(tries):  # short ones: the others wait in a collective, which has its limit
            if on_first(training, lambda: turns.take(held, wait_s=try_s)):
                break
        else:
            raise LeftAloneError(
                "gradients",
                "another run measures on this machine",
                got=on_first(training, turns.owner),
                expected=f"it to end its turn within {tries * try_s / 60:.0f} min",
                hint="try again once that run is done",
            )
        if not training.is_first:
            join_turn(held)
        yield


def on_first(training: Training, action: Callable[[], T]) -> T:
    """Run something in the first process; all get its value, or its error."""
    value, error = None, None
    if training.is_first:
        try:
            value = action()
        except (AoeError, AoebankError, OSError) as problem:
            error = problem
    training.agree(error)
    found: T = training.from_first(value)  # type: ignore[assignment]
    return found
