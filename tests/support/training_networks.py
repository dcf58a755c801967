"""Twenty small networks of `torch.nn` for trainings: those of the benchmark, and ten more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from networks.trained import (
    Batch,
    Training,
    bert,
    classified,
    convnext,
    dlrm,
    gpt2,
    losses,
    lstm,
    mixer,
    resnet,
    unet,
    vae,
    vit,
)
from torch import Tensor, nn

from aoe.errors import FallbackWarning
from aoe.torch.fused_optimizers import FusedOptimizer
from aoe.torch.scripts.compiling import ScriptTraining
from aoe.torch.scripts.regions import TunedGraph

_ROWS, _WIDTH = 24, 48


def _rows(module: nn.Module, *shape: int) -> Training:
    def draw() -> Batch:
        return torch.randn(_ROWS, *shape), torch.randint(0, 10, (_ROWS,))

    return Training(module=module, draw=draw, loss=classified)


def _perceptron(norm: type[nn.Module], activation: type[nn.Module]) -> Training:
    layers: list[nn.Module] = []
    for given, made in ((37, 96), (96, 96)):
        layers += [nn.Linear(given, made), norm(made), activation(), nn.Dropout(0.1)]
    return _rows(nn.Sequential(*layers, nn.Linear(96, 10)), 37)


class _Gated(nn.Module):
    """A block of LLaMA: RMSNorm, and a product of two branches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.wide = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        return x + self.narrow(F.silu(self.gate(inner)) * self.wide(inner))


class _LastStep(nn.Module):
    """A recurrent network whose last state is classified."""

    def __init__(self, recurrent: nn.Module, width: int) -> None:
        super().__init__()
        self.recurrent, self.head = recurrent, nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.recurrent(x)[0][:, -1])
        return found


class _Pooled(nn.Module):
    """An encoder of rows whose mean is classified."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.encoder(x).mean(1))
        return found


class _Dilated(nn.Module):
    """A layer of WaveNet: a dilated convolution, and a gate."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.wide(x).chunk(2, 1)
        return x + torch.tanh(value) * torch.sigmoid(gate)


class _Excited(nn.Module):
    """A depthwise block with squeeze-excite."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, 2 * width, 1)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.norm, self.narrow = nn.BatchNorm2d(2 * width), nn.Conv2d(2 * width, width, 1)
        self.less, self.more = nn.Linear(2 * width, width // 2), nn.Linear(width // 2, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.hardswish(self.norm(self.depthwise(F.hardswish(self.wide(x)))))
        share = F.hardsigmoid(self.more(F.relu(self.less(inner.mean((2, 3))))))
        return x + self.narrow(inner * share[:, :, None, None])


class _Dense(nn.Module):
    """A layer of DenseNet."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.leaky_relu(self.norm(x), 0.1))], 1)


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def _wave() -> Training:
    layers = [nn.Conv1d(5, 16, 1), *(_Dilated(16, 1 << at) for at in range(3))]
    return _rows(
        nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 10)), 5, 65
    )


def _excited() -> Training:
    layers = [nn.Conv2d(3, 16, 3, 2, 1), *(_Excited(16) for _ in range(2))]
    return _rows(nn.Sequential(*layers, *_head(16)), 3, 17, 15)


def _dense() -> Training:
    layers = [nn.Conv2d(3, 8, 3, 1, 1), *(_Dense(8 + 4 * at, 4) for at in range(3))]
    return _rows(nn.Sequential(*layers, *_head(20)), 3, 13, 11)


def _encoder() -> Training:
    layer = nn.TransformerEncoderLayer(_WIDTH, 4, 96, batch_first=True, activation="gelu")
    return _rows(_Pooled(nn.TransformerEncoder(layer, 2), _WIDTH), 17, _WIDTH)


def _gated() -> Training:
    blocks = nn.Sequential(_Gated(_WIDTH), _Gated(_WIDTH))
    return _rows(_Pooled(blocks, _WIDTH), 9, _WIDTH)


def _autoencoder() -> Training:
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 12, 3, 2, 1), nn.Softplus()]
    layers += [nn.ConvTranspose2d(12, 8, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(8, 3, 4, 2, 1)]

    def loss(module: Any, batch: Batch) -> Tensor:
        return F.smooth_l1_loss(module(batch[0]).tanh(), batch[0])

    return Training(
        module=nn.Sequential(*layers), draw=lambda: (torch.randn(6, 3, 32, 32),), loss=loss
    )


NETWORKS: dict[str, Callable[[], Training]] = {
    "perceptron": partial(_perceptron, nn.LayerNorm, nn.GELU),
    "gated": lambda: _rows(
        _Pooled(nn.Sequential(_Gated(_WIDTH), _Gated(_WIDTH)), _WIDTH), 9, _WIDTH
    ),
    "resnet": partial(resnet, 8, 1, 4, 32),
    "convnext": partial(convnext, (12, 24), (1, 1), 2, 32),
    "vit": partial(vit, 48, 2, 4, 32),
    "bert": partial(bert, 120, 64, 2, 4, 33),
    "gpt2": partial(gpt2, 120, 64, 2, 4, 33),
    "unet": partial(unet, 8, 2, 2, 32),
    "lstm": partial(lstm, 120, 32, 6, 9),
    "dlrm": partial(dlrm, 4, 100, 16, 64),
    "mixer": partial(mixer, 48, 2, 4, 32),
    "vae": partial(vae, 96, 48),
    "batch_norms": partial(_perceptron, nn.BatchNorm1d, nn.Mish),
    "gru": lambda: _rows(_LastStep(nn.GRU(_WIDTH, 32, batch_first=True), 32), 7, _WIDTH),
    "encoder": _encoder,
    "wave": _wave,
    "excited": _excited,
    "dense": _dense,
    "autoencoder": _autoencoder,
    "rectified": partial(_perceptron, nn.LayerNorm, nn.SiLU),
}


class _Always(TunedGraph):
    """Uses every kernel that is right, without a clock."""

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        return True

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        self.is_used = True
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A training beside eager's."""

    eager: list[float]  # Losses
    tuned: list[float]  # Losses as a script has them with kernels and fused optimizers
    graphs: int  # Training graphs
    optimizers: tuple[FusedOptimizer, ...]


def train_beside_eager(name: str, steps: int) -> Trained:
    """Train a network for some steps, eager and as `AOE_MODE=2` does with every right kernel."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.compiler.reset()
    eager = _losses(name, steps)
    watching = ScriptTraining({}, make_graph=_Always)
    dynamo = import_module("torch._dynamo.config")
    with warnings.catch_warnings(), dynamo.patch(suppress_errors=False):
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")
        watching.start()
        tuned = _losses(name, steps)
        watching.close()
    torch.compiler.reset()
    torch.set_num_threads(threads)
    return Trained(
        eager=eager,
        tuned=tuned,
        graphs=len(watching.graphs),
        optimizers=tuple(watching.optimizers.found),
    )


def _losses(name: str, steps: int) -> list[float]:
    torch.manual_seed(0)
    training = NETWORKS[name]()
    optimizer = torch.optim.AdamW(training.module.parameters(), lr=1e-3)
    found: list[float] = losses(training, optimizer, steps)
    return found
