"""Look-up of a training in the bank, and whether the record holds in its cluster.

A record holds if it was measured with as many processes and the same communication library, and if
all-reduce and training steps take as long as they did. A modelhash knows neither the link nor the
batch, and a record of a slow link is worth nothing on a fast one. So all-reduce and a few training
steps are timed before a record is used, for about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoe.bank.damage import without_damaged
from aoe.bank.gradients import GradientBank, gradient_banks
from aoe.bank.journal import BankJournal
from aoe.bank.records.gradient import GradientConditions, StoredGradients
from aoe.device.registry import default_device
from aoe.gradients.cost import CostModel, choose_cost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.training import Training
from aoe.results.files import DEFAULT_WAS_BEST
from aoe.tasks.gradients.bench import TrainingBench, on_first, union_of

FITS_WITHIN = 1.5
"""Factor by which times may differ from the record's, either way. A busy machine stays within it,
the next faster kind of link (2.5 Gbit/s after 1) and twice the batch do not."""
CHECK_STEPS = 5


class FitCheck:
    """Compares this cluster with the bank's; a time that differs is measured a second time.

    Args:
        training: The run; every process makes the same calls.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self._costs: dict[bool, CostModel] = {}

    def misfit(
        self,
        then: GradientConditions,
        segmentation: Segmentation,
        sizes_bytes: tuple[int, ...],
        *,
        with_steps: bool = True,
    ) -> str | None:
        """Return the difference of conditions here, None if the times fit.

        Args:
            then: What was measured there.
            segmentation: Grouping in use.
            sizes_bytes: Of the gradients in the order it groups them.
            with_steps: True to run a few training steps, too.
        """
        groups = [sum(sizes_bytes[start:end]) for start, end in segmentation.ranges]

        def all_reduce_us(cost: CostModel) -> float:
            return sum(cost.cost_us(size) for size in groups)

        different = None
        if then.cost is not None:
            different = _difference(
                lambda look: all_reduce_us(self._cost(briefly=look == 0)), all_reduce_us(then.cost)
            )
            different = different and f"all-reduce takes {different}"
        if different is None and with_steps and then.step_us is not None:
            different = _difference(lambda look: self._training.step_us(CHECK_STEPS), then.step_us)
            different = different and f"a training step takes {different}"
        return different

    def _cost(self, *, briefly: bool) -> CostModel:
        """Return all-reduce here, measured once; not briefly: as it is measured for tuning."""
        if briefly not in self._costs:
            self._costs[briefly] = choose_cost(self._training.cost_samples(briefly=briefly))
        return self._costs[briefly]


def _difference(time_us: Callable[[int], float], then_us: float) -> str | None:
    """Return both times if they differ in a first and in a second look, else None."""
    here_us = 0.0
    for look in range(2):
        here_us = time_us(look)
        if max(here_us, then_us) <= FITS_WITHIN * min(here_us, then_us):
            return None
    return f"{here_us / 1e3:.1f} ms here, {then_us / 1e3:.1f} ms in the bank"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGradients:
    """Answer of the bank for a training, before anything is searched."""

    why: str  # In words, why it is used or not
    stored: StoredGradients | None = None  # The record, None if there is none that can be used
    is_used: bool = False  # True if its grouping is used as it is
    # True if an earlier search found the default best, and is believed.
    is_default_best: bool = False
    is_afresh: bool = False  # True if the record's times of backward are not those of this training


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """Processes the records of a bank were measured in."""

    # How many; None where records differ, or none of them says a number this machine has cores for.
    world: int | None
    threads: int | None  # Of each, likewise


def recorded_group(
    bank: Path | None, env: Mapping[str, str], cwd: Path, *, cores: int
) -> RecordedGroup:
    """Return the processes the records of a bank for this CPU were measured in.

    It is known before a training runs, and so before its device is. The bank may be anybody's:
    what its side-car says starts no more processes and threads than there are cores.

    Args:
        bank: Folder of the gradient bank; None for what `TUNE_BANK_PATH` says.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        cores: Of this machine.

    Raises:
        AoebankError: the bank cannot be read.
    """
    soc_version = default_device().describe().soc_version
    named = {} if bank is None else {"TUNE_BANK_PATH": str(cwd / bank)}
    banks = union_of(gradient_banks({**env, **named}, cwd, soc_version, writes=False))
    journal = BankJournal(banks, soc_version, fingerprint={}, model={}, engine_version="")
    without_damaged(journal.bank, soc_version, may_write=False)  # the run itself tells of them
    known = GradientBank(journal)
    lines = [journal.last_figure(known.file, key) for key in known.modelhashes()]
    facts = [line.fingerprint for line in lines if line is not None]
    return RecordedGroup(
        world=_common([one.get("world_size") for one in facts], 2, cores),
        threads=_common([one.get("threads") for one in facts], 1, cores),
    )


def _common(values: Iterable[object], least: int, most: int) -> int | None:
    """Return the whole number all values are, None if they differ or it is out of bounds."""
    numbers = {one if type(one) is int and least <= one <= most else None for one in values}
    return next(iter(numbers)) if len(numbers) == 1 else None


def look_up(bench: TrainingBench) -> KnownGradients:
    """Look a training up; about a second of it runs if the bank knows it.

    Raises:
        AoeError: a step failed; every process raises.
        AoebankError: the bank cannot be used; every process raises.
    """
    training = bench.training
    stored, failure, miss = on_first(training, lambda: _in_bank(bench))
    if bench.settings.repeat_tune:
        return KnownGradients(why="tuned again, as REPEAT_TUNE asks", stored=stored, is_afresh=True)
    check, misfit = FitCheck(training), None
    if stored is not None and was_measured_here(stored, training):
        misfit = misfit_of(training, check, stored)
        if misfit is None:
            why = f"in the bank, measured in such a cluster ({stored.conditions})"
            return KnownGradients(why=why, stored=stored, is_used=True)
        bench.progress.step(f"in the bank, but {misfit}")
        training.apply(None)
    caveat = None
    if failure is not None:
        caveat = _caveat(bench, check, failure)
        if caveat is None:
            why = f"{DEFAULT_WAS_BEST} ({failure})"
            return KnownGradients(why=why, stored=stored, is_default_best=True)
        bench.progress.step(caveat)
    why = caveat or miss if stored is None else f"in the bank, but {misfit or 'of another cluster'}"
    # after a misfit, the times of the record's backward may be of another batch
    return KnownGradients(why=why, stored=stored, is_afresh=misfit is not None)


def was_measured_here(stored: StoredGradients, training: Training) -> bool:
    """True if a grouping was measured with as many processes, and is of this model."""
    return (
        stored.segmentation is not None
        and (stored.world_size, stored.backend) == (training.world_size, training.backend)
        and training.order_by(stored.trace)
    )


def misfit_of(training: Training, check: FitCheck, stored: StoredGradients) -> str | None:
    """Use a record's grouping and return how times differ from its own, None if they fit."""
    assert stored.segmentation is not None
    training.apply(stored.segmentation)
    return check.misfit(stored.conditions, stored.segmentation, stored.trace.sizes_bytes)


def _in_bank(
    bench: TrainingBench,
) -> tuple[StoredGradients | None, GradientConditions | None, str]:
    """Return the record, where an earlier search here found the default best, and the miss."""
    training = bench.training
    found = bench.bank.look_up(training.model_hash, training.sizes_bytes)
    miss = f"not in the bank: {found.miss.value}" if found.miss is not None else ""
    if miss:
        bench.progress.step(miss)
    failure = bench.bank.last_failure(
        training.model_hash, world_size=training.world_size, backend=training.backend
    )
    return found.stored, failure, miss


def _caveat(bench: TrainingBench, check: FitCheck, failure: GradientConditions) -> str | None:
    """Return the reason not to believe a search that found nothing, None if it is believed."""
    training, limit_s = bench.training, bench.settings.tuning_time_limit_s
    if failure.time_limit_s is not None and (limit_s is None or limit_s > failure.time_limit_s):
        return "default was best, but in a search with less time"
    sizes = tuple(reversed(training.sizes_bytes))  # about the order of backward
    misfit = check.misfit(failure, training.default, sizes)
    return None if misfit is None else f"{DEFAULT_WAS_BEST}, but {misfit}"
