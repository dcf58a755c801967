"""Sound: Whisper's two halves, a Conformer block, HiFi-GAN, Conv-TasNet, a keyword spotter."""

from __future__ import annotations

import math

import torch
from networks.layers import (
    ConvNorm,
    EncoderLayer,
    FeedForward,
    ImageClassifier,
    SplitAttention,
)
from torch import Tensor, nn
from torch.nn import functional


class WhisperEncoder(nn.Module):
    """Two convolutions over a mel spectrogram of at most 30 s, fixed positions, layers."""

    def __init__(self, width: int = 384, depth: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(80, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, 2, 1)
        self.register_buffer("positions", sinusoids(torch.arange(1500), width))
        self.layers = nn.Sequential(
            *(
                EncoderLayer(width, SplitAttention(width, heads, has_key_bias=False), 4 * width)
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, mel: Tensor) -> Tensor:
        """(n, 80, frames) to (n, ceil(frames / 2), width)."""
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(mel)))).transpose(1, 2)
        return self.norm(self.layers(x + self.positions[: x.shape[1]]))


class DecoderLayer(nn.Module):
    """Attention to what came before, attention to the sound, two matrix products."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.before = SplitAttention(width, heads, has_key_bias=False)
        self.sound = SplitAttention(width, heads, has_key_bias=False)
        self.feed = FeedForward(width, 4 * width)

    def forward(self, x: Tensor, mask: Tensor, frames: Tensor) -> Tensor:
        """(n, length, width), (length, length) and (n, frames, width) to the first one's shape."""
        x = x + self.before(self.norm1(x), mask)
        x = x + self.sound(self.norm2(x), source=frames)
        return x + self.feed(self.norm3(x))


class WhisperDecoder(nn.Module):
    """Tokens so far and what the encoder made of the sound to scores of the next token."""

    def __init__(
        self, width: int = 384, depth: int = 4, heads: int = 6, tokens: int = 51865
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(448, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, frames: Tensor) -> Tensor:
        """(n, length) and (n, frames, width) to (n, length, tokens)."""
        length = tokens.shape[1]
        x = self.words(tokens) + self.positions.weight[:length]
        mask = torch.full((length, length), -1e4, dtype=x.dtype).triu(1)
        for layer in self.layers:
            x = layer(x, mask, frames)
        return functional.linear(self.norm(x), self.words.weight)


class RelativeAttention(nn.Module):
    """Attention with relative positions: scores by content plus scores by distance.

    Source: Z. Dai et al., "Transformer-XL", 2019, appendix B, for the shift.
    """

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.position = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.content_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))
        self.position_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))
        self.longest = length
        distances = torch.arange(length - 1, -length, -1)
        self.register_buffer("distances", sinusoids(distances, width))

    def forward(self, x: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        n, length, width = x.shape
        query, key, value = (self._heads(layer(x)) for layer in (self.query, self.key, self.value))
        distances = self.distances[self.longest - length : self.longest + length - 1]
        apart = self._heads(self.position(distances).unsqueeze(0))
        content = (query + self.content_bias) @ key.transpose(-2, -1)
        position = (query + self.position_bias) @ apart.transpose(-2, -1)
        padded = functional.pad(position, (1, 0)).reshape(n, self.heads, 2 * length, length)
        shifted = padded[:, :, 1:].reshape(n, self.heads, length, 2 * length - 1)[..., :length]
        weights = functional.softmax((content + shifted) / math.sqrt(width // self.heads), -1)
        return self.out((weights @ value).transpose(1, 2).reshape(n, length, width))

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class ConformerConvolution(nn.Module):
    """1x1 with a gate, depthwise over time, BatchNorm, SiLU, 1x1."""

    def __init__(self, width: int, kernel: int = 31) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.enter = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm_inside = nn.BatchNorm1d(width)
        self.leave = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        gated = functional.glu(self.enter(self.norm(x).transpose(1, 2)), 1)
        inside = functional.silu(self.norm_inside(self.depthwise(gated)))
        return self.leave(inside).transpose(1, 2)


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward, LayerNorm."""

    def __init__(self, width: int = 256, heads: int = 4, length: int = 200) -> None:
        super().__init__()
        self.feed1, self.feed2 = _normed_feed(width), _normed_feed(width)
        self.norm = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, heads, length)
        self.convolution = ConformerConvolution(width)
        self.norm_out = nn.LayerNorm(width)

    def forward(self, frames: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        x = frames + 0.5 * self.feed1(frames)
        x = x + self.attention(self.norm(x))
        x = x + self.convolution(x)
        return self.norm_out(x + 0.5 * self.feed2(x))


class DilatedResidual(nn.Module):
    """HiFi-GAN's residual block: for each dilation two convolutions behind leaky Relu."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(width, width, kernel, padding=d * (kernel // 2), dilation=d)
            for d in (1, 3, 5)
        )
        self.plain = nn.ModuleList(
            _damped(nn.Conv1d(width, width, kernel, padding=kernel // 2)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, length) to the same."""
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            inside = dilated(functional.leaky_relu(x, 0.1))
            x = x + plain(functional.leaky_relu(inside, 0.1))
        return x


class HifiGan(nn.Module):
    """The generator V1: 256 samples for every frame of a mel spectrogram."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.enter = nn.Conv1d(80, width, 7, padding=3)
        self.up, self.mix = nn.ModuleList(), nn.ModuleList()
        for kernel, stride in ((16, 8), (16, 8), (4, 2), (4, 2)):
            padding = (kernel - stride) // 2
            self.up.append(nn.ConvTranspose1d(width, width // 2, kernel, stride, padding))
            width //= 2
            self.mix.append(nn.ModuleList(DilatedResidual(width, taps) for taps in (3, 7, 11)))
        self.leave = _damped(nn.Conv1d(width, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        """(n, 80, frames) to (n, 1, 256 frames)."""
        x = self.enter(mel)
        for up, blocks in zip(self.up, self.mix, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            first, second, third = (block(x) for block in blocks)
            x = (first + second + third) / 3
        return torch.tanh(self.leave(functional.leaky_relu(x)))


class SeparationBlock(nn.Module):
    """Conv-TasNet's block: 1x1, depthwise over time, and two 1x1 of what comes out."""

    def __init__(self, width: int, inside: int, dilation: int) -> None:
        super().__init__()
        self.enter = nn.Conv1d(width, inside, 1)
        self.act1, self.act2 = nn.PReLU(), nn.PReLU()
        self.norm1, self.norm2 = (nn.GroupNorm(1, inside, eps=1e-8) for _ in range(2))
        self.depthwise = nn.Conv1d(
            inside, inside, 3, padding=dilation, dilation=dilation, groups=inside
        )
        self.residual, self.skip = (_damped(nn.Conv1d(inside, width, 1)) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(n, width, frames) to two of the same: what to add to the input, and to the masks."""
        x = self.norm1(self.act1(self.enter(x)))
        x = self.norm2(self.act2(self.depthwise(x)))
        return self.residual(x), self.skip(x)


class ConvTasNet(nn.Module):
    """Splits a waveform by masks over a learned basis; global norms, non-causal."""

    def __init__(
        self, basis: int = 512, width: int = 128, inside: int = 512, speakers: int = 2
    ) -> None:
        super().__init__()
        self.speakers = speakers
        self.encoder = nn.Conv1d(1, basis, 16, stride=8, bias=False)
        self.norm = nn.GroupNorm(1, basis, eps=1e-8)
        self.enter = nn.Conv1d(basis, width, 1)
        self.blocks = nn.ModuleList(
            SeparationBlock(width, inside, 2**depth) for _ in range(3) for depth in range(8)
        )
        self.act = nn.PReLU()
        self.masks = nn.Conv1d(width, speakers * basis, 1)
        self.decoder = nn.ConvTranspose1d(basis, 1, 16, stride=8, bias=False)

    def forward(self, waveform: Tensor) -> Tensor:
        """(n, 1, samples) to (n, speakers, samples), samples a multiple of 8."""
        frames = self.encoder(waveform)
        x, skips = self.enter(self.norm(frames)), 0.0
        for block in self.blocks:
            residual, skip = block(x)
            x, skips = x + residual, skips + skip
        masks = torch.sigmoid(self.masks(self.act(skips)))
        masks = masks.reshape(-1, self.speakers, *frames.shape[1:])
        masked = (masks * frames.unsqueeze(1)).reshape(-1, *frames.shape[1:])
        return self.decoder(masked).reshape(-1, self.speakers, waveform.shape[2])


def sinusoids(places: Tensor, width: int) -> Tensor:
    """Return sines, then cosines, of places at frequencies from 1 to 1e-4: (places, width)."""
    rates = torch.exp(-math.log(1e4) / (width // 2 - 1) * torch.arange(width // 2))
    angles = places[:, None].to(torch.float32) * rates[None, :]
    return torch.cat([angles.sin(), angles.cos()], 1)


def whisper_tiny_encoder() -> nn.Module:
    """The encoder of Whisper-tiny."""
    return WhisperEncoder()


def whisper_tiny_decoder() -> nn.Module:
    """The decoder of Whisper-tiny, without kept keys and values."""
    return WhisperDecoder()


def conformer_block() -> nn.Module:
    """One block of Conformer-M's width over 200 frames."""
    return ConformerBlock()


def hifigan() -> nn.Module:
    """The vocoder, 32 frames at a time."""
    return HifiGan()


def conv_tasnet() -> nn.Module:
    """The best of the publication's sizes: L 16, N 512, B 128, H 512, P 3, X 8, R 3."""
    return ConvTasNet()


def ds_cnn() -> nn.Module:
    """DS-CNN of the small size: which of 12 words is in a second of sound."""
    first = nn.Conv2d(1, 64, (10, 4), stride=2, padding=(5, 1), bias=False)
    layers: list[nn.Module] = [nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU())]
    for _ in range(4):
        layers += [ConvNorm(64, 64, 3, groups=64), ConvNorm(64, 64)]
    return ImageClassifier(nn.Sequential(*layers), 64, classes=12)


def _damped(layer: nn.Conv1d) -> nn.Conv1d:
    """Return a layer with small weights: nothing here normalizes sums, and tanh saturates."""
    layer.gain = 0.3
    return layer


def _normed_feed(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)
    )
