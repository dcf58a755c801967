"""The loop of strategies: one each number, some of one network in a row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aoe.device.object_cache import ObjectCache
from aoe.device.registry import default_device
from aoe.device.toolchain import find_toolchain
from aoe.execute.compiling import KernelCompilers
from aoe.execute.runner import Runner
from aoe.settings import environment
from support.fusion_fuzz.strategies import Machine, ScopedNetwork
from support.fuzz.run import FuzzState

STRATEGIES = 32  # of a network, whose kernels are compiled once for all of them
_OBJECTS_BYTES = 2**30
_THREADS = 2


class StrategyFuzzer:
    """Tries strategies by number; the network of the last one is kept.

    Args:
        machine: Compiles, runs and compares.
        scratch: Folder for networks.

    Attributes:
        seen: How many scopes were computed, by kernel family and compute level; `idle` counts
            numbers whose network has nothing one kernel could compute.
    """

    def __init__(self, machine: Machine, scratch: Path) -> None:
        self.seen: Counter[str] = Counter()
        self._machine = machine
        self._scratch = scratch
        self._network: tuple[int, ScopedNetwork] | None = None

    def attempt(self, number: int, _scratch: Path, _state: FuzzState) -> str:
        """Return what is wrong with a strategy, or nothing."""
        network = self._of(number // STRATEGIES)
        flaws = [
            f"kernel {name}: {error}"
            for name, error in network.unbuilt.items()
            if number % STRATEGIES == 0
        ]
        rng = random.Random(f"strategy {number}")
        drawn = network.draw(rng)
        groups = [group for one in drawn if one.strategy for group in one.strategy.groups]
        self.seen.update(f"{group.family} {group.level}" for group in groups)
        if not drawn:
            self.seen["idle"] += 1
            return "\n".join(flaws)
        return "\n".join([*flaws, *network.flaws(drawn, rng)])

    def close(self) -> None:
        """Finish the last network."""
        if self._network is not None:
            self._network[1].close()
            self._network = None

    def _of(self, number: int) -> ScopedNetwork:
        if self._network is None or self._network[0] != number:
            self.close()
            made = ScopedNetwork(number, self._machine, self._scratch / f"network{number}")
            self._network = (number, made)
        return self._network[1]


@contextmanager
def fuzzing(scratch: Path, objects: Path | None = None) -> Iterator[StrategyFuzzer]:
    """Open what strategies are tried with.

    Args:
        scratch: Folder for networks.
        objects: Where compiled kernels are kept; None for the scratch folder.
    """
    device = default_device()
    target = device.describe(min(_THREADS, device.describe().core_num))
    cache = ObjectCache(objects or scratch / "objects", target, limit_bytes=_OBJECTS_BYTES)
    with Runner(device, target, find_toolchain(environment())) as runner:
        compilers = KernelCompilers(runner, cache)
        fuzzer = StrategyFuzzer(Machine(runner=runner, compilers=compilers), scratch)
        try:
            yield fuzzer
        finally:
            fuzzer.close()
            compilers.close()
