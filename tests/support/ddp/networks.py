"""Small networks that use every option of DistributedDataParallel, and a hook of a user."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

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
