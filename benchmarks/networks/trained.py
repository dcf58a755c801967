"""Networks as scripts train them: plain `torch.nn`, random weights, a loss, drawn batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A module with what a step of its training needs."""

    module: nn.Module
    draw: Callable[[], Batch]  # Draws a batch
    loss: Callable[[nn.Module, Batch], Tensor]  # Computes the loss of one


def classified(module: nn.Module, batch: Batch) -> Tensor:
    """Return the loss of a classifier: the last tensor of a batch has the labels."""
    scores = module(*batch[:-1])
    return F.cross_entropy(scores.flatten(0, -2), batch[-1].flatten())


def _images(rows: int, size: int, classes: int = 100) -> Callable[[], Batch]:
    return lambda: (torch.randn(rows, 3, size, size), torch.randint(0, classes, (rows,)))


def _tokens(rows: int, length: int, words: int) -> Callable[[], Batch]:
    return lambda: (
        torch.randint(0, words, (rows, length)),
        torch.randint(0, words, (rows, length)),
    )


# ---- images ----


class _Basic(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norms[1](self.two(F.relu(self.norms[0](self.one(x)))))
        return F.relu(inner + self.shortcut(x))


def resnet(width: int = 64, blocks: int = 2, rows: int = 4, size: int = 64) -> Training:
    """ResNet-18 as it is published, for `width` 64 and 2 blocks a stage."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)]
    layers += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage in range(4):
        for block in range(blocks):
            outputs = width << stage
            layers.append(_Basic(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 100)]
    return Training(module=nn.Sequential(*layers, *head), draw=_images(rows, size), loss=classified)


class _ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.narrow(F.gelu(self.wide(inner))) * self.scale
        return x + inner.permute(0, 3, 1, 2)


class _ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(
    widths: tuple[int, ...] = (96, 192, 384, 768),
    depths: tuple[int, ...] = (3, 3, 9, 3),
    rows: int = 2,
    size: int = 64,
) -> Training:
    """ConvNeXt-tiny."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        step = 2 if stage else 4
        if stage:
            layers.append(_ChannelNorm(inputs))
        layers.append(nn.Conv2d(inputs, width, step, step))
        layers += [_ConvNeXtBlock(width) for _ in range(depth)]
        inputs = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(inputs), nn.Linear(inputs, 100)]
    return Training(module=nn.Sequential(*layers, *head), draw=_images(rows, size), loss=classified)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(
            *parts.unbind(), is_causal=self.causal, dropout_p=dropout
        )
        out: Tensor = self.out(found.transpose(1, 2).reshape(rows, length, width))
        return out


class _TransformerBlock(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        is_norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, causal=causal, dropout=dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)
        self.is_norm_first, self.approximate = is_norm_first, "tanh" if causal else "none"

    def forward(self, x: Tensor) -> Tensor:
        if self.is_norm_first:
            x = x + self.drop(self.attention(self.norms[0](x)))
            return x + self.drop(self._inner(self.norms[1](x)))
        x = self.norms[0](x + self.drop(self.attention(x)))
        found: Tensor = self.norms[1](x + self.drop(self._inner(x)))
        return found

    def _inner(self, x: Tensor) -> Tensor:
        found: Tensor = self.narrow(F.gelu(self.wide(x), approximate=self.approximate))
        return found


class _ViT(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, patches: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(_TransformerBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.places
        found: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return found


def vit(width: int = 384, depth: int = 12, rows: int = 2, size: int = 64) -> Training:
    """ViT-S with patches of 8 x 8."""
    module = _ViT(width, depth, 6, (size // 8) ** 2)
    return Training(module=module, draw=_images(rows, size), loss=classified)


class _UNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.down = nn.ModuleList(
            _double(inputs, outputs) for inputs, outputs in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            _double(wide + narrow, narrow)
            for wide, narrow in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for block, other in zip(self.up, kept[-2::-1], strict=True):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), other], 1))
        found: Tensor = self.last(x).permute(0, 2, 3, 1)
        return found


def _double(inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for given in (inputs, outputs):
        norm = nn.GroupNorm(4, outputs)
        layers += [nn.Conv2d(given, outputs, 3, padding=1), norm, nn.SiLU()]
    return nn.Sequential(*layers)


def unet(width: int = 24, depth: int = 4, rows: int = 2, size: int = 64) -> Training:
    """U-Net with GroupNorm and SiLU, which labels pixels."""

    def draw() -> Batch:
        return torch.randn(rows, 3, size, size), torch.randint(0, 4, (rows, size, size))

    return Training(module=_UNet(width, depth), draw=draw, loss=classified)


class _MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across, self.along = _mlp(tokens, 2 * tokens), _mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norms[1](x))


def _mlp(width: int, inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class _Mixer(nn.Module):
    def __init__(self, width: int, depth: int, tokens: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(*(_MixerBlock(tokens, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        found: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return found


def mixer(width: int = 256, depth: int = 8, rows: int = 4, size: int = 64) -> Training:
    """MLP-Mixer."""
    module = _Mixer(width, depth, (size // 8) ** 2)
    return Training(module=module, draw=_images(rows, size), loss=classified)


# ---- language ----


class _Language(nn.Module):
    def __init__(self, words: int, width: int, depth: int, length: int, *, causal: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.first = nn.Identity() if causal else nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(
            *(
                _TransformerBlock(
                    width, width // 32, causal=causal, dropout=0.1, is_norm_first=causal
                )
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        found: Tensor = self.head(self.norm(self.blocks(self.drop(self.first(x)))))
        return found


def bert(
    words: int = 8192, width: int = 512, depth: int = 4, rows: int = 2, length: int = 128
) -> Training:
    """BERT with 4 layers and dropout, which guesses words."""
    module = _Language(words, width, depth, length, causal=False)
    return Training(module=module, draw=_tokens(rows, length, words), loss=classified)


def gpt2(
    words: int = 8192, width: int = 512, depth: int = 4, rows: int = 2, length: int = 128
) -> Training:
    """GPT-2 with 4 layers, dropout and causal attention."""
    module = _Language(words, width, depth, length, causal=True)
    return Training(module=module, draw=_tokens(rows, length, words), loss=classified)


class _Lstm(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.lstm(self.words(tokens))[0])
        return found


def lstm(words: int = 4000, width: int = 256, rows: int = 16, length: int = 32) -> Training:
    """Language model of two layers of LSTM."""
    return Training(module=_Lstm(words, width), draw=_tokens(rows, length, words), loss=classified)


# ---- tables and codes ----


class _Dlrm(nn.Module):
    def __init__(self, tables: int, entries: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(entries, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()
        )
        self.last = nn.Linear(128, 1)
        rows, columns = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense: Tensor, chosen: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        parts = [bottom, *(table(chosen[:, at]) for at, table in enumerate(self.tables))]
        stacked = torch.stack(parts, 1)
        pairs = (stacked @ stacked.transpose(1, 2))[:, self.rows, self.columns]
        found: Tensor = self.last(self.top(torch.cat([bottom, pairs], 1)))
        return found


def _guessed(module: nn.Module, batch: Batch) -> Tensor:
    return F.binary_cross_entropy_with_logits(module(*batch[:-1]), batch[-1])


def dlrm(tables: int = 8, entries: int = 20000, width: int = 32, rows: int = 128) -> Training:
    """DLRM: tables of embeddings, products of pairs, two perceptrons."""

    def draw() -> Batch:
        chosen = torch.randint(0, entries, (rows, tables))
        return torch.randn(rows, 13), chosen, torch.randint(0, 2, (rows, 1)).float()

    return Training(module=_Dlrm(tables, entries, width), draw=draw, loss=_guessed)


class _Vae(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(784, width)
        self.mean, self.log_variance = nn.Linear(width, 20), nn.Linear(width, 20)
        self.second, self.last = nn.Linear(20, width), nn.Linear(width, 784)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner = F.relu(self.first(x))
        mean, log_variance = self.mean(inner), self.log_variance(inner)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return torch.sigmoid(self.last(F.relu(self.second(code)))), mean, log_variance


def _evidence(module: nn.Module, batch: Batch) -> Tensor:
    made, mean, log_variance = module(*batch)
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (F.binary_cross_entropy(made, batch[0], reduction="sum") + divergence) / len(mean)


def vae(width: int = 400, rows: int = 128) -> Training:
    """Variational autoencoder of digits, as PyTorch's examples have it."""
    return Training(module=_Vae(width), draw=lambda: (torch.rand(rows, 784),), loss=_evidence)


TRAININGS: dict[str, tuple[str, Callable[..., Training]]] = {
    "resnet18": ("ResNet-18, 4 x 64 x 64", resnet),
    "convnext_tiny": ("ConvNeXt-tiny, 2 x 64 x 64", convnext),
    "vit_s": ("ViT-S, 2 x 65 tokens", vit),
    "bert4": ("BERT, 4 layers of 512, 2 x 128", bert),
    "gpt2_4": ("GPT-2, 4 layers of 512, 2 x 128", gpt2),
    "unet": ("U-Net, 2 x 64 x 64", unet),
    "lstm": ("LSTM, 2 layers of 256, 16 x 32", lstm),
    "dlrm": ("DLRM, 8 tables, 128 rows", dlrm),
    "mixer": ("MLP-Mixer, 8 layers of 256, 4 x 64 tokens", mixer),
    "vae": ("VAE, 128 x 784", vae),
}
"""By name: the title, and what makes it."""


def losses(
    training: Training,
    optimizer: Any,
    steps: int,
    *,
    module: nn.Module | None = None,
    on_step: Callable[[], object] = lambda: None,
) -> list[float]:
    """Train for some steps on four batches in turn; return the losses.

    Args:
        training: The network.
        optimizer: Of its parameters.
        steps: How many.
        module: What is called in the place of the network's module.
        on_step: Is called behind each step.
    """
    torch.manual_seed(1)
    batches = [training.draw() for _ in range(4)]
    torch.manual_seed(2)
    found = []
    for number in range(steps):
        optimizer.zero_grad()
        loss = training.loss(training.module if module is None else module, batches[number % 4])
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
        on_step()
    return found
