"""Operators that are slow for what they do, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import partition
from aoe.graph.rewrite import InlinedModel
from aoe.graph.rewrites.matching import attribute, is_op
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators import is_reorder
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.profiling.peak import OperatorBound
from aoe.target import Target

LEAST_SHARE = 0.01
"""Of the time of all operators: what loses less is no low performer."""
_LEAST_PEAK = 0.6
"""An operator that is so near to the machine's best is none."""
_LEAST_GAIN = 0.9
"""Of the time with all threads, that with fewer, before threads do not pay."""
_KERNELS = "aoe:"
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")


class Cause(StrEnum):
    """Why an operator is slow for what it does."""

    REORDERS = "reorders"
    """It changes a layout only, or reads what was changed for it."""
    MEMORY = "memory"
    """Moving its operands takes longer than computing."""
    SMALL_CHANNELS = "small-channels"
    """A convolution has fewer channels than a block."""
    UNALIGNED = "unaligned"
    """The last extent, or the channels, are no multiple of a vector or a block."""
    NO_KERNEL = "no-kernel"
    """AOE has no kernel for it."""
    THREADS = "threads"
    """Fewer threads are faster."""
    NOT_FUSED = "not-fused"
    """A class of fusions has it, and it runs alone."""
    CACHE = "cache"
    """Its tensors do not fit into the cores' own caches."""
    CONSTANT = "constant"
    """It computes the same from constants in every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause, and what in the operator says so."""

    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvChannels:
    """Channels of a convolution of the user's model."""

    read: int  # Of the tensor it reads
    made: int  # Of its result
    groups: int = 1  # Parts both are in


@dataclass(frozen=True, slots=True, kw_only=True)
class LowPerformer:
    """An operator that loses time."""

    operator: OperatorProfile  # The operator
    room_us: float  # What it loses; its time where there is no roofline
    # Why, the plainest first; none where nothing known is the reason.
    causes: tuple[FoundCause, ...]

    @property
    def has_kernel(self) -> bool:
        """False where tuning cannot help it: AOE has no kernel for it, or it is one."""
        known = all(one.cause is not Cause.NO_KERNEL for one in self.causes)
        return known and bool(self.operator.op_names)


def room_of(operator: OperatorProfile, useful: float = 1.0) -> float:
    """Return the time an operator loses, or all of its time without a roofline, in us.

    Args:
        operator: The operator.
        useful: Share of its work that is the user's, from `_useful_share`.
    """
    if operator.roofline_us is None:
        return operator.median_us
    return max(0.0, operator.median_us - useful * operator.roofline_us)


def find_low_performers(
    profile: ProfiledModel,
    target: Target,
    *,
    block: int,
    without_kernel: Mapping[str, str],
    channels: Mapping[str, ConvChannels],
    recomputed: frozenset[str] = frozenset(),
) -> tuple[LowPerformer, ...]:
    """Return the operators that lose time, the largest loss first.

    Args:
        profile: Where the time of the model goes.
        target: Vectors and caches of the machine.
        block: Channels of a block of the blocked layout.
        without_kernel: Operators AOE has no kernel for, with the reason.
        channels: From `find_channels`.
        recomputed: Operators that read nothing that changes.
    """
    least_us = LEAST_SHARE * profile.operators_us
    by_name = {operator.name: operator for operator in profile.operators}
    found = []
    for operator in profile.by_lost_time():
        share, useful = operator.peak_share, _useful_share(operator, channels)
        is_good = share is not None and useful * share >= _LEAST_PEAK
        room_us = room_of(operator, useful)
        if room_us < least_us or room_us <= 0 or is_good:
            continue
        reading = _Reading(operator, profile, by_name, target, block, without_kernel, channels)
        causes = tuple(reading.causes())
        if operator.name in recomputed:
            detail = "it reads nothing that changes from run to run"
            causes = (FoundCause(cause=Cause.CONSTANT, detail=detail), *causes)
        found.append(LowPerformer(operator=operator, room_us=room_us, causes=causes))
    return tuple(sorted(found, key=lambda one: -one.room_us))


def _useful_share(operator: OperatorProfile, channels: Mapping[str, ConvChannels]) -> float:
    """Return the share of an operator's work that is the user's: the last block may be filled."""
    asked = next((channels[name] for name in operator.op_names if name in channels), None)
    shapes = (*operator.input_shapes[:1], *operator.output_shapes[:1])
    if asked is None or len(shapes) < 2 or operator.bound is not OperatorBound.COMPUTE:
        return 1.0
    read, made = (shape[1] if shape is not None and len(shape) > 2 else 0 for shape in shapes)
    if read < asked.read or made < asked.made:
        return 1.0  # not the tensors of that convolution
    return (asked.made / made) * (asked.read / read if asked.groups == 1 else 1.0)


def find_without_kernel(graph: ModelGraph, inlined: InlinedModel) -> dict[str, str]:
    """Return the running nodes AOE has no kernel for, with the reason of operator tuning.

    Args:
        graph: What runs, kernels spelled out.
        inlined: Which nodes of it each running node is.
    """
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    covered = {index for region in parts.regions for index in region.nodes}
    reasons = {refusal.node: refusal.reason for refusal in parts.refusals}
    found = {}
    for name, indices in inlined.parts.items():
        lacking = [graph.nodes[index] for index in indices if index not in covered]
        if len(indices) == 1 and lacking and not is_reorder(lacking[0]):
            (node,) = lacking
            found[name] = reasons.get(node.name, f"no kernel family computes {node.op_type}")
    return found


def find_channels(imported: onnx.ModelProto) -> dict[str, ConvChannels]:
    """Return the channels each convolution of the user's model reads and makes.

    What runs may have more: ONNX Runtime fills the last block.
    """
    weights = {tensor.name: tensor.dims for tensor in imported.graph.initializer}
    found = {}
    for node in imported.graph.node:
        if is_op(node, "Conv") and len(weights.get(node.input[1], ())) > 2:
            made, read, *_ = weights[node.input[1]]
            groups = int(attribute(node, "group", 1))
            found[node.name] = ConvChannels(read=read * groups, made=made, groups=groups)
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """Causes in the figures of one operator."""

    operator: OperatorProfile
    profile: ProfiledModel
    by_name: Mapping[str, OperatorProfile]
    target: Target
    block: int
    without_kernel: Mapping[str, str]
    channels: Mapping[str, ConvChannels]

    def causes(self) -> Iterator[FoundCause]:
        yield from self._reorders()
        yield from self._extents()
        yield from self._fusion(self.profile.fusion or ())
        reason = self.without_kernel.get(self.operator.name)
        if reason is not None and not self.operator.op_type.startswith(_KERNELS):
            yield FoundCause(cause=Cause.NO_KERNEL, detail=reason)
        yield from self._threads()
        yield from self._memory()

    def _reorders(self) -> Iterator[FoundCause]:
        if _moves_only(self.operator):
            yield FoundCause(cause=Cause.REORDERS, detail="it only changes a layout")
            return
        around = [name for name in self.operator.reads if _moves_only(self.by_name.get(name))]
        around += [
            other.name
            for other in self.profile.operators
            if self.operator.name in other.reads and _moves_only(other)
        ]
        if around:
            cost_us = sum(self.by_name[name].median_us for name in around)
            detail = f"{len(around)} around it take {cost_us:.1f} us"
            yield FoundCause(cause=Cause.REORDERS, detail=detail)

    def _extents(self) -> Iterator[FoundCause]:
        for name in self.operator.op_names:
            asked = self.channels.get(name)
            counts = () if asked is None else (asked.read, asked.made)
            small = [count for count in counts if count < self.block]
            odd = [count for count in counts if count > self.block and count % self.block]
            if small:
                detail = f"{min(small)} channels, a block has {self.block}"
                yield FoundCause(cause=Cause.SMALL_CHANNELS, detail=detail)
            if odd:
                detail = f"{odd[0]} channels are no multiple of {self.block}"
                yield FoundCause(cause=Cause.UNALIGNED, detail=detail)
        if self.operator.op_type.rpartition(":")[2] in _PRODUCTS:
            shapes = (*self.operator.input_shapes[:1], *self.operator.output_shapes[:1])
            lanes = self.target.vector_lanes
            lasts = [shape[-1] for shape in shapes if shape]
            odd = [extent for extent in lasts if extent % lanes]
            if odd:
                detail = f"an extent of {odd[0]} is no multiple of {lanes}"
                yield FoundCause(cause=Cause.UNALIGNED, detail=detail)

    def _fusion(self, fusion: tuple[FusionLimit, ...]) -> Iterator[FoundCause]:
        own = set(self.operator.op_names)
        for one in fusion:
            if one.runs_as > 1 and own.intersection(one.op_names):
                detail = f"{one.fusion_class} takes {len(one.op_names)} nodes, here {one.runs_as}"
                yield FoundCause(cause=Cause.NOT_FUSED, detail=f"{detail} operators compute them")
                return

    def _threads(self) -> Iterator[FoundCause]:
        best = self.operator.best_threads
        if best is None or best >= self.profile.threads:
            return
        times = self.operator.us_by_threads
        all_us = times.get(self.profile.threads, self.operator.median_us)
        if times[best] <= _LEAST_GAIN * all_us:
            detail = f"{times[best]:.1f} us with {best}, {all_us:.1f} us with all"
            yield FoundCause(cause=Cause.THREADS, detail=detail)

    def _memory(self) -> Iterator[FoundCause]:
        work = self.operator.work
        if work is None or self.operator.bound is not OperatorBound.MEMORY:
            return
        size = (work.weight_bytes + work.activation_bytes) / 1024
        yield FoundCause(cause=Cause.MEMORY, detail=f"it moves {size:.0f} KiB")
        cache = self.target.l2_bytes * self.target.core_num
        if work.activation_bytes > cache:
            detail = f"{work.activation_bytes >> 10} KiB, the cores' own caches have {cache >> 10}"
            yield FoundCause(cause=Cause.CACHE, detail=detail)


def _moves_only(operator: OperatorProfile | None) -> bool:
    if operator is None:
        return False
    kind = operator.op_type.rpartition(":")[2]
    return kind == "Transpose" or kind.startswith("Reorder")
