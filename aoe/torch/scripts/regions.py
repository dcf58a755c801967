"""What tuning made of one training graph of a script: its regions, its choice, and its bank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from aoe.device.registry import resolve_target
from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome
from aoe.settings import environment
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.graphs import Choice
from aoe.torch.modules.training.region_settings import RegionSettings, open_bank
from aoe.torch.modules.training.regions import RegionForm, RegionOutcome
from aoe.workload import Workload
from aoebank import AoebankError

if TYPE_CHECKING:
    from aoe.torch.modules.training.kernels import Calls
    from aoe.torch.modules.training.programs import Program

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
    op_types: tuple[str, ...]  # What was tried: kernel families, `loop`, or a way of convolutions
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
        tune: Tunes regions without a loop; None for `tune_regions`.
    """

    def __init__(self, name: str, number: int, tune: Callable[..., Calls] | None = None) -> None:
        self.name = name
        self.calls = 0
        self.passes: SpeedupEstimate | None = None
        self.is_used: bool | None = None
        self._number = number
        self._turns, self._waits = 0, True
        self._tune = tune
        self._regions: list[TunedRegion] = []
        self._families: dict[RegionForm, tuple[tuple[str, ...], RepoOutcome]] = {}
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

    def tune(self, programs: Mapping[RegionForm, Program], settings: RegionSettings) -> Calls:
        """Tune the regions of one direction; see `tune_regions`."""
        from aoe.bank.operators import key_of
        from aoe.torch.modules.training.kernels import tune_regions  # which loads the engine

        before = _keys_in_bank(programs, settings)
        if is_in_group() and dist.get_rank() > 0:  # the first process has put them into the bank
            settings = replace(settings, tune=replace(settings.tune, lookup_only=True))
        calls = (self._tune or tune_regions)(programs, settings)
        after = _keys_in_bank(programs, settings)
        for form, program in programs.items():
            keys = {key_of(step.workload) for step in program.steps}
            outcome = RepoOutcome.UNSATISFIED
            if keys <= before:
                outcome = RepoOutcome.RESERVED
            elif keys & (after - before):
                outcome = RepoOutcome.ADD
            op_types = dict.fromkeys(step.workload.op_type for step in program.steps)
            self._families[form] = tuple(op_types), outcome
        return calls

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        """True if a region is to be computed by its kernels."""
        self._compared = choice.region_speedup(module, call, arguments)
        self._eager_us = time_us(lambda: module(*arguments))
        return choice.wins(self._compared, choice.REGION_GAIN)

    def told(self, outcome: RegionOutcome) -> None:
        """Keep what became of a region."""
        usual = RepoOutcome.RESERVED if outcome.is_known else RepoOutcome.ADD
        usual = RepoOutcome.UNSATISFIED if outcome.reason else usual
        op_types: tuple[str, ...] = (outcome.way,) if outcome.way else ()
        change = usual
        if outcome.form is not None and outcome.form in self._families:
            op_types, change = self._families[outcome.form]
        self._regions.append(
            TunedRegion(
                direction=outcome.direction,
                operators=outcome.operators,
                op_types=op_types,
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


def _keys_in_bank(
    programs: Mapping[RegionForm, Program], settings: RegionSettings
) -> frozenset[str]:
    """Return the keys of the workloads of regions the custom bank has records of."""
    from aoe.bank.operators import key_of

    _, target = resolve_target(settings.tune.soc_version, 1)
    try:
        bank = open_bank(settings, target, custom_only=True)
        steps = (step.workload for program in programs.values() for step in program.steps)
        return frozenset(key_of(one) for one in steps if bank.find(one) is not None)
    except AoebankError:  # whoever tunes says so
        return frozenset()


def time_us(call: Callable[[], object]) -> float:
    """Return the median time of a few calls, us."""
    times = []
    for _ in range(_TIMED):
        began_s = time.perf_counter()
        call()
        times.append((time.perf_counter() - began_s) * 1e6)
    return median(times)
