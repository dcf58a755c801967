"""Recordings made by an analytic model of a tiled kernel, for tests of searches.

The model is not meant to predict a machine; it has what makes real spaces hard: a cliff per
cache level, knobs that only help together, limits on their combination, candidates that fail,
and a ruggedness no smooth surrogate can learn.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from aoe.measurement import Outcome
from aoe.schedule import Choice, Configuration, Knob, Space
from support.contracts.replay import Recording

RUGGEDNESS = 0.04
"""Standard deviation of the log time that depends on nothing but the configuration itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """A kernel over rows of a matrix with one intermediate stage, and the machine it runs on."""

    rows: int  # Outer extent
    columns: int  # Inner extent
    flops: int  # Operations for each element
    bytes_moved: int  # Bytes for each element of a tile
    lanes: int  # Elements of a native vector
    latency: int  # Independent operations needed to fill the pipeline
    registers: int  # Vector registers
    l1_bytes: int  # First-level cache
    l2_bytes: int  # Second-level cache
    threads: int  # Cores
    spawn_us: float  # Cost of starting a parallel task
    seed: int  # Decides on the ruggedness

    @classmethod
    def drawn(cls, seed: int) -> KernelModel:
        """Return a model with parameters from the range of real ones."""
        rng = random.Random(seed)
        return cls(
            rows=rng.choice((96, 256, 784, 1536)),
            columns=rng.choice((256, 512, 1000, 3136)),
            flops=rng.choice((4, 16, 64)),
            bytes_moved=rng.choice((8, 12, 24)),
            lanes=rng.choice((4, 8, 16)),
            latency=rng.choice((4, 8)),
            registers=rng.choice((16, 32)),
            l1_bytes=rng.choice((32, 48)) * 1024,
            l2_bytes=rng.choice((256, 1024)) * 1024,
            threads=rng.choice((2, 4, 16)),
            spawn_us=rng.choice((0.5, 2.0)),
            seed=seed,
        )

    def latency_us(self, values: Mapping[str, Choice]) -> float:
        """Return the modelled time of a configuration."""
        tile_x, tile_y = int(values["tile_x"]), int(values["tile_y"])
        vector, unroll = int(values["vector"]), int(values["unroll"])
        elements = self.rows * self.columns
        # Vectors narrower than native waste lanes, wider ones are split and fill the pipeline.
        native = max(1, vector // self.lanes)
        chains = native * unroll
        used_lanes = min(vector, self.lanes)
        spilled = max(0, 2 * chains - self.registers) / self.registers
        cycles = self.flops / used_lanes * max(1.0, self.latency / chains) * (1 + 2 * spilled)
        # A tile that leaves a cache pays for each element; recomputing avoids storing the stage.
        recompute = values["store"] == "inline"
        footprint = tile_x * tile_y * self.bytes_moved * (1 if recompute else 2)
        cycles *= 1.35 if recompute else 1.0
        bytes_cycle = 48 if footprint <= self.l1_bytes else 20 if footprint <= self.l2_bytes else 6
        strided = values["order"] == "yx" and tile_y > 4
        cycles += self.bytes_moved / bytes_cycle * (2.5 if strided else 1.0)
        # Loop overhead per tile row and the part of the last tile that is computed in vain.
        cycles += 12 / (vector * unroll) + 40 / tile_x + 150 / (tile_x * tile_y)
        ragged = _padded(self.columns, tile_x) * _padded(self.rows, tile_y)
        tasks = math.ceil(self.rows / (tile_y * int(values["task"])))
        waves = math.ceil(tasks / self.threads)
        serial_us = elements * cycles * ragged / 3000
        return (serial_us / tasks + self.spawn_us) * waves * self._ruggedness(values)

    def failure(self, values: Mapping[str, Choice]) -> Outcome | None:
        """Return the failure of a configuration that no constraint keeps out, None if it works."""
        if int(values["vector"]) * int(values["unroll"]) >= 16 * self.lanes:
            return Outcome.COMPILE
        if values["store"] == "stack" and int(values["tile_x"]) * int(values["tile_y"]) >= 16_384:
            return Outcome.RUNTIME
        return None

    def space(self, *, is_small: bool) -> Space:
        """Return the space, about 1,300 configurations if small, else about 15,000."""
        few = is_small
        return Space(
            knobs=(
                Knob("tile_x", (16, 64, 256) if few else (8, 16, 32, 64, 128, 256, 512)),
                Knob("tile_y", (1, 4, 16, 64) if few else (1, 2, 4, 8, 16, 32, 64)),
                Knob("vector", (4, 8, 16, 32)),
                Knob("unroll", (1, 2, 4) if few else (1, 2, 4, 8)),
                Knob("task", (1, 4) if few else (1, 2, 4, 8, 16)),
                Knob("order", ("xy", "yx")),
                Knob("store", ("inline", "heap", "stack")),
            ),
            constraint=lambda values: (
                int(values["vector"]) * int(values["unroll"]) <= int(values["tile_x"])
                and int(values["tile_y"]) * int(values["task"]) <= self.rows
            ),
            first_guesses=(
                {
                    "tile_x": 64,
                    "tile_y": 4,
                    "vector": self.lanes,
                    "unroll": 1,
                    "task": 1,
                    "order": "xy",
                    "store": "heap",
                },
            ),
        )

    def _ruggedness(self, values: Mapping[str, Choice]) -> float:
        text = f"{self.seed}:{sorted(values.items())}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        noise = random.Random(int.from_bytes(digest)).gauss(0.0, RUGGEDNESS)
        return math.exp(noise)


def synthetic_recording(seed: int, *, is_small: bool = False) -> Recording:
    """Return every configuration of a modelled kernel with its time or its failure."""
    model = KernelModel.drawn(seed)
    space = model.space(is_small=is_small)
    latencies_us: dict[Configuration, float] = {}
    failures: dict[Configuration, Outcome] = {}
    for configuration in space.configurations():
        outcome = model.failure(configuration)
        if outcome is None:
            latencies_us[configuration] = model.latency_us(configuration)
        else:
            failures[configuration] = outcome
    return Recording(space=space, latencies_us=latencies_us, failures=failures)


def _padded(extent: int, tile: int) -> float:
    return math.ceil(extent / tile) * tile / extent
