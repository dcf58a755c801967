"""Clocks of a backward pass: hooks see when gradients become ready, and when buckets are sent.

Communication must not disturb what is recorded, and every recorded step must stay a proper
training step. So the recorder leaves synchronisation on and asks for one bucket: the first
all-reduce then starts after the last gradient, when everything has been seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Protocol, Self

import torch
import torch.distributed as dist
from torch.utils import _pytree

from aoe.gradients.timeline import SegmentTime, Timeline
from aoe.torch.ddp.buckets import ReducedGradient
from aoe.torch.ddp.ranks import Ranks


class Stamps(Protocol):
    """Seam of the clocks: the host's, or the one of a device that runs behind the host."""

    def now(self) -> Any:
        """Return a stamp of this moment."""
        ...

    def us_between(self, start: Any, end: Any) -> float:
        """Return the time between two stamps, waiting for them if need be."""
        ...


class HostStamps:
    """The monotonic clock of the host, for gradients that are there when a hook runs."""

    def now(self) -> int:
        """Return nanoseconds."""
        return time.perf_counter_ns()

    def us_between(self, start: int, end: int) -> float:
        """Return microseconds."""
        return (end - start) / 1e3


class DeviceStamps:
    """Events in the stream of a device: hooks run when the work is queued, not when it is done."""

    def __init__(self, device: Any) -> None:
        self._module = getattr(torch, device.type)

    def now(self) -> Any:
        """Return an event recorded in the current stream."""
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def us_between(self, start: Any, end: Any) -> float:
        """Return microseconds, after waiting for the end."""
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3


def stamps_for(device: Any) -> Stamps:
    """Return the clock that fits where gradients are computed."""
    return HostStamps() if device.type == "cpu" else DeviceStamps(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardPass:
    """Start of one backward pass, and when its gradients were ready."""

    start: Any  # Stamp of its start, None if there was none
    # When each gradient was ready after that, by index; those that did not come are missing.
    ready_us: Mapping[int, float]


class GradientRecorder:
    """Records backward passes while it is entered.

    A pass starts when the first gradient of an output of the model is known, which is where the
    backward of the model itself starts. Of several passes before `take` the last one counts: it
    is the one whose gradients are reduced when gradients are accumulated.

    Args:
        ddp: Module whose parameters are looked at.
        gradients: What DDP reduces, see `reduced_gradients`.
        stamps: The clock.
    """

    def __init__(self, ddp: Any, gradients: tuple[ReducedGradient, ...], stamps: Stamps) -> None:
        self._ddp = ddp
        self._gradients = gradients
        self._stamps = stamps
        self._handles: list[Any] = []
        self._armed = False
        self._start: Any = None
        self._ready: dict[int, Any] = {}

    def __enter__(self) -> Self:
        parameters = dict(self._ddp.module.named_parameters())
        self._handles.append(self._ddp.module.register_forward_hook(self._on_forward))
        for gradient in self._gradients:
            hook = self._hook(gradient.index)
            parameter = parameters[gradient.name]
            self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def take(self) -> BackwardPass:
        """Return the last pass and forget it."""
        ready, start = self._ready, self._start
        self._ready, self._start, self._armed = {}, None, False
        if start is None:  # no output needed a gradient: time since the first gradient
            start = next(iter(ready.values()), None)
        return BackwardPass(
            start=start,
            ready_us={
                index: max(0.0, self._stamps.us_between(start, stamp))
                for index, stamp in ready.items()
            },
        )

    def _on_forward(self, module: Any, arguments: Any, output: Any) -> None:
        tensors = list(_gradient_tensors(output))
        self._armed = bool(tensors)
        for tensor in tensors:
            tensor.register_hook(self._on_backward)

    def _on_backward(self, gradient: Any) -> None:
        if self._armed:
            self._armed = False
            self._start = self._stamps.now()
            self._ready = {}

    def _hook(self, index: int) -> Callable[[Any], None]:
        def on_ready(parameter: Any) -> None:
            self._ready[index] = self._stamps.now()

        return on_ready


def _gradient_tensors(output: Any) -> Iterator[Any]:
    """Yield the tensors of a model's output which backward goes through."""
    for leaf in _pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            yield leaf


class BucketContent(NamedTuple):
    """Number of gradients in a bucket, and their bytes."""

    gradients: int
    bytes: int


class BucketClock:
    """Times the all-reduce of each bucket over some steps, on the host's clock.

    The hook does what DDP does without one: divide by the world size, then sum.

    Args:
        ranks: The processes; every time is that of the slowest.
        contents: The buckets in the order they are sent.
    """

    def __init__(self, ranks: Ranks, contents: Sequence[BucketContent]) -> None:
        self._ranks = ranks
        self._contents = tuple(contents)
        self._sent_ns: dict[int, int] = {}
        self._done_ns: dict[int, int] = {}
        self._steps: list[list[float]] = []

    def attach(self, ddp: Any) -> None:
        """Watch the reducer which DDP has now; a new one is not watched."""
        dist._register_comm_hook(ddp.reducer, self, _watched_all_reduce)

    def start_step(self) -> None:
        """Forget the buckets of the step before."""
        self._sent_ns.clear()
        self._done_ns.clear()

    def end_step(self, start_ns: int, ready_us: Mapping[int, float]) -> None:
        """Take down a step.

        Args:
            start_ns: When its backward started.
            ready_us: When its gradients were ready, after that.
        """
        count = range(len(self._contents))
        sent = [(self._sent_ns.get(place, start_ns) - start_ns) / 1e3 for place in count]
        done = [(self._done_ns.get(place, start_ns) - start_ns) / 1e3 for place in count]
        self._steps.append([*sent, *done, max(ready_us.values(), default=0.0)])

    def timeline(self) -> Timeline:
        """Return the median step; buckets are shown one after the other, as if on one channel."""
        medians = [max(0.0, median(times_us)) for times_us in zip(*self._steps, strict=True)]
        slowest = self._ranks.max(medians)
        count = len(self._contents)
        segments, free_us = [], 0.0
        for place, content in enumerate(self._contents):
            start_us = max(slowest[place], free_us)
            free_us = max(slowest[count + place], start_us)
            segments.append(
                SegmentTime(
                    gradients=content.gradients,
                    bytes=content.bytes,
                    ready_us=slowest[place],
                    start_us=start_us,
                    end_us=free_us,
                )
            )
        return Timeline(segments=tuple(segments), backward_end_us=slowest[-1])


def _watched_all_reduce(clock: BucketClock, bucket: Any) -> Any:
    place = bucket.index()
    clock._sent_ns[place] = time.perf_counter_ns()
    group = clock._ranks.group
    mean = bucket.buffer().div_(clock._ranks.world_size)
    future = dist.all_reduce(mean, group=group, async_op=True).get_future()

    def done(sums: Any) -> Any:
        clock._done_ns[place] = time.perf_counter_ns()
        return sums.value()[0]

    return future.then(done)
