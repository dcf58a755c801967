"""Decoders of language models with rotary positions, grouped heads and gated units."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_THETA = 10000.0


class RootMeanSquare(nn.Module):
    """Normalization of rows by the root of their mean square.

    Source: B. Zhang and R. Sennrich, "Root mean square layer normalization", 2019.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the two halves of each head by the angles of its position.

    Source: J. Su et al., "RoFormer", 2021; halves as in LLaMA's published code for PyTorch.
    """
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine


class GroupedAttention(nn.Module):
    """Attention whose queries share the keys and values of their group.

    Source: J. Ainslie et al., "GQA", 2023.
    """

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size, self.heads, self.groups = width // heads, heads, groups
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(n, length, width), and keys and values kept, to the result, keys and values."""
        n, length, width = x.shape
        query = self._heads(self.query(x), self.heads)
        key, value = (self._heads(made(x), self.groups) for made in (self.key, self.value))
        query, key = rotated(query, *angles), rotated(key, *angles)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        wide = (self._repeated(kept) for kept in (key, value))
        mixed = functional.scaled_dot_product_attention(query, *wide, is_causal=past is None)
        return self.out(mixed.transpose(1, 2).reshape(n, length, width)), key, value

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:2], heads, self.size).transpose(1, 2)

    def _repeated(self, x: Tensor) -> Tensor:
        n, groups, length, size = x.shape
        times = self.heads // self.groups
        wide = x[:, :, None].expand(n, groups, times, length, size)
        return wide.reshape(n, self.heads, length, size)


class GatedUnit(nn.Module):
    """SwiGLU: a product times the SiLU of another one, and a product behind.

    Source: N. Shazeer, "GLU variants improve Transformer", 2020.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    """LLaMA's layer."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RootMeanSquare(width), RootMeanSquare(width)
        self.attention = GroupedAttention(width, heads, groups)
        self.feed = GatedUnit(width, hidden)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `GroupedAttention`."""
        mixed, key, value = self.attention(self.norm1(x), angles, past)
        x = x + mixed
        return x + self.feed(self.norm2(x)), key, value


class Llama(nn.Module):
    """A small LLaMA: scores of the next token, and keys and values to keep."""

    def __init__(
        self,
        depth: int = 6,
        width: int = 512,
        heads: int = 8,
        groups: int = 2,
        hidden: int = 1408,
        tokens: int = 16000,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens, width)
        layers = (DecoderLayer(width, heads, groups, hidden) for _ in range(depth))
        self.layers = nn.ModuleList(layers)
        self.norm = RootMeanSquare(width)
        self.head = nn.Linear(width, tokens, bias=False)
        size = width // heads
        rates = _THETA ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        self.register_buffer("rates", rates.float())

    def forward(self, tokens: Tensor, *pasts: Tensor) -> tuple[Tensor, ...]:
        """(n, length) tokens, and keys and values of each layer, to scores and what is kept.

        Without `pasts` only the scores are returned.
        """
        start = pasts[0].shape[2] if pasts else 0
        places = torch.arange(start, start + tokens.shape[1], dtype=self.rates.dtype)
        angles = (places[:, None] * self.rates[None, :]).repeat(1, 2)
        turns = angles.cos(), angles.sin()
        x, kept = self.words(tokens), []
        for index, layer in enumerate(self.layers):
            past = (pasts[2 * index], pasts[2 * index + 1]) if pasts else None
            x, key, value = layer(x, turns, past)
            kept += [key, value]
        scores = self.head(self.norm(x))
        return (scores, *kept) if pasts else (scores,)


def llama() -> nn.Module:
    """Six layers of width 512, eight heads in two groups."""
    return Llama()
