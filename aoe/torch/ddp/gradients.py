"""Gradient tuning of a `DistributedDataParallel` model: find a grouping, use a known one."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from aoe.bank.gradients import gradient_banks
from aoe.bank.records.gradient import GradientConditions, StoredGradients
from aoe.errors import OptionError
from aoe.gradients.compression import Compression, parse_compression
from aoe.gradients.cost import choose_cost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace
from aoe.gradients.training import Training
from aoe.runs.gradients.result import TunedGradients
from aoe.runs.gradients.run import tune_training
from aoe.settings import accept_busy, environment, repeat_tune, with_bank
from aoe.tasks.gradients.bench import GdatSettings, on_first, open_bank, union_of
from aoe.tasks.gradients.looking_up import FitCheck
from aoe.torch.ddp.compressed import CompressedDdpTraining
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.sharding import is_sharded, sharded_model
from aoe.torch.ddp.training import DdpTraining
from aoe.tuner.live_report import start_stopwatch
from aoe.tuner.progress import Progress, SilentProgress

DEFAULT_TIMEOUT_S = 300.0
"""A collective that takes longer while tuning has lost a process. torch's own is 30 minutes."""


class StrategyWarning(UserWarning):
    """A model keeps DDP's own buckets, or gets a grouping that was not measured here."""


def tune_gradients(
    model: Any,
    step: Callable[[], object],
    *,
    bank: Path | str | None = None,
    output: Path | str | None = None,
    settings: GdatSettings | None = None,
    progress: Progress | None = None,
    timeout_s: float | None = DEFAULT_TIMEOUT_S,
) -> TunedGradients:
    """Find the grouping of gradients that makes a training step shortest, and leave it in use.

    Every process of the model's group has to call this at the same point. Each call of `step`
    is an ordinary training step, whatever grouping is tried: gradients are the same as without
    tuning, so it may update the weights, and it may train on real data. All its forwards and
    backwards belong to one update (with gradient accumulation: the `no_sync` ones first).

    Args:
        model: `DistributedDataParallel` module; only its buckets change.
        step: Runs one training step of the model.
        bank: Folder of the gradient bank, made if it is missing; None for where `TUNE_BANK_PATH`
            says.
        output: Folder of the result file; None for the work path.
        settings: What is tried, and how long; None for the defaults and `REPEAT_TUNE`.
        progress: Told what happens, in the first process; None tells nobody.
        timeout_s: A collective that takes longer has lost a process; None for the group's own.

    Raises:
        OptionError: the model is no DDP module, or uses what cannot be combined with tuning.
        RunError: a step failed in some process; every process raises.
        AoebankError, OutputError: bank or result file cannot be used; every process raises.
    """
    env = environment()
    _check_arguments(step, settings)
    settings = settings or GdatSettings(repeat_tune=repeat_tune(env), accept_busy=accept_busy(env))
    with reduced_training(_checked(model), step, timeout_s=timeout_s) as training:
        return tune_training(
            training,
            settings,
            output=Path(output) if output is not None else None,
            env=_bank_env(training, env, bank, writes=True),
            cwd=Path.cwd(),
            progress=progress or SilentProgress(),
            now=datetime.now(UTC),
            stopwatch=start_stopwatch(time.monotonic, settings.tuning_time_limit_s),
        )


@contextmanager
def reduced_training(
    ddp: Any, step: Callable[[], object], *, timeout_s: float | None
) -> Iterator[DdpTraining]:
    """Give the training of a DDP module while its processes watch each other.

    Raises:
        OptionError: there is one process only, or the module cannot be combined with tuning.
    """
    ranks = Ranks(ddp.process_group, ddp.device, timeout_s=timeout_s)
    if ranks.world_size < 2:
        raise OptionError(
            "process group",
            "one process reduces nothing",
            got=1,
            expected="2 or more",
            hint="torchrun --nproc-per-node=2 TRAIN.py",
        )
    with ranks.watched():
        yield DdpTraining(ddp, step, ranks, compress=CompressedDdpTraining)


def apply_gradient_strategy(
    ddp_or_model: Any,
    segmentation: Segmentation | None = None,
    *,
    trace: GradientTrace | None = None,
    bank: Path | str | None = None,
    process_group: Any | None = None,
    allow_compression: str | None = None,
    **ddp_options: Any,
) -> Any:
    """Group the gradients of a model as the bank says, without running a step.

    All-reduce is measured for about a second. In a cluster like the one it was tuned in, the model
    gets the grouping that won there. In another one, or where all-reduce takes another time, the
    grouping is computed from this cluster's all-reduce and the times in the bank; a
    `StrategyWarning` says that nobody timed it.
    A model the bank does not know keeps DDP's own buckets, with a `StrategyWarning`.

    Args:
        ddp_or_model: `DistributedDataParallel` module, or a module to be made one.
        segmentation: Use this grouping, do not look into the bank.
        trace: Gives the order of gradients `segmentation` is about; None for last parameter
            first.
        bank: Folder of the gradient bank, made if it is missing; None for where `TUNE_BANK_PATH`
            says.
        process_group: For a module that is not yet `DistributedDataParallel`.
        allow_compression: What gradients may be summed in, bf16 or fp16, so that results differ in
            rounding; used where the bank says that it won in such a cluster. None for all bits.
        **ddp_options: The same.

    Returns:
        The `DistributedDataParallel` module.

    Raises:
        OptionError: DDP is used in a way that cannot be combined, or arguments do not fit.
    """
    compression = parse_compression(allow_compression, "allow_compression")
    ddp = _wrapped(ddp_or_model, process_group, ddp_options)
    ranks = Ranks(ddp.process_group, ddp.device, timeout_s=None)
    if ranks.world_size < 2 and segmentation is None:
        return ddp  # nothing is reduced
    with ranks.watched():
        training = DdpTraining(ddp, _no_step, ranks, compress=CompressedDdpTraining)
        if segmentation is not None:
            _apply_given(training, segmentation, trace)
            return ddp
        env = _bank_env(training, environment(), bank, writes=False)
        if compression is None or not _apply_compressed(training, compression, env):
            _apply_known(training, env)
    return ddp


def _apply_given(
    training: DdpTraining, segmentation: Segmentation, trace: GradientTrace | None
) -> None:
    count = len(training.sizes_bytes)
    if segmentation.ends[-1] != count:
        raise OptionError(
            "segmentation",
            "is of another number of gradients",
            got=segmentation.ends[-1],
            expected=count,
        )
    if trace is not None and not training.order_by(trace):
        raise OptionError("trace", "is of another model")
    training.apply(segmentation)


def _apply_known(training: DdpTraining, env: Mapping[str, str]) -> None:
    warn = _warner(training)

    def look_up() -> tuple[StoredGradients | None, GradientConditions | None, str]:
        banks = gradient_banks(env, Path.cwd(), training.soc_version, writes=False)
        bank = open_bank(training, union_of(banks), warn)
        found = bank.look_up(training.model_hash, training.sizes_bytes)
        failure = bank.last_failure(
            training.model_hash, world_size=training.world_size, backend=training.backend
        )
        return found.stored, failure, f"{bank.file}: {found.miss.value if found.miss else ''}"

    stored, failure, miss = on_first(training, look_up)
    check = FitCheck(training)
    misfit = None
    if stored is not None and _is_of(stored, training) and training.order_by(stored.trace):
        assert stored.segmentation is not None
        misfit = check.misfit(
            stored.conditions, stored.segmentation, stored.trace.sizes_bytes, with_steps=False
        )
        if misfit is None:
            training.apply(stored.segmentation)
            return
    if failure is not None and _default_was_best_here(training, check, failure):
        return
    if stored is None or not training.order_by(stored.trace):
        warn(f"{miss}; this model keeps DDP's own buckets. aoe.torch.tune_gradients tunes it")
        return
    training.apply(stored.computed_for(choose_cost(training.cost_samples())))
    measured = f"the bank has measurements for {stored.world_size or 'an unknown number'}"
    warn(
        f"gradients were grouped for {training.world_size} processes by computation, "
        f"{misfit or measured}. aoe.torch.tune_gradients measures here"
    )


def _apply_compressed(
    training: DdpTraining, compression: Compression, env: Mapping[str, str]
) -> bool:
    """Use 16 bits where the bank says that they won in a cluster like this one; else False."""
    compressed, warn = training.compressed(compression, None), _warner(training)

    def look_up() -> StoredGradients | None:
        banks = gradient_banks(env, Path.cwd(), compressed.soc_version, writes=False)
        bank = open_bank(compressed, union_of(banks), warn)
        return bank.find(compressed.model_hash, compressed.sizes_bytes)

    stored = on_first(training, look_up)
    if stored is None or stored.segmentation is None or not _is_of(stored, compressed):
        return False
    if compressed.problem() is not None or not compressed.order_by(stored.trace):
        return False
    grouping, sizes = stored.segmentation, stored.trace.sizes_bytes
    fits = FitCheck(compressed).misfit(stored.conditions, grouping, sizes, with_steps=False) is None
    if fits:
        compressed.apply(grouping)
        warn(compression.words)
    return fits


def _default_was_best_here(
    training: DdpTraining, check: FitCheck, failure: GradientConditions
) -> bool:
    sizes = tuple(reversed(training.sizes_bytes))  # about the order of backward
    return check.misfit(failure, training.default, sizes, with_steps=False) is None


def _is_of(stored: StoredGradients | None, training: Training) -> bool:
    """True if the stored grouping was measured in a cluster like this one."""
    if stored is None or stored.segmentation is None:
        return False
    return (stored.world_size, stored.backend) == (training.world_size, training.backend)


def _checked(model: Any) -> Any:
    if is_sharded(model):
        raise sharded_model(type(model).__name__)
    if not isinstance(model, DistributedDataParallel):
        raise OptionError(
            "model",
            "not a DistributedDataParallel module",
            got=type(model).__name__,
            hint="wrap it in torch.nn.parallel.DistributedDataParallel, and run that in `step`",
        )
    return model


def _check_arguments(step: Any, settings: Any) -> None:
    if not callable(step):
        raise OptionError(
            "step",
            "cannot be called",
            got=type(step).__name__,
            expected="a function of no arguments",
        )
    if not isinstance(settings, GdatSettings | None):
        raise OptionError(
            "settings",
            "is no GdatSettings",
            got=type(settings).__name__,
            expected="aoe.tasks.gradients.bench.GdatSettings(...)",
        )


def _wrapped(model: Any, process_group: Any | None, options: Mapping[str, Any]) -> Any:
    if is_sharded(model):
        raise sharded_model(type(model).__name__)
    if not isinstance(model, DistributedDataParallel):
        known = signature(DistributedDataParallel).parameters
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise OptionError(
                "apply_gradient_strategy",
                "there is no such argument, and DistributedDataParallel has none either",
                got=", ".join(unknown),
                expected="segmentation, trace, bank, process_group, allow_compression, or one of "
                "DistributedDataParallel's",
            )
        return DistributedDataParallel(model, process_group=process_group, **options)
    if process_group is not None or options:
        raise OptionError(
            "apply_gradient_strategy",
            "the model is DistributedDataParallel already",
            got=", ".join(["process_group"] * (process_group is not None) + sorted(options)),
            hint="give these options where the model is wrapped",
        )
    return model


def _bank_env(
    training: DdpTraining, env: Mapping[str, str], bank: Path | str | None, *, writes: bool
) -> Mapping[str, str]:
    """Return an environment that names the bank given; the first process makes its folder."""
    if bank is None:
        return env
    made = on_first(training, lambda: with_bank({}, Path(bank), writes=writes))
    return {**env, **made}


def _no_step() -> None:
    raise AssertionError("looking up runs no step")


def _warner(training: DdpTraining) -> Callable[[str], None]:
    """Return a function that warns the user; it does nothing but in the first process."""
    if not training.is_first:
        return lambda text: None
    return lambda text: warnings.warn(text, StrategyWarning, stacklevel=5)
