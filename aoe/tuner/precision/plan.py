"""In which precisions each place of a model is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.regions import Refusal, Region
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import classify, get_family
from aoe.kernels.roofline import first_algorithms
from aoe.operators import OperatorKind, Rounding, Specials, facts_of
from aoe.tuner.precision.settings import Listing, PrecisionMode, PrecisionSettings, onnx_name
from aoe.workload import Operation, Precision, Workload

_DENSE = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN"})
"""Operators of ONNX with products whose factors may be rounded."""
_INTEGERS = (Precision.INT8, Precision.INT4)
"""Of products by a constant matrix alone."""
_STRICT_REASON = "strict float32: infinities and NaN would not come out where ONNX Runtime has them"
_LISTED_REASON = "there is a kernel of lower precision only, and the lists keep it in float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPlan:
    """Decides in which precisions a workload is tuned."""

    settings: PrecisionSettings  # What the user allows
    target: KernelTarget  # Says to families what the CPU can do
    imported: onnx.ModelProto  # The model before it was optimised: node names of the lists are its

    def classify(self, workload: Workload) -> Workload | str:
        """Return the workload in the highest precision there is a kernel for, or why none is.

        Several products, or one and the pooling behind it, become one only where it is there in
        every precision their own would be.
        """
        if self.settings.strict and _spreads_specials(workload):
            return _STRICT_REASON
        found = {one: self._offered(workload, one) for one in self._precisions(workload)}
        if _joins_products(workload):
            integers = () if _has_constant_matrix(workload) else _INTEGERS
            refused = [said for one, said in found.items() if one not in integers]
            reason = next((said for said in refused if isinstance(said, str)), None)
            if reason is not None:
                return reason
        offered = [*found.values()]
        return next((one for one in offered if isinstance(one, Workload)), offered[0])

    def variants(
        self, graph: ModelGraph, regions: Sequence[Region]
    ) -> tuple[tuple[Region, ...], tuple[Refusal, ...]]:
        """Return every region once for each precision it is tuned in, and what is left out.

        Args:
            graph: The optimised graph the regions are of.
            regions: Classified by `classify`.
        """
        if not self.settings.mode.lowest.is_lower:
            return tuple(regions), ()
        lists = _ListedNodes(self.settings, graph, Origins(self.imported, graph.proto))
        found: list[Region] = []
        refused: list[Refusal] = []
        for region in regions:
            variants = self._variants_of(region, lowered=lists.may_lower(region))
            found.extend(variants)
            if not variants:
                node = graph.nodes[region.nodes[-1]]
                refused.append(Refusal(node=node.name, op_type=node.op_type, reason=_LISTED_REASON))
        return tuple(found), tuple(refused)

    def _variants_of(self, region: Region, *, lowered: bool) -> list[Region]:
        wanted = [
            precision
            for precision in self._precisions(region.workload)
            if lowered or not precision.is_lower
        ]
        offered = [self._offered(region.workload, precision) for precision in wanted]
        found = [replace(region, workload=one) for one in offered if isinstance(one, Workload)]
        lower = [one for one in found if one.workload.precision.is_lower]
        return lower if lower and self.settings.mode is PrecisionMode.BFLOAT16 else found

    def _precisions(self, workload: Workload) -> tuple[Precision, ...]:
        """Return the precisions that come into question, the highest first."""
        if self.settings.strict:
            sums = any(facts_of(op).rounding is Rounding.SCALE for op in workload.operations)
            return (Precision.STRICT_FLOAT32 if sums else Precision.FLOAT32,)
        lower = self.settings.mode.lowered if _is_dense(workload) else ()
        return (Precision.FLOAT32, *(one for one in lower if self._may_have(one)))

    def _may_have(self, precision: Precision) -> bool:
        """True if the CPU has a precision; that of the lowest has been asked before."""
        has_bfloat16 = self.target.bf16_dot or self.target.bf16_tiles
        is_lowest = precision is self.settings.mode.lowest
        return is_lowest or precision is not Precision.BFLOAT16 or has_bfloat16

    def _offered(self, workload: Workload, precision: Precision) -> Workload | str:
        """Return the workload with the family that has a kernel for it, or why none has."""
        named = classify(replace(workload, precision=precision))
        if isinstance(named, str) or not _is_dense(named):
            return named
        try:
            found = first_algorithms(get_family(named.op_type), named, self.target)
        except Exception as error:  # a bug of one family costs its own kernels, never a run
            return f"{named.op_type}: the family failed: {type(error).__name__}: {error}"
        return named if found else f"{named.op_type}: no algorithm in {precision.value}"


class _ListedNodes:
    """The user's lists, applied to the dense nodes of a graph."""

    def __init__(self, settings: PrecisionSettings, graph: ModelGraph, origins: Origins) -> None:
        self._lists = settings.lists
        self._graph = graph
        self._origins = origins

    def may_lower(self, region: Region) -> bool:
        """True if all products of a region may be computed in a lower precision."""
        dense = [index for index in region.nodes if self._kind(index) in _DENSE]
        return all(self._may_lower(index) for index in dense)

    def _may_lower(self, index: int) -> bool:
        """True if a dense node may be lowered; what follows the first operator stays as it is."""
        seen: set[int] = set()
        following: int | None = index
        while following is not None and following not in seen:
            seen.add(following)
            node = self._graph.nodes[following]
            imported = (one.op_type for one in self._origins.fused(node) if one.op_type in _DENSE)
            kind = next(imported, self._kind(following))  # a product may have become a convolution
            listing = self._lists.listing(kind, self._origins.names(node, _DENSE))
            if listing is not Listing.FOLLOWS:
                return listing is Listing.ALLOWED
            following = self._dense_before(following)
        return False

    def _dense_before(self, index: int) -> int | None:
        """Return the nearest dense node that a node's inputs come from."""
        waiting, seen = [index], {index}
        while waiting:
            for name in self._graph.nodes[waiting.pop(0)].input:
                before = self._graph.producer.get(name)
                if before is None or before in seen:
                    continue
                if self._kind(before) in _DENSE:
                    return before
                seen.add(before)
                waiting.append(before)
        return None

    def _kind(self, index: int) -> str:
        return onnx_name(self._graph.nodes[index].op_type)


def _is_dense(workload: Workload) -> bool:
    return any(map(_is_product, workload.operations))


def _is_product(operation: Operation) -> bool:
    return facts_of(operation).kind is OperatorKind.PRODUCT


def _joins_products(workload: Workload) -> bool:
    """True if a workload has several products, or a window behind one."""
    kinds = [facts_of(operation).kind for operation in workload.operations]
    products = kinds.count(OperatorKind.PRODUCT)
    return products > 1 or (products == 1 and OperatorKind.WINDOW in kinds)


def _has_constant_matrix(workload: Workload) -> bool:
    """True if a product of a workload reads a constant."""
    constants = {f"x{at}" for at, spec in enumerate(workload.inputs) if spec.constant}
    read = {ref for op in workload.operations if _is_product(op) for ref in op.inputs}
    return not constants.isdisjoint(read)


def _spreads_specials(workload: Workload) -> bool:
    """True if special values come out elsewhere than in the host, whatever the kernel."""
    return any(
        facts_of(op).specials is Specials.MODERATE and facts_of(op).kind is not OperatorKind.PRODUCT
        for op in workload.operations
    )
