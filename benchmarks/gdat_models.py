"""Models whose gradients are spread as those of well-known networks, small enough for two cores.

Layers, their order and the shares of their sizes are those of the published architectures; widths
are divided, so the total is a few ten MB and a step takes a few hundred milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Bottleneck(nn.Module):
    """A residual block of ResNet-50. Source: arXiv 1512.03385, figure 5."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return torch.relu(self.body(value) + self.shortcut(value))


def resnet50(divisor: int) -> nn.Module:
    """Return ResNet-50 with widths divided: 161 gradients, most bytes ready first."""
    inputs = 64 // divisor
    layers: list[nn.Module] = [
        nn.Conv2d(3, inputs, 7, 2, 3, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    for stage, count in enumerate((3, 4, 6, 3)):
        width = (64 << stage) // divisor
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(Bottleneck(inputs, width, stride))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers)


class Bert(nn.Module):
    """An encoder of BERT's shape: a large embedding, whose gradient is the last one ready.

    Source: arXiv 1810.04805, BERT-base: 12 layers, 768 wide, 30522 words.
    """

    def __init__(self, divisor: int) -> None:
        super().__init__()
        width, layers = 768 // divisor, 12 // min(divisor, 2)
        self.words = nn.Embedding(30522 // divisor, width)
        layer = nn.TransformerEncoderLayer(
            width, 12 // divisor, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return two scores for each sequence."""
        return self.head(self.encoder(self.words(tokens))[:, 0])


def mlp(divisor: int) -> nn.Module:
    """Return 24 layers of 400 x 400, widths divided: 15 MB in equal parts."""
    width = 400 // divisor
    layers = [layer for _ in range(24) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers)


def make_step(ddp: Any, name: str) -> Callable[[], None]:
    """Return a training step on fixed random data: forward, backward, an SGD update."""
    _, divisor, batch = MODELS[name]
    if name == "bert":
        inputs = torch.randint(0, 1000, (batch, 64))
    elif name == "mlp":
        inputs = torch.randn(batch, 400 // divisor)
    else:
        inputs = torch.randn(batch, 3, 64, 64)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        ddp(inputs).square().mean().backward()
        optimizer.step()

    return step


MODELS: dict[str, tuple[Callable[[int], nn.Module], int, int]] = {
    # name: how it is made, divisor of its widths, batch
    "resnet50": (resnet50, 2, 4),
    "bert": (Bert, 3, 4),
    "mlp": (mlp, 1, 128),
}
