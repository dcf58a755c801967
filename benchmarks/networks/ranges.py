"""The ranges of shapes of networks, where they are measured, and the calls a service gets.

Source of the calls of `minilm6`: shares of search queries by their words, of about 40 million
referrals in October 2009 (https://eightfoldlogic.com/blog/2009/11/, "How Long is Normal: Data Shows
Normal Length of Search Query"). Assumed: a word is one token, with two more around a query. Queries
of nine words or more, 1.5 %, are left out. Calls of images are assumed throughout: a usual size, a
second one and exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from networks.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The range of a network, and where it is measured."""

    # Least and largest extent of each open dimension, by its name.
    ends: Mapping[str, tuple[int, int]]
    # Names of the open dimensions of an input by their axes; by default those of `ends` in their
    # order, from the first axis on. What begins like a key counts as it.
    inputs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    fixed: tuple[tuple[int, ...], ...]  # Extents for which the engine tunes a model of its own, too
    unseen: tuple[tuple[int, ...], ...]  # Measured besides; primes and neighbours of powers of two
    # Calls a service gets by their extents, which the run is told as `--shapes_from`; without any
    # it is told the range alone.
    calls: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    # What all extents are multiples of: networks that halve images and join them again take no
    # others.
    unit: int = 1
    limit_s: float = 150.0  # Seconds in which the whole range is tuned and judged on two cores

    @property
    def measured(self) -> tuple[tuple[int, ...], ...]:
        """All extents that are measured, each once, the smallest first."""
        return tuple(sorted({*self.fixed, *self.unseen, *self.calls}))

    def open_axes(self, name: str) -> Mapping[int, str]:
        """Return the names of the open dimensions of an input, by axis."""
        named = (axes for prefix, axes in self.inputs.items() if name.startswith(prefix))
        return next(named, dict(enumerate(self.ends)))

    def at(self, network: Network, extents: Sequence[int]) -> Network:
        """Return the network in a shape of the range, extents in the order of `ends`."""
        known = dict(zip(self.ends, extents, strict=True))
        inputs = []
        for one in network.inputs:
            axes = self.open_axes(one.name)
            shape = (known[axes[at]] if at in axes else e for at, e in enumerate(one.shape))
            inputs.append(replace(one, shape=tuple(shape)))
        return replace(network, inputs=tuple(inputs))

    def option(self, network: Network) -> str:
        """Return the range as `--input_shape` has it."""
        texts = []
        for one in network.inputs:
            axes = self.open_axes(one.name)
            extents = [
                "{}~{}".format(*self.ends[axes[at]]) if at in axes else str(extent)
                for at, extent in enumerate(one.shape)
            ]
            texts.append(f"{one.name}:{','.join(extents)}")
        return ";".join(texts)

    def option_at(self, network: Network, extents: Sequence[int]) -> str:
        """Return one shape of the range as `--input_shape` has it."""
        return replace(self, ends={}, inputs={}).option(self.at(network, extents))

    def log(self, network: Network) -> str:
        """Return the calls as `--shapes_from` has them, one shape a line."""
        lines = (
            f"{count},{self.option_at(network, extents)}\n" for extents, count in self.calls.items()
        )
        return "count,shapes\n" + "".join(lines)


_QUERIES = {1: 1108, 2: 2456, 3: 2577, 4: 1768, 5: 1003, 6: 536, 7: 265, 8: 136}
"""Search queries in 10,000 by their words; see the source above."""
_TEXTS: Mapping[str, tuple[int, int]] = {"batch": (1, 4), "length": (1, 128)}
_IMAGES = {"image": {2: "height", 3: "width"}}
RANGES = {
    "bert6": Range(
        ends=_TEXTS, fixed=((1, 16), (1, 128)), unseen=((1, 31), (3, 65)), limit_s=240.0
    ),
    # lengths besides: the middles of the fifths of the sentences of docs/, in words and signs
    "minilm6": Range(
        ends=_TEXTS,
        fixed=((1, 8), (1, 39)),
        unseen=((1, 12), (1, 17), (1, 24)),
        calls={(1, words + 2): count for words, count in _QUERIES.items()},
    ),
    # at 150 s there was no time left to judge 4 texts of 128 tokens
    "gpt2": Range(ends=_TEXTS, fixed=((1, 16), (1, 128)), unseen=((1, 1), (1, 61)), limit_s=300.0),
    "gpt2_cached": Range(
        ends={"kept": (1, 512)},
        inputs={"tokens": {}, "past": {3: "kept"}},
        fixed=((63,), (255,)),
        unseen=((17,), (131,)),
    ),
    "whisper_tiny_encoder": Range(
        ends={"frames": (100, 3000)},
        inputs={"mel": {2: "frames"}},
        fixed=((500,), (3000,)),
        unseen=((211,), (1000,)),
    ),
    "whisper_tiny_decoder": Range(
        ends={"length": (1, 64), "frames": (50, 1500)},
        inputs={"tokens": {1: "length"}, "frames": {1: "frames"}},
        fixed=((4, 250), (32, 1500)),
        unseen=((1, 107), (17, 500)),
    ),
    "conformer_block": Range(
        ends={"batch": (1, 2), "length": (1, 200)},
        fixed=((1, 50), (1, 200)),
        unseen=((1, 33), (2, 101)),
    ),
    "yolo_silu": Range(
        ends={"height": (320, 640), "width": (320, 640)},
        inputs=_IMAGES,
        fixed=((320, 320), (640, 640)),
        unseen=((352, 416), (640, 384)),
        calls={(640, 640): 700, (480, 640): 250, (320, 320): 50},
        unit=32,
        limit_s=300.0,
    ),
    "unet2d": Range(
        ends={"height": (128, 256), "width": (128, 256)},
        inputs=_IMAGES,
        fixed=((128, 128), (256, 256)),
        unseen=((144, 208), (240, 176)),
        calls={(256, 256): 800, (128, 128): 150, (192, 256): 50},
        unit=16,
    ),
    "resnet50": Range(
        ends={"height": (160, 320), "width": (160, 320)},
        inputs=_IMAGES,
        fixed=((160, 160), (224, 224)),
        unseen=((173, 251), (320, 256)),
    ),
}
