"""Gradient tuning of a `DistributedDataParallel` model: find a grouping, use a known one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from aoe.bank.gradient_record import StoredGradients
from aoe.bank.gradients import GradientBank, gradient_bank_folder
from aoe.bank.journal import BankJournal, machine_fingerprint
from aoe.device.registry import DEVICES, default_device
from aoe.errors import AoeError, OptionError
from aoe.gradients.cost import choose_cost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace
from aoe.results.files import result_name, timestamp_of, write_json
from aoe.results.gradients import GdatReport, gdat_report_to_json
from aoe.settings import environment, repeat_tune, work_path
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining
from aoe.tuning.gdat.run import Gdat
from aoe.tuning.gdat.training import GdatResult, GdatSettings
from aoe.tuning.progress import Progress, SilentProgress
from aoebank import AoebankError

DEFAULT_TIMEOUT_S = 300.0
"""A collective that takes longer while tuning has lost a process. torch's own is 30 minutes."""
T = TypeVar("T")


class StrategyWarning(UserWarning):
    """A model keeps DDP's own buckets, or gets a grouping that was not measured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedGradients:
    """What `tune_gradients` did and where it left it; the same in every process.

    Attributes:
        result: Outcome, grouping, speed-up, report.
        bank_file: Gradient bank.
        result_file: AOE's result file.
    """

    result: GdatResult
    bank_file: Path
    result_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    soc_version: str
    bank_folder: Path
    result_file: Path
    tuning_name: str


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
        bank: Folder of the gradient bank; None for where `TUNE_BANK_PATH` says.
        output: Folder of the result file; None for the work path.
        settings: What is tried, and how long; None for the defaults and `REPEAT_TUNE`.
        progress: Told what happens, in the first process; None tells nobody.
        timeout_s: A collective that takes longer has lost a process; None for the group's own.

    Raises:
        OptionError: the model is no DDP module, or uses what cannot be combined with tuning.
        RunError: a step failed in some process; every process raises.
        AoebankError, OutputError: bank or result file cannot be used; every process raises.
    """
    ddp = _checked(model)
    env = environment()
    settings = settings or GdatSettings(repeat_tune=repeat_tune(env))
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
        training = DdpTraining(ddp, step, ranks)
        output = Path(output) if output is not None else None
        places = _on_first(ranks, lambda: _find_places(ddp, _bank_env(env, bank), output))
        gradient_bank = _open_bank(ddp, places)
        result = Gdat(
            training,
            gradient_bank,
            settings,
            report=_empty_report(training, places),
            publish=lambda report: write_json(places.result_file, gdat_report_to_json(report)),
            progress=progress if progress is not None and ranks.is_first else SilentProgress(),
        ).run()
    return TunedGradients(
        result=result, bank_file=gradient_bank.file, result_file=places.result_file
    )


def apply_gradient_strategy(
    ddp_or_model: Any,
    segmentation: Segmentation | None = None,
    *,
    trace: GradientTrace | None = None,
    bank: Path | str | None = None,
    process_group: Any | None = None,
    **ddp_options: Any,
) -> Any:
    """Group the gradients of a model as the bank says, without running a step.

    In a cluster like the one it was tuned in, the model gets the grouping that won there. In
    another one the all-reduce of this cluster is measured (about a second) and the grouping
    computed from it and the times in the bank; a `StrategyWarning` says that nobody timed it.
    A model the bank does not know keeps DDP's own buckets, with a `StrategyWarning`.

    Args:
        ddp_or_model: `DistributedDataParallel` module, or a module to be made one.
        segmentation: Use this grouping, do not look into the bank.
        trace: Gives the order of gradients `segmentation` is about; None for last parameter
            first.
        bank: Folder of the gradient bank; None for where `TUNE_BANK_PATH` says.
        process_group: For a module that is not yet `DistributedDataParallel`.
        **ddp_options: The same.

    Returns:
        The `DistributedDataParallel` module.

    Raises:
        OptionError: DDP is used in a way that cannot be combined, or arguments do not fit.
    """
    ddp = _wrapped(ddp_or_model, process_group, ddp_options)
    ranks = Ranks(ddp.process_group, ddp.device, timeout_s=None)
    if ranks.world_size < 2 and segmentation is None:
        return ddp  # nothing is reduced
    with ranks.watched():
        training = DdpTraining(ddp, _no_step, ranks)
        if segmentation is not None:
            _apply_given(training, segmentation, trace)
        else:
            _apply_known(ddp, training, ranks, _bank_env(environment(), bank))
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


def _apply_known(ddp: Any, training: DdpTraining, ranks: Ranks, env: Mapping[str, str]) -> None:
    def look_up() -> tuple[StoredGradients | None, str]:
        bank = _open_bank(ddp, _find_places(ddp, env, Path.cwd()))
        found = bank.look_up(training.model_hash, training.sizes_bytes)
        hopeless = bank.is_hopeless(
            training.model_hash, world_size=ranks.world_size, backend=ranks.backend
        )
        if hopeless and not _is_of(found.stored, ranks):
            return None, ""
        return found.stored, f"{bank.file}: {found.miss.value if found.miss else ''}"

    stored, miss = _on_first(ranks, look_up)
    if stored is None or not training.order_by(stored.trace):
        if miss:
            _warn(f"{miss}; this model keeps DDP's own buckets. aoe.torch.tune_gradients tunes it")
        return
    if _is_of(stored, ranks):
        training.apply(stored.segmentation)
        return
    cost = choose_cost(training.cost_samples())
    training.apply(stored.segment(cost, world_size=ranks.world_size, backend=ranks.backend))
    _warn(
        f"gradients were grouped for {ranks.world_size} processes by computation, the bank has "
        f"measurements for {stored.world_size or 'an unknown number'}. "
        "aoe.torch.tune_gradients measures here"
    )


def _is_of(stored: StoredGradients | None, ranks: Ranks) -> bool:
    """True if the stored grouping was measured in a cluster like this one."""
    if stored is None or stored.segmentation is None:
        return False
    return (stored.world_size, stored.backend) == (ranks.world_size, ranks.backend)


def _checked(model: Any) -> Any:
    if not isinstance(model, DistributedDataParallel):
        raise OptionError(
            "model",
            "not a DistributedDataParallel module",
            got=type(model).__name__,
            hint="wrap it in torch.nn.parallel.DistributedDataParallel, and run that in `step`",
        )
    return model


def _wrapped(model: Any, process_group: Any | None, options: Mapping[str, Any]) -> Any:
    if not isinstance(model, DistributedDataParallel):
        return DistributedDataParallel(model, process_group=process_group, **options)
    if process_group is not None or options:
        raise OptionError(
            "apply_gradient_strategy",
            "the model is DistributedDataParallel already",
            got=", ".join(["process_group"] * (process_group is not None) + sorted(options)),
            hint="give these options where the model is wrapped",
        )
    return model


def _on_first(ranks: Ranks, action: Callable[[], T]) -> T:
    value, error = None, None
    if ranks.is_first:
        try:
            value = action()
        except (AoeError, AoebankError, OSError) as problem:
            error = problem
    ranks.agree(error)
    found: T = ranks.from_first(value)
    return found


def _bank_env(env: Mapping[str, str], bank: Path | str | None) -> Mapping[str, str]:
    return env if bank is None else {**env, "TUNE_BANK_PATH": str(bank)}


def _find_places(ddp: Any, env: Mapping[str, str], output: Path | None) -> _Places:
    soc_version = soc_version_of(ddp.device)
    stamp = timestamp_of(datetime.now(UTC))
    folder = output if output is not None else work_path(env, Path.cwd())
    return _Places(
        soc_version=soc_version,
        bank_folder=gradient_bank_folder(env, Path.cwd(), soc_version),
        result_file=folder / result_name("gdat", stamp, os.getpid()),
        tuning_name=f"{type(ddp.module).__name__}_{stamp}",
    )


def soc_version_of(device: Any) -> str:
    """Return the target whose backward times are measured, or the name PyTorch has for it."""
    if device.type in DEVICES:
        return DEVICES[device.type].describe().soc_version
    name = getattr(torch, device.type).get_device_name(device)
    return "-".join(str(name).replace("_", "-").split())


def _open_bank(ddp: Any, places: _Places) -> GradientBank:
    journal = BankJournal(
        places.bank_folder,
        places.soc_version,
        fingerprint=_machine(places.soc_version, ddp.device),
        model={"name": type(ddp.module).__name__},
        engine_version=version("aoebank"),
    )
    return GradientBank(journal)


def _machine(soc_version: str, device: Any) -> dict[str, Any]:
    facts = machine_fingerprint(
        default_device().describe(),
        threads=torch.get_num_threads(),
        device=str(device),
        torch=str(torch.__version__),
    )
    return facts | {"soc_version": soc_version}


def _empty_report(training: DdpTraining, places: _Places) -> GdatReport:
    return GdatReport(
        tuning_name=places.tuning_name,
        modelhash=str(training.model_hash),
        gradients=len(training.sizes_bytes),
        total_bytes=sum(training.sizes_bytes),
        world_size=training.world_size,
        backend=training.backend,
        machine=_machine(places.soc_version, torch.device("cpu")),
        versions={"aoe": version("aoebank"), "torch": torch.__version__},
    )


def _no_step() -> None:
    raise AssertionError("looking up runs no step")


def _warn(text: str) -> None:
    warnings.warn(text, StrategyWarning, stacklevel=4)
