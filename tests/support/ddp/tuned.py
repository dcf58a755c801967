"""Cases that tune: what is recorded, kept, remembered."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bucket_sizes import bucket_sizes_bytes
from networks import WIDTH
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aoe.bank.gradients import GradientBank
from aoe.bank.journal import BankJournal
from aoe.bank.records.gradient import GradientVerdict
from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace
from aoe.measurement import MeasurePolicy, RacePolicy
from aoe.tasks.gradients import looking_up
from aoe.tasks.gradients.bench import GdatSettings
from aoe.torch import apply_gradient_strategy, tune_gradients
from aoe.torch.ddp.buckets import reduced_gradients
from aoe.torch.ddp.gradients import StrategyWarning
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining, soc_version_of
from aoebank import Event
from support.engine.fakes import RecordingProgress


def net(width: int = WIDTH, *, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(6)))


def stepper(ddp: Any, seen: list[float] | None = None) -> Callable[[], None]:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    torch.manual_seed(200 + dist.get_rank())

    def step() -> None:
        optimizer.zero_grad()
        loss = ddp(torch.randn(4, ddp.module[0].in_features)).square().mean()
        loss.backward()
        optimizer.step()
        if seen is not None:
            seen.append(loss.item())

    return step


QUICK = GdatSettings(
    loops=4,
    grid_mib=(0.002, 0.005),
    race=RacePolicy(rounds_min=1, rounds_max=1),
    final=MeasurePolicy(pairs_min=6, pairs_max=6, warmup=0),
)
COST = AllReduceCost(latency_us=5.0, us_per_byte=1e-3)
looking_up.FITS_WITHIN = 1e9  # what fits does not depend on the machine, either


def _tuned(
    folder: Path, ddp: Any, least_speedup: float, **options: Any
) -> tuple[Any, RecordingProgress]:
    """Tune with a verdict that does not depend on the machine."""
    settings = replace(options.pop("settings", QUICK), least_speedup=least_speedup)
    told = RecordingProgress()
    done = tune_gradients(
        ddp,
        stepper(ddp),
        bank=folder,
        output=folder,
        progress=told,
        settings=settings,
        **options,
    )
    return done, told


def _summary(done: Any, told: RecordingProgress) -> dict[str, Any]:
    result = done.result
    return {
        "outcome": result.outcome.value,
        "ends": list(result.segmentation.ends) if result.segmentation else None,
        "steps": result.steps,
        "told": told.texts("step"),
        "bank": done.bank_file.name,
        "result": done.result_file.name,
    }


def _sizes_in_use(ddp: Any) -> list[int]:
    ddp(torch.ones(2, ddp.module[0].in_features)).sum().backward()
    ddp.zero_grad()
    return list(bucket_sizes_bytes(ddp))


def tune_and_reuse(folder: Path) -> dict[str, Any]:
    """Tune into a new folder, tune again, and group a new model as the bank says."""
    folder = folder / "new" / "bank"
    ddp = DistributedDataParallel(net())
    first = _summary(*_tuned(folder, ddp, 0.0))
    again = DistributedDataParallel(net())
    second = _summary(*_tuned(folder, again, 0.0))
    fresh = apply_gradient_strategy(net(seed=5), bank=folder)
    return {
        "first": first,
        "second": second,
        "sizes": [_sizes_in_use(model) for model in (ddp, again, fresh)],
        "weights": [parameter.double().sum().item() for parameter in ddp.parameters()],
    }


def tune_unsatisfied(folder: Path) -> dict[str, Any]:
    """Tune a model nothing is better for; look whether that is remembered."""
    ddp = DistributedDataParallel(net(16))
    first = _summary(*_tuned(folder, ddp, 1e9))
    second = _summary(*_tuned(folder, ddp, 1e9))
    apply_gradient_strategy(ddp, bank=folder)  # no warning: the default was found to be best
    return {"first": first, "second": second, "sizes": _sizes_in_use(ddp)}


def tune_repeatedly(folder: Path) -> dict[str, Any]:
    """REPEAT_TUNE: better replaces the record, not better keeps it."""
    ddp = DistributedDataParallel(net(12))
    repeated = GdatSettings(
        loops=4, grid_mib=(), repeat_tune=True, race=QUICK.race, final=QUICK.final
    )
    done = [_summary(*_tuned(folder, ddp, least, settings=repeated)) for least in (0.0, 0.0, 1e9)]
    return {"done": done}


def _store(
    folder: Path,
    ddp: Any,
    world: int,
    sizes: tuple[int, ...] | None = None,
    cost: AllReduceCost = COST,
) -> None:
    """Put a record into the bank which another cluster would have made."""
    training = DdpTraining(ddp, lambda: None, Ranks(None, ddp.device, timeout_s=None))
    ordered = reduced_gradients(ddp)[::-1]
    count = len(ordered)
    trace = GradientTrace(
        sizes_bytes=sizes or tuple(gradient.size_bytes for gradient in ordered),
        dtypes=("float32",) * count,
        names=tuple(gradient.name for gradient in ordered),
        ready_us=tuple(10.0 * place for place in range(count)),
        loops=8,
    )
    verdict = GradientVerdict(
        event=Event.ADD,
        world_size=world,
        backend="gloo",
        cost=cost,
        segmentation=Segmentation(ends=(1, count)),
    )
    journal = BankJournal(
        folder,
        soc_version_of(ddp.device),
        fingerprint={},
        model={"name": "net"},
        engine_version="0",
    )
    bank = GradientBank(journal)
    if dist.get_rank() == 0:
        bank.save(training.model_hash, trace, verdict)
    dist.barrier()


def other_cluster(folder: Path) -> dict[str, Any]:
    """Use a record of 64 processes: its times hold, its grouping does not."""
    ddp = DistributedDataParallel(net(10))
    _store(folder, ddp, 64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_gradient_strategy(ddp, bank=folder)
    done, told = _tuned(folder, ddp, 0.0)
    return {
        "warnings": [
            str(warning.message) for warning in caught if warning.category is StrategyWarning
        ],
        "tuned": _summary(done, told),
        "told": told.texts("step"),
    }


def other_link(folder: Path) -> dict[str, Any]:
    """Use a record of as many processes on a link that is ten thousand times as slow."""
    ddp = DistributedDataParallel(net(14))
    _store(folder, ddp, 2, cost=AllReduceCost(latency_us=1e7, us_per_byte=1.0))
    looking_up.FITS_WITHIN = 1.5
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            apply_gradient_strategy(ddp, bank=folder)
        done, told = _tuned(folder, ddp, 0.0)
    finally:
        looking_up.FITS_WITHIN = 1e9
    return {
        "warnings": [str(warning.message) for warning in caught],
        "stored_speedup": done.result.stored_speedup,
        **_summary(done, told),
    }


def foreign_record(folder: Path) -> dict[str, Any]:
    """Find a record of the same hash with other gradients: it is not used."""
    ddp = DistributedDataParallel(net(8))
    _store(folder, ddp, 2, sizes=tuple(range(100, 112)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_gradient_strategy(ddp, bank=folder)
    done, told = _tuned(folder, ddp, 0.0)
    return {"warnings": [str(warning.message) for warning in caught], **_summary(done, told)}


def readable_record(folder: Path) -> dict[str, Any]:
    """Use a record whose side-car is gone: sizes have to do."""
    ddp = DistributedDataParallel(net(6))
    _store(folder, ddp, 2)
    if dist.get_rank() == 0:
        for file in folder.glob("*.provenance.jsonl"):
            file.unlink()
    dist.barrier()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_gradient_strategy(ddp, bank=folder)
    return {"warnings": [str(warning.message) for warning in caught], "sizes": _sizes_in_use(ddp)}


def recorded() -> dict[str, Any]:
    """Record backward passes; hooks are gone afterwards."""
    ddp = DistributedDataParallel(net())
    training = DdpTraining(ddp, stepper(ddp), Ranks(None, ddp.device, timeout_s=None))
    before = training.usage()
    trace = training.record(5)
    load = training.load_since(before)
    left = [
        parameter
        for parameter in ddp.parameters()
        if getattr(parameter, "_post_accumulate_grad_hooks", None)
    ]
    samples = training.cost_samples()
    timeline = training.timeline(Segmentation(ends=(2, 7, 12)))
    assert timeline is not None
    return {
        "names": trace.names,
        "ready_us": trace.ready_us,
        "loops": trace.loops,
        "load": str(load),
        "was_looked_at": load.use.wall_s > 0 < load.use.cpu_s,
        "hooks_left": len(left) + len(attrgetter("_forward_hooks")(ddp.module)),
        "samples": [tuple(sample) for sample in samples],
        "segments": [(segment.gradients, segment.bytes) for segment in timeline.segments],
        "times": [
            (segment.ready_us, segment.start_us, segment.end_us) for segment in timeline.segments
        ],
    }
