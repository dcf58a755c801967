"""Networks over tokens: BERT, sentence embedding, GPT-2 with and without cache, LSTM tagger."""

from __future__ import annotations

import torch
from networks.layers import FeedForward, SplitAttention
from torch import Tensor, nn
from torch.nn import functional

_FAR = -1e4


class PostNormLayer(nn.Module):
    """BERT's layer: it normalizes behind each sum."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SplitAttention(width, heads)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.feed = FeedForward(width, 4 * width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed(x))


class Bert(nn.Module):
    """BERT-base's layers; the result is the last hidden state."""

    def __init__(
        self, depth: int, width: int = 768, tokens: int = 30522, head_width: int = 64
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        heads = width // head_width
        self.layers = nn.ModuleList(PostNormLayer(width, heads) for _ in range(depth))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(n, length) tokens and mask of 0 and 1 to (n, length, width)."""
        places = torch.arange(tokens.shape[1]).unsqueeze(0)
        segments = torch.zeros_like(tokens)
        x = self.norm(self.words(tokens) + self.positions(places) + self.segments(segments))
        added = (1 - mask[:, None, None, :].to(x.dtype)) * _FAR
        for layer in self.layers:
            x = layer(x, added)
        return x


class SentenceEmbedding(nn.Module):
    """The mean of the last hidden state over the tokens of a text, of length 1."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(n, length) tokens and mask of 0 and 1 to (n, width)."""
        hidden = self.encoder(tokens, mask)
        counted = mask[:, :, None].to(hidden.dtype)
        mean = (hidden * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
        return functional.normalize(mean, dim=-1)


class CausalAttention(nn.Module):
    """Attention to what came before, with or without keys and values kept from earlier calls."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """(n, length, width) and (2, n, heads, kept, head width); the second grows by `length`."""
        n, length, width = x.shape
        parts = self.joint(x).split(width, -1)
        query, key, value = (
            part.reshape(n, length, self.heads, -1).transpose(1, 2) for part in parts
        )
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        kept = torch.stack([key, value])
        return self.out(mixed.transpose(1, 2).reshape(n, length, width)), kept


class CausalLayer(nn.Module):
    """GPT-2's layer: it normalizes in front; GELU by tanh."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.feed = FeedForward(width, 4 * width, lambda: nn.GELU(approximate="tanh"))

    def forward(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `CausalAttention`."""
        mixed, kept = self.attention(self.norm1(x), past)
        x = x + mixed
        return x + self.feed(self.norm2(x)), kept


class Gpt2(nn.Module):
    """GPT-2 small; the matrix of the last product is that of the embedding."""

    def __init__(self, depth: int = 12, width: int = 768, tokens: int = 50257) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(1024, width)
        self.layers = nn.ModuleList(CausalLayer(width, width // 64) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, *pasts: Tensor) -> tuple[Tensor, ...]:
        """(n, length) tokens, and what each layer kept, to scores and what each layer keeps.

        Without `pasts` only the scores are returned.
        """
        start = pasts[0].shape[3] if pasts else 0
        places = torch.arange(start, start + tokens.shape[1]).unsqueeze(0)
        x = self.words(tokens) + self.positions(places)
        kept = []
        for index, layer in enumerate(self.layers):
            x, keys_values = layer(x, pasts[index] if pasts else None)
            kept.append(keys_values)
        scores = functional.linear(self.norm(x), self.words.weight)
        return (scores, *kept) if pasts else (scores,)


class LstmTagger(nn.Module):
    """Embedding, two bidirectional LSTM layers, a score for every tag of every token."""

    def __init__(self, tokens: int = 20000, embedded: int = 100, hidden: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens, embedded)
        self.lstm = nn.LSTM(embedded, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, 17)

    def forward(self, tokens: Tensor) -> Tensor:
        """(n, length) to (n, length, 17)."""
        return self.head(self.lstm(self.words(tokens))[0])


def bert4() -> nn.Module:
    """Four layers of BERT-base."""
    return Bert(4)


def bert6() -> nn.Module:
    """Six layers of BERT-base."""
    return Bert(6)


def minilm6() -> nn.Module:
    """MiniLM of six layers with the pooling of Sentence Transformers."""
    return SentenceEmbedding(Bert(6, width=384, head_width=32))


def gpt2() -> nn.Module:
    """GPT-2 small."""
    return Gpt2()


def lstm_tagger() -> nn.Module:
    """A tagger of parts of speech."""
    return LstmTagger()
