"""One process of the tests: joins a gloo group over a file and runs the named cases.

python worker.py FOLDER RANK WORLD CASE...
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aoe.bank.gradient_record import GradientVerdict
from aoe.bank.gradients import GradientBank
from aoe.bank.journal import BankJournal
from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace
from aoe.measurement import MeasurePolicy
from aoe.torch import apply_gradient_strategy, tune_gradients
from aoe.torch.ddp import buckets
from aoe.torch.ddp.buckets import (
    bucket_indices,
    bucket_sizes_bytes,
    default_buckets,
    install_buckets,
    reduced_gradients,
)
from aoe.torch.ddp.gradients import StrategyWarning
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining, soc_version_of
from aoe.tuning.gdat import measuring
from aoe.tuning.gdat.settings import GdatSettings
from aoe.tuning.progress import SilentProgress
from aoebank import Event

WIDTH = 24


class Branches(nn.Module):
    """Uses one of two layers, by step and rank: which parameters get gradients changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.even = nn.Linear(WIDTH, WIDTH)
        self.odd = nn.Linear(WIDTH, WIDTH)
        self.never = nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return one branch's output."""
        self.calls += 1
        branch = self.even if (self.calls + dist.get_rank()) % 3 else self.odd
        return branch(torch.relu(self.first(value)))


class OnceUnused(nn.Module):
    """Has a layer that never gets a gradient, which static graphs allow."""

    def __init__(self) -> None:
        super().__init__()
        self.body = chain()
        self.never = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the body's output."""
        return self.body(value)


class Words(nn.Module):
    """An embedding with sparse gradients before dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, WIDTH, sparse=True)
        self.body = chain()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the body's output for a bag of words."""
        places = (value.abs() * 7).long() % 30
        return self.body(self.words(places).mean(1))


class Mixed(nn.Module):
    """Layers of several dtypes in turn."""

    def __init__(self) -> None:
        super().__init__()
        kinds = (torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.bfloat16)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, dtype=kind) for kind in kinds)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output in float32."""
        for layer in self.layers:
            value = torch.tanh(layer(value.to(layer.weight.dtype)))
        return value.float()


class Autocast(nn.Module):
    """Computes in bfloat16 with weights in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.body = chain()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the body's output in float32."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.body(value).float()


def chain() -> nn.Module:
    """Return six layers, two of which share their weights."""
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(6)]
    layers[4].weight = layers[1].weight
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.Tanh())))


def halved(state, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations
    """Communication hook of a user: sums in float64 and halves."""
    mean = bucket.buffer().div_(2 * dist.get_world_size())
    return dist.all_reduce(mean, async_op=True).get_future().then(lambda sums: sums.value()[0])


# ---- bit-equality with plain DDP ----


def same_as_ddp(
    make: Callable[[], nn.Module],
    *,
    accumulate: bool = False,
    keep_grads: bool = False,
    hook: bool = False,
    built_in_hook: bool = False,
    lasting: bool = True,
    native: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Train twins, one with exchanged buckets, and compare every step bit by bit."""
    if not native:  # an older torch
        buckets.has_cap_per_bucket = lambda: False
    torch.manual_seed(0)
    plain = DistributedDataParallel(make(), **options)
    torch.manual_seed(0)
    tuned = DistributedDataParallel(make(), **options)
    twins = (plain, tuned)
    optimizers = [torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9) for twin in twins]
    for twin in twins:
        if hook:
            twin.register_comm_hook(None, halved)
        if built_in_hook:
            twin._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    torch.manual_seed(100 + dist.get_rank())
    sizes = []
    for step in range(14):
        if step in (3, 7, 10):
            ordered = reduced_gradients(tuned)[::-1]
            ends = (*range(step % 4 + 1, len(ordered), 3), len(ordered))
            install_buckets(tuned, bucket_indices(ordered, ends), lasting=lasting)
        value = torch.randn(5, WIDTH)
        losses = []
        for ddp in twins:
            if accumulate and step % 2:
                with ddp.no_sync():
                    ddp(value * 2).square().mean().backward()
            loss = ddp(value).square().mean()
            loss.backward()
            losses.append(loss.detach())
        difference = _difference(plain, tuned, losses)
        if difference:
            return {"difference": f"step {step}: {difference}"}
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=not keep_grads)
        sizes.append(bucket_sizes_bytes(tuned))
    return {"difference": "", "sizes": sizes, "kind": type(tuned.reducer).__name__}


def _difference(plain: Any, tuned: Any, losses: list[torch.Tensor]) -> str:
    if not torch.equal(losses[0], losses[1]):
        return f"loss {losses}"
    for (name, one), two in zip(plain.named_parameters(), tuned.parameters(), strict=True):
        if not torch.equal(one, two):
            return f"parameter {name}"
        if (one.grad is None) != (two.grad is None):
            return f"gradient of {name} is missing in one of them"
        if one.grad is not None and not torch.equal(_dense(one.grad), _dense(two.grad)):
            return f"gradient of {name}"
    return ""


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient


def same_caps() -> dict[str, Any]:
    """Train with DDP's own caps and with a reducer of ours that has the same buckets."""
    torch.manual_seed(0)
    plain = DistributedDataParallel(chain(), bucket_cap_mb=0.006)
    torch.manual_seed(0)
    tuned = DistributedDataParallel(chain(), bucket_cap_mb=0.006)
    twins = (plain, tuned)
    optimizers = [torch.optim.SGD(twin.parameters(), lr=0.05) for twin in twins]
    torch.manual_seed(100 + dist.get_rank())
    found = []
    training = DdpTraining(tuned, lambda: None, Ranks(None, tuned.device, timeout_s=None))
    for step in range(12):
        value = torch.randn(5, WIDTH)
        if step == 3:
            training._step = lambda: tuned(torch.ones(1, WIDTH)).sum().backward()
            training.record(4)
            tuned.zero_grad()
            install_buckets(tuned, default_buckets(tuned, training._order))
        losses = []
        for ddp in twins:
            loss = ddp(value).square().mean()
            loss.backward()
            losses.append(loss.detach())
        if step > 3:
            found.append(_difference(plain, tuned, losses))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step == 3:  # sums may differ in the last bit while the buckets do
            tuned.module.load_state_dict(plain.module.state_dict())
    return {
        "difference": "".join(found),
        "plain": bucket_sizes_bytes(plain),
        "tuned": bucket_sizes_bytes(tuned),
    }


# ---- tuning ----


def _net(width: int = WIDTH, *, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(6)))


def _stepper(ddp: Any, seen: list[float] | None = None) -> Callable[[], None]:
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
    screen=MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0),
    final=MeasurePolicy(pairs_min=5, pairs_max=5, warmup=0),
)


class Told(SilentProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        """Keep the text."""
        self.steps.append(text)


def _tuned(folder: Path, ddp: Any, least_speedup: float, **options: Any) -> tuple[Any, Told]:
    """Tune with a verdict that does not depend on the machine."""
    measuring.ACCEPT_STEP_SPEEDUP = least_speedup
    told = Told()
    done = tune_gradients(
        ddp,
        _stepper(ddp),
        bank=folder,
        output=folder,
        progress=told,
        settings=options.pop("settings", QUICK),
        **options,
    )
    return done, told


def _summary(done: Any, told: Told) -> dict[str, Any]:
    result = done.result
    return {
        "outcome": result.outcome.value,
        "ends": list(result.segmentation.ends) if result.segmentation else None,
        "steps": result.steps,
        "told": told.steps,
        "bank": done.bank_file.name,
        "result": done.result_file.name,
    }


def _sizes_in_use(ddp: Any) -> list[int]:
    ddp(torch.ones(2, ddp.module[0].in_features)).sum().backward()
    ddp.zero_grad()
    return list(bucket_sizes_bytes(ddp))


def tune_and_reuse(folder: Path) -> dict[str, Any]:
    """Tune, tune again, and group a new model as the bank says."""
    ddp = DistributedDataParallel(_net())
    first = _summary(*_tuned(folder, ddp, 0.0))
    again = DistributedDataParallel(_net())
    second = _summary(*_tuned(folder, again, 0.0))
    fresh = apply_gradient_strategy(_net(seed=5), bank=folder)
    return {
        "first": first,
        "second": second,
        "sizes": [_sizes_in_use(model) for model in (ddp, again, fresh)],
        "weights": [parameter.double().sum().item() for parameter in ddp.parameters()],
    }


def tune_unsatisfied(folder: Path) -> dict[str, Any]:
    """Tune a model nothing is better for; look whether that is remembered."""
    ddp = DistributedDataParallel(_net(16))
    first = _summary(*_tuned(folder, ddp, 1e9))
    second = _summary(*_tuned(folder, ddp, 1e9))
    apply_gradient_strategy(ddp, bank=folder)  # no warning: the default was found to be best
    return {"first": first, "second": second, "sizes": _sizes_in_use(ddp)}


def tune_repeatedly(folder: Path) -> dict[str, Any]:
    """REPEAT_TUNE: better replaces the record, not better keeps it."""
    ddp = DistributedDataParallel(_net(12))
    repeated = GdatSettings(
        loops=4, grid_mib=(), repeat_tune=True, screen=QUICK.screen, final=QUICK.final
    )
    done = [_summary(*_tuned(folder, ddp, least, settings=repeated)) for least in (0.0, 0.0, 1e9)]
    return {"done": done}


def _store(folder: Path, ddp: Any, world: int, sizes: tuple[int, ...] | None = None) -> None:
    """Put a record into the bank which a cluster of another size would have made."""
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
        cost=AllReduceCost(latency_us=5.0, us_per_byte=1e-3),
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
    ddp = DistributedDataParallel(_net(10))
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
        "told": told.steps,
    }


def foreign_record(folder: Path) -> dict[str, Any]:
    """Find a record of the same hash with other gradients: it is not used."""
    ddp = DistributedDataParallel(_net(8))
    _store(folder, ddp, 2, sizes=tuple(range(100, 112)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_gradient_strategy(ddp, bank=folder)
    done, told = _tuned(folder, ddp, 0.0)
    return {"warnings": [str(warning.message) for warning in caught], **_summary(done, told)}


def readable_record(folder: Path) -> dict[str, Any]:
    """Use a record whose side-car is gone: sizes have to do."""
    ddp = DistributedDataParallel(_net(6))
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
    ddp = DistributedDataParallel(_net())
    training = DdpTraining(ddp, _stepper(ddp), Ranks(None, ddp.device, timeout_s=None))
    trace = training.record(5)
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
        "hooks_left": len(left) + len(ddp.module._forward_hooks),
        "samples": [tuple(sample) for sample in samples],
        "segments": [(segment.gradients, segment.bytes) for segment in timeline.segments],
        "times": [
            (segment.ready_us, segment.start_us, segment.end_us) for segment in timeline.segments
        ],
    }


# ---- failures ----


def _in_own_group() -> Any:
    """Return a model in a group of its own, which may break."""
    return DistributedDataParallel(_net(), process_group=dist.new_group())


def failing_step(folder: Path) -> dict[str, Any]:
    """Rank 1 raises in a step; every rank hears of it."""
    ddp = _in_own_group()
    run = _stepper(ddp)
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == 6 and dist.get_rank() == 1:
            raise ValueError("no more data")
        run()

    tune_gradients(ddp, step, bank=folder, output=folder, settings=QUICK, timeout_s=2)
    return {}


def hanging_step(folder: Path) -> dict[str, Any]:
    """Rank 1 stops answering until the time-out is over."""
    ddp = _in_own_group()
    run = _stepper(ddp)
    gave_up = folder / "rank_0_gave_up"
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == 6 and dist.get_rank() == 1:
            while not gave_up.exists():
                time.sleep(0.02)
        run()

    try:
        tune_gradients(ddp, step, bank=folder, output=folder, settings=QUICK, timeout_s=2)
    finally:
        gave_up.touch()
    return {}


def dying_step(folder: Path) -> dict[str, Any]:
    """Rank 1 is gone without a word."""
    ddp = DistributedDataParallel(_net())
    run = _stepper(ddp)

    def step() -> None:
        if dist.get_rank() == 1:
            os._exit(0)
        run()

    tune_gradients(ddp, step, bank=folder, output=folder, settings=QUICK, timeout_s=20)
    return {}


def missing_bank(folder: Path) -> dict[str, Any]:
    """The first rank cannot open the bank; nobody goes on without it."""
    ddp = DistributedDataParallel(_net())
    tune_gradients(ddp, _stepper(ddp), bank=folder / "nowhere", output=folder, settings=QUICK)
    return {}


def no_backward(folder: Path) -> dict[str, Any]:
    """A step that trains nothing."""
    ddp = DistributedDataParallel(_net())
    tune_gradients(ddp, lambda: None, bank=folder, output=folder, settings=QUICK)
    return {}


def time_out_restored(folder: Path) -> dict[str, Any]:
    """After tuning the group has the time-out it had before."""
    from aoe.torch.ddp.ranks import _timeout_of

    ddp = DistributedDataParallel(_net())
    before = _timeout_of(ddp.process_group, ddp.device)
    during = []
    run = _stepper(ddp)

    def step() -> None:
        during.append(_timeout_of(ddp.process_group, ddp.device))
        run()

    measuring.ACCEPT_STEP_SPEEDUP = 1e9
    settings = GdatSettings(loops=4, tuning_time_limit_s=0.0)
    tune_gradients(ddp, step, bank=folder, output=folder, settings=settings, timeout_s=17)
    after = _timeout_of(ddp.process_group, ddp.device)
    return {"before": str(before), "during": str(during[0]), "after": str(after)}


SAME: dict[str, dict[str, Any]] = {
    "plain": {"make": chain},
    "bucket_view": {"make": chain, "gradient_as_bucket_view": True},
    "bucket_view_kept": {"make": chain, "gradient_as_bucket_view": True, "keep_grads": True},
    "accumulate": {"make": chain, "accumulate": True},
    "accumulate_view": {"make": chain, "accumulate": True, "gradient_as_bucket_view": True},
    "unused": {"make": Branches, "find_unused_parameters": True},
    "unused_accumulate": {"make": Branches, "find_unused_parameters": True, "accumulate": True},
    "static": {"make": chain, "static_graph": True},
    "static_unused": {"make": OnceUnused, "static_graph": True},
    "static_view": {"make": chain, "static_graph": True, "gradient_as_bucket_view": True},
    "mixed": {"make": Mixed},
    "mixed_view": {"make": Mixed, "gradient_as_bucket_view": True},
    "mixed_static": {"make": Mixed, "static_graph": True},
    "sparse": {"make": Words},
    "autocast": {"make": Autocast},
    "hook": {"make": chain, "hook": True},
    "built_in_hook": {"make": chain, "built_in_hook": True},
    "measuring": {"make": chain, "lasting": False},
    "measuring_static": {"make": chain, "lasting": False, "static_graph": True},
    "older_torch": {"make": chain, "native": False},
    "older_torch_accumulate": {"make": chain, "native": False, "accumulate": True},
    "older_torch_static": {"make": OnceUnused, "native": False, "static_graph": True},
}
PLAIN: dict[str, Callable[[], dict[str, Any]]] = {"same_caps": same_caps, "recorded": recorded}
WITH_FOLDER: dict[str, Callable[[Path], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (
        tune_and_reuse,
        tune_unsatisfied,
        tune_repeatedly,
        other_cluster,
        foreign_record,
        readable_record,
        failing_step,
        hanging_step,
        dying_step,
        missing_bank,
        no_backward,
        time_out_restored,
    )
}


def _run(case: str, folder: Path) -> dict[str, Any]:
    if case in SAME:
        native = buckets.has_cap_per_bucket
        forget = buckets._FORGET_STEPS
        buckets._FORGET_STEPS = 2  # what happens rarely, happens often here
        try:
            return same_as_ddp(**SAME[case])
        finally:
            buckets.has_cap_per_bucket = native
            buckets._FORGET_STEPS = forget
    if case in PLAIN:
        return PLAIN[case]()
    own = folder / case
    own.mkdir(exist_ok=True)
    return WITH_FOLDER[case](own)


def main() -> None:
    """Run the cases; what one of them raises is its result."""
    folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for case in sys.argv[4:]:
        try:
            found[case] = _run(case, folder)
        except Exception as error:
            found[case] = {"error": type(error).__name__, "message": str(error)}
        (folder / f"found_{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
