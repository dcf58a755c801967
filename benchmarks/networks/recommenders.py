"""Recommenders: tables of embeddings, and small products of what is read from them."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn


class Dlrm(nn.Module):
    """Features through a product of each pair of embeddings to one probability.

    Source: M. Naumov et al., "Deep learning recommendation model", 2019.
    """

    def __init__(
        self,
        tables: int = 26,
        rows: int = 10000,
        width: int = 64,
        dense: int = 13,
        bottom: tuple[int, ...] = (512, 256),
        top: tuple[int, ...] = (1024, 512, 256),
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = _perceptron((dense, *bottom, width))
        count = tables + 1
        self.top = _perceptron((width + count * (count - 1) // 2, *top))
        self.last = nn.Linear(top[-1], 1)
        self.register_buffer("lower", torch.tril_indices(count, count, -1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """(n, features) and (n, tables) numbers of rows to (n, 1)."""
        x = self.bottom(dense)
        read = [table(sparse[:, at]) for at, table in enumerate(self.tables)]
        together = torch.stack([x, *read], 1)
        products = torch.bmm(together, together.transpose(1, 2))
        pairs = products[:, self.lower[0], self.lower[1]]
        return torch.sigmoid(self.last(self.top(torch.cat([x, pairs], 1))))


def _perceptron(widths: tuple[int, ...]) -> nn.Sequential:
    layers = [
        layer
        for read, made in itertools.pairwise(widths)
        for layer in (nn.Linear(read, made), nn.ReLU())
    ]
    return nn.Sequential(*layers)


def dlrm() -> nn.Module:
    """26 tables of 10,000 rows and 64 columns."""
    return Dlrm()
