"""A real training run under `DistributedDataParallel`, as gradient tuning sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from operator import attrgetter
from statistics import fmean, median
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from aoe.bank.journal import machine_fingerprint
from aoe.device.registry import DEVICES, default_device
from aoe.errors import OptionError, RunError
from aoe.gradients.compression import Compression
from aoe.gradients.cost import CostSample
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import Timeline
from aoe.gradients.trace import GradientTrace, average_loops, model_hash
from aoe.gradients.training import CompressedTraining
from aoe.measurement import CpuUse, MachineLoad
from aoe.torch.ddp.buckets import (
    SETTLING_STEPS,
    bucket_indices,
    buckets_in_use,
    check_supported,
    expected_buckets,
    fills_again,
    has_comm_hook,
    install_buckets,
    install_own_reducer,
    match_order,
    own_caps_bytes,
    reduced_gradients,
    segmentation_of,
)
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.recorder import BucketClock, BucketContent, GradientRecorder, stamps_for

T = TypeVar("T")
Compress = Callable[["DdpTraining", Compression, Segmentation | None], CompressedTraining]
"""Makes a training in 16 bits of one in full and the grouping that is in use."""
_MIB = 1 << 20
_STEPS_PER_UNTIMED = 2
_TIMELINE_STEPS = 7
_BRIEF_BYTES = 4 << 20


class DdpTraining:
    """Runs steps with one grouping of gradients or another, and looks at them.

    Every process of the group makes the same calls. All times are those of the slowest process,
    so that all processes see the same numbers and come to the same decisions.

    Args:
        ddp: The module; its buckets are exchanged.
        step: Runs one whole training step: forward, backward with its reduction, and whatever
            else the user wants in it.
        ranks: The processes.
        compress: Makes the same training in 16 bits; None where nobody asks for that.

    Raises:
        OptionError: the module is used in a way that cannot be combined with regrouping.
    """

    compression: Compression | None = None
    _sent_as: Any = None  # type numbers are rounded to on their way, None for their own

    def __init__(
        self,
        ddp: Any,
        step: Callable[[], object],
        ranks: Ranks,
        *,
        compress: Compress | None = None,
    ) -> None:
        check_supported(ddp)
        self._ddp = ddp
        self._step = step
        self._ranks = ranks
        self._compress = compress
        self._gradients = reduced_gradients(ddp)
        self._order: tuple[int, ...] = tuple(reversed(range(len(self._gradients))))
        self._installed: list[list[int]] | None = None
        self._own: list[list[int]] | None = None  # DDP's buckets, once its reducer has shown them
        self.steps = 0

    @property
    def model_name(self) -> str:
        """Class of the model."""
        return type(self._ddp.module).__name__

    @property
    def soc_version(self) -> str:
        """Target whose backward times are measured."""
        return soc_version_of(self._ddp.device)

    @property
    def machine(self) -> dict[str, str | int]:
        """Environment of the measurements."""
        facts = machine_fingerprint(
            default_device().describe(),
            threads=torch.get_num_threads(),
            device=str(self._ddp.device),
            torch=version("torch"),  # as the bank layer reads it: no +cu132
        )
        return facts | {"soc_version": self.soc_version}

    @property
    def versions(self) -> dict[str, str]:
        """Version of PyTorch."""
        return {"torch": str(torch.__version__)}

    @property
    def model_hash(self) -> int:
        """Identity of the model in a gradient bank: its parameters as the model lists them."""
        dtypes = [gradient.dtype for gradient in self._gradients]
        return model_hash(dtypes, self.sizes_bytes, summed_in=self.compression or "")

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Sizes of the gradients as the model lists them."""
        return tuple(gradient.size_bytes for gradient in self._gradients)

    @property
    def world_size(self) -> int:
        """Processes in the group."""
        return self._ranks.world_size

    @property
    def backend(self) -> str:
        """Communication library of the group."""
        return self._ranks.backend

    @property
    def is_first(self) -> bool:
        """True in the process that writes and prints."""
        return self._ranks.is_first

    @property
    def default_name(self) -> str:
        """Name of the buckets this DDP has by itself, for people."""
        caps = [f"{cap_bytes / _MIB:g} MiB" for cap_bytes in own_caps_bytes(self._ddp)]
        if len(set(caps)) == 1:
            return f"DDP ({caps[0]})"
        return f"DDP ({', '.join(caps[:-1])}, then {caps[-1]})"

    @property
    def default(self) -> Segmentation:
        """Segments this DDP has by itself; the nearest ones where it follows another order."""
        return segmentation_of(self.buckets(None), self._order)

    def is_default(self, segmentation: Segmentation) -> bool:
        """True if a grouping gives the very buckets this DDP uses by itself."""
        wanted, own = self.buckets(segmentation), self.buckets(None)
        return [set(bucket) for bucket in wanted] == [set(bucket) for bucket in own]

    def look_at_default(self) -> None:
        """Let DDP's own reducer run until it keeps its buckets, and note them.

        No step is needed where it never fills them again.
        """
        install_own_reducer(self._ddp)
        self._installed = None
        for _ in range(SETTLING_STEPS if fills_again(self._ddp) else 0):
            self._run_step()
        self._own = self._ranks.from_first(buckets_in_use(self._ddp))

    def order_by(self, trace: GradientTrace) -> bool:
        """Take the order of readiness from a stored trace; False if it is of another model.

        A record without its side-car has no names. Its sizes are then matched with the
        parameters from the last one to the first, which is about the order of backward; that can
        cost time, never correctness.
        """
        order = match_order(self._gradients, trace)
        if order is None:
            return False
        self._order = order
        return True

    def record(self, loops: int) -> GradientTrace:
        """Run training steps and return when their gradients became ready.

        Each time is the mean of the loops without the slowest ones, then that of the slowest
        process: an all-reduce can start when every process has its part.

        Raises:
            RunError: a step of some process ran no backward.
        """
        self._install(bucket_indices(self._gradients, (len(self._gradients),)))
        self._run_step()
        passes: list[list[float]] = []
        with GradientRecorder(
            self._ddp, self._gradients, stamps_for(torch.device(self._ddp.device))
        ) as recorder:
            for _ in range(loops):
                self._run_step()
                ready = recorder.take().ready_us
                if not ready:
                    raise _no_backward()
                # parameters without a gradient count as ready from the start, as for DDP
                passes.append([ready.get(gradient.index, 0.0) for gradient in self._gradients])
        return self._trace(passes)

    def cost_samples(self, *, briefly: bool = False) -> tuple[CostSample, ...]:
        """Measure the all-reduce of this group from 4 KiB up to all gradients.

        Args:
            briefly: Up to 4 MiB only, three times each: half a second on a link of 1 Gbit/s.
        """
        total_bytes = sum(self.sizes_bytes)
        if briefly:
            most_bytes = min(total_bytes, _BRIEF_BYTES)
            return measure_all_reduce(self._ranks, most_bytes, repeats=3, sent_as=self._sent_as)
        return measure_all_reduce(self._ranks, total_bytes, sent_as=self._sent_as)

    def sample_us(self, segmentation: Segmentation | None, steps: int) -> float:
        """Return the mean time of some steps with a segmentation, None for DDP's own buckets.

        After an exchange of buckets half as many steps, but one at least, come before them: they
        touch new buffers, and static graphs delay their first one.
        """
        if self._install(self.buckets(segmentation)):
            for _ in range(max(1, steps // _STEPS_PER_UNTIMED)):
                self._run_step()
        self._ranks.barrier()
        return fmean(self._timed_us(steps))

    def step_us(self, steps: int) -> float:
        """Return the median time of some steps with the buckets in use, of the slowest process.

        Two more come before them, in the second of which DDP may fill its buckets again.
        """
        for _ in range(2):
            self._run_step()
        self._ranks.barrier()
        return median(self._timed_us(steps))

    def timeline(self, segmentation: Segmentation | None) -> Timeline | None:
        """Run a few steps and return when the buckets were really sent; None where unknown.

        Args:
            segmentation: What is in use meanwhile, None for DDP's own buckets.
        """
        device = torch.device(self._ddp.device)
        if has_comm_hook(self._ddp) or device.type != "cpu":
            return None
        buckets = self.buckets(segmentation)
        contents = [
            BucketContent(len(bucket), sum(self._gradients[index].size_bytes for index in bucket))
            for bucket in buckets
        ]
        clock = BucketClock(self._ranks, contents)
        install_buckets(self._ddp, buckets, lasting=False)
        self._installed = None  # this reducer goes as soon as it was looked at
        clock.attach(self._ddp)
        self._run_step()
        with GradientRecorder(self._ddp, self._gradients, stamps_for(device)) as recorder:
            for _ in range(_TIMELINE_STEPS):
                clock.start_step()
                self._run_step()
                seen = recorder.take()
                clock.end_step(seen.start, seen.ready_us)
        return clock.timeline()

    def apply(self, segmentation: Segmentation | None) -> None:
        """Leave the module with these groups for good; None gives DDP its own buckets back."""
        if segmentation is None:
            self._install_default()
        else:
            install_buckets(self._ddp, self.buckets(segmentation))
        self._installed = None

    def leave_alone(self) -> None:
        """Give the module the buckets DDP would have by itself, for good and without a collective.

        Other processes may be about to answer for this one's steps: nothing may be asked of them.
        """
        if self._installed is not None:
            install_buckets(self._ddp, self.buckets(None), lasting=False)

    def compressed(self, compression: Compression, base: Segmentation | None) -> CompressedTraining:
        """Return the same training in which groupings are tried in 16 bits.

        Raises:
            OptionError: this training was not made for that.
        """
        if self._compress is None:
            raise OptionError("training", "it cannot be compressed", got=compression)
        return self._compress(self, compression, base)

    def usage(self) -> CpuUse:
        """Return the counters of this process as they stand; only differences mean something."""
        return default_device().usage()

    def load_since(self, before: CpuUse) -> MachineLoad:
        """Return the load since `before`, as the process that got the least CPU time saw it."""
        uses: list[CpuUse] = self._ranks.of_all(self.usage().since(before))
        worst = min(uses, key=attrgetter("given_share"))
        return MachineLoad(use=worst, threads=torch.get_num_threads())

    def from_first(self, value: T) -> T:
        """Return the value of the first process in all of them."""
        found: T = self._ranks.from_first(value)
        return found

    def agree(self, error: Exception | None) -> None:
        """Raise in all processes what the first one brings."""
        self._ranks.agree(error)

    def buckets(self, segmentation: Segmentation | None) -> list[list[int]]:
        """Return the gradients of each bucket of a grouping, None for DDP's own."""
        if segmentation is None:
            return self._own or expected_buckets(self._ddp, self._order)
        ordered = [self._gradients[index] for index in self._order]
        return bucket_indices(ordered, segmentation.ends)

    def _install_default(self) -> None:
        """Leave DDP with its own buckets for good: as seen, or as it makes them by itself."""
        if self._own is None:
            install_own_reducer(self._ddp)
        else:
            install_buckets(self._ddp, self._own)

    def _install(self, buckets: list[list[int]]) -> bool:
        """Exchange the buckets for measuring; False if they are the ones in use."""
        if buckets == self._installed:
            return False
        install_buckets(self._ddp, buckets, lasting=False)
        self._installed = buckets
        return True

    def _run_step(self) -> None:
        self._step()
        self.steps += 1

    def _timed_us(self, steps: int) -> tuple[float, ...]:
        """Return the time of each of some steps, that of the slowest process."""
        times = []
        for _ in range(steps):
            start = time.perf_counter_ns()
            self._run_step()
            _wait_for_device(self._ddp.device)
            times.append((time.perf_counter_ns() - start) / 1e3)
        return self._ranks.max(times)

    def _trace(self, passes: Sequence[Sequence[float]]) -> GradientTrace:
        means = self._ranks.max(average_loops(passes))
        order = sorted(range(len(means)), key=means.__getitem__)
        self._order = tuple(self._ranks.from_first(order))
        ordered = [self._gradients[index] for index in self._order]
        return GradientTrace(
            sizes_bytes=tuple(gradient.size_bytes for gradient in ordered),
            dtypes=tuple(gradient.dtype for gradient in ordered),
            names=tuple(gradient.name for gradient in ordered),
            ready_us=tuple(means[index] for index in self._order),
            loops=len(passes),
        )


def soc_version_of(device: Any) -> str:
    """Return the target whose backward times are measured, or the name PyTorch has for it."""
    if device.type in DEVICES:
        return DEVICES[device.type].describe().soc_version
    name = getattr(torch, device.type).get_device_name(device)
    return "-".join(str(name).replace("_", "-").split())


def _no_backward() -> RunError:
    return RunError(
        "step",
        "no gradient of the model was computed in it",
        hint="a step has to run forward and backward of the DistributedDataParallel module",
    )


def _wait_for_device(device: Any) -> None:
    if torch.device(device).type != "cpu":
        getattr(torch, torch.device(device).type).synchronize(device)


SMALLEST_BYTES = 4 << 10
LARGEST_BYTES = 256 << 20
_SIZES = 9
_WARMUP = 2
_REPEATS = 7
_BUDGET_S = 6.0
"""All repeats together; a slow link says enough in three of them."""
_FEWEST = 3


def measure_all_reduce(
    ranks: Ranks, total_bytes: int, *, repeats: int = _REPEATS, sent_as: Any = None
) -> tuple[CostSample, ...]:
    """Measure all-reduces of several sizes; every process calls this, all get the same.

    A time is the median of the repeats, each the time of the slowest process, after a barrier,
    with nothing else going on and the buffer already used.

    Args:
        ranks: The processes; float32 on the device of the group.
        total_bytes: Size of all gradients, the largest one measured (up to 256 MiB).
        repeats: Measured all-reduces per size; fewer, but three, where they take long.
        sent_as: Type of torch numbers are rounded to before, and widened from after it, both in
            the time; None sends them as they are.
    """
    sizes = sweep_sizes(total_bytes)
    buffers = [torch.zeros(size // 4, dtype=torch.float32, device=ranks.device) for size in sizes]
    times_us: list[tuple[float, ...]] = []
    spent_us = 0.0
    for number in range(_WARMUP + repeats):
        # all sizes in turn: what disturbs the machine for a while disturbs them alike
        slowest_us = tuple(_slowest_us(ranks, buffer, sent_as) for buffer in buffers)
        spent_us += sum(slowest_us)
        if number >= _WARMUP:
            times_us.append(slowest_us)
        if len(times_us) >= _FEWEST and spent_us > _BUDGET_S * 1e6:
            break
    medians = [median(repeats_us) for repeats_us in zip(*times_us, strict=True)]
    return tuple(
        CostSample(size, max(time_us, 0.001)) for size, time_us in zip(sizes, medians, strict=True)
    )


def sweep_sizes(total_bytes: int) -> tuple[int, ...]:
    """Return the sizes to measure, spaced evenly on a logarithmic scale, whole float32 numbers."""
    largest = min(max(total_bytes, 4 * SMALLEST_BYTES), LARGEST_BYTES)
    ratio = (largest / SMALLEST_BYTES) ** (1 / (_SIZES - 1))
    sizes = {int(SMALLEST_BYTES * ratio**step) // 4 * 4 for step in range(_SIZES - 1)}
    return tuple(sorted(sizes | {largest // 4 * 4}))


def _slowest_us(ranks: Ranks, buffer: Any, sent_as: Any) -> float:
    """Return the time of one all-reduce, that of the slowest process."""
    ranks.barrier()
    start = time.perf_counter_ns()
    if sent_as is None:
        dist.all_reduce(buffer, group=ranks.group)
    else:
        rounded = buffer.to(sent_as)
        dist.all_reduce(rounded, group=ranks.group)
        buffer.copy_(rounded)
    if buffer.device.type != "cpu":
        getattr(torch, buffer.device.type).synchronize(buffer.device)
    (slowest_us,) = ranks.max([(time.perf_counter_ns() - start) / 1e3])
    return slowest_us
