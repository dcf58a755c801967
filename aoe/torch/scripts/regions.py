"""What tuning made of one training graph of a script: its regions, its choice, and its bank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

import torch.distributed as dist

from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome
from aoe.settings import environment
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.graphs import Choice
from aoe.torch.modules.training.regions import RegionOutcome
from aoe.workload import Workload

_TIMED = 3
SETTLED_AFTER = 4
"""Calls after which a graph without any decision is eager's: it is decided at the second."""
_LONGEST_WAIT = timedelta(minutes=2)
"""Time a process waits for the first one of its group; after it, it tunes by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedRegion:
    """One region of a training graph, in one form, or a part of a convolution."""

    direction: str  # forward or backward
    operators: tuple[str, ...]  # Of PyTorch, each once
    op_types: tuple[str, ...]  # What was tried: `loop`, or a way of convolutions
    shapes: tuple[str, ...]  # Of its arguments that are tensors
    outcome: RepoOutcome  # Change of what is known of it
    reason: str  # Why PyTorch computes it; empty if it does not
    # Time of PyTorch over that of its kernels, None where this run did not compare them.
    estimate: SpeedupEstimate | None = None
    eager_us: float = 0.0  # Time of PyTorch
    workloads: tuple[Workload, ...] = ()  # Its records are of; none where no record can say it
    is_known: bool = False  # True if an earlier run has decided it
    places: int = 1  # How often the graph has it

    @property
    def is_used(self) -> bool:
        """True if kernels compute it."""
        return not self.reason


class TunedGraph(Choice):
    """Tunes one training graph, and keeps what came of it.

    Attributes:
        name: Class of the module.
        calls: Of the graph, so far.
        passes: Speed-up of both passes together, None where they were not compared.
        is_used: True if the graph is computed with kernels, None as long as that is open.

    Args:
        name: Class of the module.
        number: Of the graph in its process; the same in all processes of a group.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.calls = 0
        self.passes: SpeedupEstimate | None = None
        self.is_used: bool | None = None
        self._number = number
        self._turns, self._waits = 0, True
        self._regions: list[TunedRegion] = []
        self._compared: SpeedupEstimate | None = None  # The last region
        self._eager_us = 0.0

    @property
    def regions(self) -> tuple[TunedRegion, ...]:
        """The regions so far, in the order in which they were decided."""
        return tuple(self._regions)

    @property
    def facts(self) -> str:
        """What tells it from other graphs in later runs, however they choose their kernels."""
        found = {f"{one.direction} {one.operators} {one.shapes}" for one in self._regions}
        return "; ".join((self.name, str(self.is_used), *sorted(found)))

    @property
    def is_settled(self) -> bool:
        """True if it is known whether kernels compute it."""
        return self.is_used is not None or self.calls >= SETTLED_AFTER

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        """True if a region is to be computed by its kernels."""
        self._compared = None  # where the machine is too busy
        self._compared = choice.region_speedup(module, call, arguments)
        self._eager_us = time_us(lambda: module(*arguments))
        return choice.wins(self._compared, choice.REGION_GAIN)

    def told(self, outcome: RegionOutcome) -> None:
        """Keep what became of a region."""
        change = RepoOutcome.RESERVED if outcome.is_known else RepoOutcome.ADD
        change = RepoOutcome.UNSATISFIED if outcome.reason else change
        self._regions.append(
            TunedRegion(
                direction=outcome.direction,
                operators=outcome.operators,
                op_types=(outcome.way,) if outcome.way else (),
                shapes=outcome.shapes,
                outcome=change,
                reason=outcome.reason,
                estimate=self._compared,
                eager_us=self._eager_us,
                workloads=outcome.workloads,
                is_known=outcome.is_known,
                places=outcome.places,
            )
        )
        self._compared, self._eager_us = None, 0.0

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        """True if the graph is to be computed with its kernels."""
        self.passes = choice.step_speedup(eager, compiled)
        return choice.wins(self.passes, 1.0)

    def decided(self, *, is_used: bool) -> None:
        """Keep whether kernels compute the graph."""
        self.is_used = is_used

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold while a pass is tuned or compared: the first process of a group goes first.

        The others then find its records and decisions, and nothing runs beside what it measures.
        """
        if not is_in_group():
            yield
            return
        self._turns += 1
        store = dist.distributed_c10d._get_default_store()
        key = f"aoe/regions/{self._number}/{self._turns}"
        if dist.get_rank() == 0:
            try:
                yield
            finally:
                store.set(key, "done")
            return
        if self._waits:
            try:
                store.wait([key], _LONGEST_WAIT)
            except RuntimeError:  # the first process has no such graph, or other shapes of it
                self._waits = False
        yield


def is_in_group() -> bool:
    """True in a process of a group of several."""
    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def is_first_rank() -> bool:
    """True in the process that writes and speaks, before its group is made and after it is gone."""
    return dist.get_rank() == 0 if is_in_group() else environment().get("RANK", "0") == "0"


def time_us(call: Callable[[], object]) -> float:
    """Return the median time of a few calls, us."""
    times = []
    for _ in range(_TIMED):
        began_s = time.perf_counter()
        call()
        times.append((time.perf_counter() - began_s) * 1e6)
    return median(times)
