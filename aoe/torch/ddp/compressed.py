"""A training whose gradients are summed in 16 bits, by torch's own communication hooks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from aoe.gradients.compression import Compression
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import Timeline
from aoe.gradients.trace import GradientTrace
from aoe.torch.ddp.buckets import has_comm_hook, install_buckets
from aoe.torch.ddp.training import DdpTraining

_CHECKED_STEPS = 2
_WIDE = ("float32", "float64")


def _sum_in_bfloat16(group: Any, bucket: Any) -> Any:
    return default_hooks.bf16_compress_hook(group, bucket)


def _sum_in_float16(group: Any, bucket: Any) -> Any:
    return default_hooks.fp16_compress_hook(group, bucket)


_HOOKS: dict[Compression, Callable[[Any, Any], Any]] = {
    Compression.BFLOAT16: _sum_in_bfloat16,
    Compression.FLOAT16: _sum_in_float16,
}
"""Functions of another name than torch's own: DDP wants NCCL for that of bfloat16."""


class CompressedDdpTraining(DdpTraining):
    """A training that tries 16 bits on top of a grouping; its default is that grouping in full.

    Args:
        plain: The training; it is at rest meanwhile.
        compression: What groupings other than the default are summed in.
        base: The grouping that is the default, None for DDP's own.
    """

    def __init__(
        self, plain: DdpTraining, compression: Compression, base: Segmentation | None
    ) -> None:
        vars(self).update(vars(plain))
        self.steps = 0
        self.compression = compression
        self._lower = compression
        self._sent_as = getattr(torch, compression.type_name)
        self._base = base
        self._base_buckets = plain.buckets(base)

    def problem(self) -> str | None:
        """Return the reason why this training cannot be compressed, None if it can."""
        if has_comm_hook(self._ddp):
            return "the script has a communication hook of its own"
        if not any(gradient.dtype in _WIDE for gradient in self._gradients):
            return "its gradients have 16 bits already"
        try:
            dist.all_reduce(
                torch.zeros(8, dtype=self._sent_as, device=self._ranks.device),
                group=self._ranks.group,
            )
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            return f"{self.backend} cannot sum {self._lower.type_name}: {first}"
        return None

    def deviation(self) -> float:
        """Return the deviation of sums in 16 bits from the full sums, as a share of their length.

        Of the bucket where it is largest, in some steps of the script that keep the full sums.
        """
        self._use(compressed=False)
        install_buckets(self._ddp, self._base_buckets, lasting=False)
        check = _Comparison(self._ranks.group, self._ranks.world_size, self._sent_as)
        dist._register_comm_hook(self._ddp.reducer, check, _compared_sum)
        for _ in range(_CHECKED_STEPS):
            self._run_step()
        self._installed = None
        self.apply(None)
        (largest,) = self._ranks.max([check.largest])
        return float(largest)

    @property
    def default(self) -> Segmentation:
        """The grouping in full."""
        return self._base or super().default

    def look_at_default(self) -> None:
        """Do nothing: the grouping in full is known."""

    @property
    def default_name(self) -> str:
        """The same for people."""
        plain = super().default_name
        return plain if self._base is None else f"the tuned grouping of {plain}, in full"

    def record(self, loops: int) -> GradientTrace:
        """Run training steps in full and return when their gradients became ready."""
        self._use(compressed=False)
        return super().record(loops)

    def sample_us(self, segmentation: Segmentation | None, steps: int) -> float:
        """Return the mean time of some steps, in 16 bits but for the default."""
        self._use(compressed=segmentation is not None)
        return super().sample_us(segmentation, steps)

    def timeline(self, segmentation: Segmentation | None) -> Timeline | None:
        """Return when the buckets of the default are sent; there is no clock in torch's hooks."""
        if segmentation is not None:
            return None
        self._use(compressed=False)
        return super().timeline(None)

    def apply(self, segmentation: Segmentation | None) -> None:
        """Leave the module with 16 bits in these groups, or with the default, for good."""
        self._use(compressed=segmentation is not None)
        super().apply(segmentation)

    def leave_alone(self) -> None:
        """Give the module its default back, in full and without a collective."""
        self._use(compressed=False)
        install_buckets(self._ddp, self._base_buckets, lasting=False)
        self._installed = None

    def buckets(self, segmentation: Segmentation | None) -> list[list[int]]:
        """Return the buckets of a grouping; the default's buckets do not follow the order."""
        return self._base_buckets if segmentation is None else super().buckets(segmentation)

    def _install_default(self) -> None:
        if self._base is None:
            super()._install_default()
        else:
            install_buckets(self._ddp, self._base_buckets)

    def _use(self, *, compressed: bool) -> None:
        """Have the next buckets that are installed summed in 16 bits, or in full."""
        hooks = self._ddp._comm_hooks
        is_compressed = any(hook in _HOOKS.values() for hook, _ in hooks)
        if is_compressed == compressed:
            return
        wanted = [(_HOOKS[self._lower], self._ranks.group)] if compressed else []
        hooks[:] = wanted  # the user has none, see `problem`
        self._installed = None


@dataclass(slots=True)
class _Comparison:
    """Sums each bucket both ways; in the end it has the full one."""

    group: Any
    world_size: int
    type: Any
    largest: float = field(default=0.0)


def _compared_sum(comparison: _Comparison, bucket: Any) -> Any:
    full = bucket.buffer()
    short = full.to(comparison.type).div_(comparison.world_size)
    full.div_(comparison.world_size)
    for mean in (short, full):
        dist.all_reduce(mean, group=comparison.group)
    length = torch.linalg.vector_norm(full.double()).item()
    apart = torch.linalg.vector_norm(short.double() - full.double()).item()
    share = apart / length if length else apart
    comparison.largest = max(comparison.largest, share if math.isfinite(share) else math.inf)
    done: Any = torch.futures.Future()
    done.set_result(full)
    return done
