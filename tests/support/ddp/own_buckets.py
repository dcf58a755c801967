"""The buckets DDP uses by itself, as seen in its steps and as tuning takes them for the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation, from_bucket_caps
from aoe.tasks.gradients.candidates import gdat_candidates
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining

_STEPS = 5


class Layers(nn.Module):  # type: ignore[misc]
    """Linear layers of 1 MiB each, run in another order than they are registered in.

    Args:
        order: Layers as they run; one that is not among them gets no gradient.
        doubles: Layers of float64, at half the width.
        count: Layers registered.
    """

    def __init__(
        self, order: tuple[int, ...], *, doubles: tuple[int, ...] = (), count: int = 4
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(count))
        for place in doubles:
            self.layers[place].double()
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers."""
        for place in self.order:
            layer = self.layers[place]
            x = layer(x.to(layer.weight.dtype))
        return x


MODULES: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "plain": (lambda: Layers((0, 1, 2, 3)), {}),
    "unused": (lambda: Layers((0, 1, 2, 3)), {"find_unused_parameters": True}),
    "unused layer": (lambda: Layers((0, 2, 3)), {"find_unused_parameters": True}),
    "static, unused layer": (lambda: Layers((0, 1, 3)), {"static_graph": True}),
    "shuffled": (lambda: Layers((2, 0, 3, 1)), {"find_unused_parameters": True}),
    "mixed": (lambda: Layers((0, 1, 2, 3, 4, 5), doubles=(2, 4), count=6), {"bucket_cap_mb": 2}),
}


def own_buckets() -> dict[str, Any]:
    """Return for each module what its DDP does, and what tuning takes for its default."""
    return {name: _own(make, options) for name, (make, options) in MODULES.items()}


def _own(make: Callable[[], nn.Module], options: dict[str, Any]) -> dict[str, Any]:
    ddp = DistributedDataParallel(make(), **options)
    training = DdpTraining(ddp, lambda: _step(ddp), Ranks(None, ddp.device, timeout_s=None))
    training.look_at_default()
    looked_at = training.steps
    trace = training.record(4)
    default = training.default
    is_default = training.is_default(default)
    filled = from_bucket_caps(trace.sizes_bytes)
    # which candidates are the first by promise depends on times, and those measured here are noise
    even = replace(trace, ready_us=tuple(50.0 * place for place in range(1, len(trace) + 1)))
    candidates = gdat_candidates(
        even,
        AllReduceCost(latency_us=1.0, us_per_byte=1e-3),
        default if is_default else None,
        stored=None,
        grid_mib=(1.0, 25.0),
    )
    training.apply(Segmentation(ends=(len(trace),)))
    training.apply(None)
    again = DdpTraining(ddp, lambda: _step(ddp), Ranks(None, ddp.device, timeout_s=None))
    again.look_at_default()
    return {
        "real": _seen(DistributedDataParallel(make(), **options)),
        "own": training.buckets(None),
        "own again": again.buckets(None),
        "looked at": looked_at,
        "order": [int(name.split(".")[1]) for name in trace.names],
        "ends": default.ends,
        "is default": is_default,
        "by readiness is tried": any(one.segmentation == filled for one in candidates),
    }


def _seen(ddp: Any) -> list[list[int]]:
    """Return the buckets of the last of some steps, as a communication hook sees them."""
    places = {id(parameter): place for place, parameter in enumerate(ddp.module.parameters())}
    seen: list[list[int]] = []

    def hook(group: Any, bucket: Any) -> Any:
        seen.append([places[id(parameter)] for parameter in bucket.parameters()])
        return allreduce_hook(group, bucket)

    hook.__annotations__.clear()  # DDP takes none that are texts
    ddp.register_comm_hook(dist.group.WORLD, hook)
    for _ in range(_STEPS):
        seen.clear()
        _step(ddp)
    return seen


def _step(ddp: Any) -> None:
    ddp.zero_grad()
    ddp(torch.ones(2, 512)).sum().backward()
