"""Models that one of ONNX Runtime's own rewriters breaks, or makes wrong: opened without it.

Some rewriters make an invalid graph of a valid one, and the session is not created at all, though
it would be without them. Source: onnxruntime issues 11836 (FuseReluClip, float64) and 32416
(CastElimination and DivMulFusion together). Such a model gets all rewriters but the fewest that
have to be left out; where that does not help, the highest level of optimisation that works.

Others make a graph that computes something else. What has to be left out of such a model is found
by its results (`aoe.execute.unusual_inputs`), and marked in it like the former.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import onnx
import onnxruntime as ort

from aoe.graph.protos import copied, refill

ALL_OR_NOTHING = "aoe.all_or_nothing"
"""Entry of options: "1" for a session that is not opened where an optimisation breaks its model."""
_EVERYTHING = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
_LOWER_LEVELS = (
    ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
)
_MARK = "aoe.onnxruntime_without"
"""Key in the metadata of a model: rewriters with `;` between them, or a level of optimisation."""
_BROKEN_AT = "aoe.onnxruntime_breaks"
"""Key in the metadata of a model: the operator with which it breaks, and those in front of it."""
_REWRITERS = (
    # rules of the first level
    *("EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout"),
    *("ExpandElimination", "CastElimination", "CastChainElimination", "PreShapeNodeElimination"),
    *("NoopElimination", "DivMulFusion", "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion"),
    *("NotWhereFusion", "ConvAddFusion", "ConvMulFusion", "ConvBNFusion", "Pad_Fusion"),
    *("MatMul_BatchNormalization_Fusion", "ClipQuantRewrite", "ReluQuantRewrite"),
    "LabelEncoderFusion",
    # passes of the first level
    *("ConstantSharing", "CommonSubexpressionElimination", "ConstantFolding", "MatMulAddFusion"),
    *("ReshapeFusion", "GeluFusionL1", "LayerNormFusionL1", "QDQPropagationTransformer"),
    *("DoubleQDQPairsRemover", "SliceConcatToSpaceToDepthFusion", "TransposeOptimizer"),
    # of the second
    *("ConvActivationFusion", "GeluFusionL2", "LayerNormFusionL2", "SimplifiedLayerNormFusion"),
    *("AttentionFusion", "EmbedLayerNormFusion", "GatherToSplitFusion", "GatherToSliceFusion"),
    *("GatherSliceToSplitFusion", "MatmulTransposeFusion", "BiasGeluFusion", "BiasSoftmaxFusion"),
    *("SkipLayerNormFusion", "BiasSkipLayerNormFusion", "FastGeluFusion", "QuickGeluFusion"),
    *("BiasDropoutFusion", "GeluApproximation", "GemmActivationFusion", "MatMulActivationFusion"),
    *("QDQSelectorActionTransformer", "QDQS8ToU8Transformer", "QDQFinalCleanupTransformer"),
    *("MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion", "MatMulScaleFusion"),
    *("DQMatMulNBitsFusion", "MatMulNBitsFusion", "MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion"),
    *("GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion"),
    # of layouts
    *("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion"),
    *("RemoveDuplicateCastTransformer", "Avx2WeightS8ToU8Transformer"),
)
"""Names of rewriters in onnxruntime 1.31; a name that is not known does no harm."""
_ROUNDED_PRODUCTS = "8-bit activations of MatMulNBits"
_BY_ENTRY = {_ROUNDED_PRODUCTS: ("session.qdq_matmulnbits_accuracy_level", "1")}
"""What no name of a rewriter leaves out, by entry of the options and its value: with fewer bits
than float32, ONNX Runtime rounds activations that the model does not. Source:
onnxruntime_session_options_config_keys.h."""
_MARKED_BYTES = 64 << 20
"""Of the end of a model, where its metadata is."""

T = TypeVar("T")
Model = bytes | str
"""Content of a model, or its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizations:
    """Optimisations of ONNX Runtime that a model can have."""

    level: ort.GraphOptimizationLevel = field(default=_EVERYTHING)  # The level of optimisation
    left_out: tuple[str, ...] = ()  # Rewriters it has to do without
    broken_at: str = ""  # The operator with which it breaks, and those it reads; empty if unknown

    @property
    def are_all(self) -> bool:
        """True of a model nothing breaks."""
        return self.level == _EVERYTHING and not self.left_out

    def __str__(self) -> str:
        if self.level != _EVERYTHING:
            return f"optimisations of {self.level.name}"
        return " but ".join(filter(None, ("all optimisations", ", ".join(self.left_out))))

    def to_json(self) -> dict[str, Any]:
        """Return the level and the rewriters left out as the bank has them."""
        return {"level": self.level.name, "left_out": [*self.left_out]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Optimizations:
        """Return the optimisations that `to_json` has written.

        Raises:
            AttributeError, KeyError, TypeError: it is no such thing.
        """
        level = getattr(ort.GraphOptimizationLevel, value["level"])
        return cls(level=level, left_out=tuple(map(str, value["left_out"])))

    def wrong_warning(self, how_far: str) -> str:
        """Say that the optimised form computes something else, and what is done about it."""
        return (
            f"ONNX Runtime's optimised form of the model computes something else than the model "
            f"({how_far}): it is computed with {self}, and compared with that"
        )

    def warning(self) -> str:
        """Name the fault, and the optimisations the model is computed with instead."""
        where = f" at {self.broken_at}" if self.broken_at else ""
        return (
            f"ONNX Runtime's optimiser breaks the model{where}: it is computed with {self}, and "
            "compared with that"
        )


ALL_OPTIMIZATIONS = Optimizations()


class PartlyOptimizedSession(ort.InferenceSession):  # type: ignore[misc]
    """A session of a model that some optimisations break.

    Args:
        model: Content or file.
        options: Their level of optimisation is set.
        provider: Of ONNX Runtime.
        optimizations: What is applied to the model.
    """

    def __init__(
        self, model: Model, options: ort.SessionOptions, provider: str, optimizations: Optimizations
    ) -> None:
        asked = options.graph_optimization_level
        options.graph_optimization_level = optimizations.level
        names = [name for name in optimizations.left_out if name not in _BY_ENTRY]
        for name in optimizations.left_out:
            if name in _BY_ENTRY and not _has_entry(options, *_BY_ENTRY[name]):
                options.add_session_config_entry(*_BY_ENTRY[name])
        try:
            super().__init__(
                model,
                options,
                providers=[provider],
                disabled_optimizers=names,
                enable_fallback=0,
            )
        finally:
            options.graph_optimization_level = asked
        self.optimizations = optimizations


def open_as_optimized_as_possible(
    model: Model, options: ort.SessionOptions, provider: str
) -> ort.InferenceSession | None:
    """Open a model that ONNX Runtime refuses; return None if no optimisation is to blame.

    Args:
        model: Content or file.
        options: Of the session; they are as before afterwards.
        provider: Of ONNX Runtime.
    """
    if options.graph_optimization_level != _EVERYTHING or _is_all_or_nothing(options):
        return None
    file = options.optimized_model_filepath

    def opens(tried: Optimizations) -> bool:
        options.optimized_model_filepath = ""
        try:
            PartlyOptimizedSession(model, options, provider, tried)
        except Exception:  # onnxruntime raises its own unrelated classes
            return False
        finally:
            options.optimized_model_filepath = file
        return True

    try:
        found = _marked_file(model)
        if found.are_all or not opens(found):
            found = _find(opens)
        if found.are_all:
            return None
        return PartlyOptimizedSession(model, options, provider, found)
    finally:
        options.graph_optimization_level = _EVERYTHING


def _is_all_or_nothing(options: ort.SessionOptions) -> bool:
    return _has_entry(options, ALL_OR_NOTHING, "1")


def _has_entry(options: ort.SessionOptions, name: str, value: str) -> bool:
    try:
        return bool(options.get_session_config_entry(name) == value)
    except RuntimeError:  # there is no such entry
        return False


def known_optimizations(model: Model, options: ort.SessionOptions) -> Optimizations:
    """Return the optimisations a model is marked with, where a session is asked for all of them.

    Args:
        model: Content or file.
        options: Of the session.
    """
    if options.graph_optimization_level != _EVERYTHING or _is_all_or_nothing(options):
        return ALL_OPTIMIZATIONS
    return _marked_file(model) if _MARK.encode() in _end_of(model) else ALL_OPTIMIZATIONS


def _end_of(model: Model) -> bytes:
    if isinstance(model, bytes):
        return model[-_MARKED_BYTES:]
    try:
        with Path(model).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MARKED_BYTES))
            return file.read()
    except OSError:  # ONNX Runtime says what is wrong with it
        return b""


def optimizations_of(session: ort.InferenceSession) -> Optimizations:
    """Return the optimisations of a session that was asked for all of them."""
    known = session if isinstance(session, PartlyOptimizedSession) else None
    return ALL_OPTIMIZATIONS if known is None else known.optimizations


def mark(proto: onnx.ModelProto, found: Optimizations) -> None:
    """Write the optimisations of a model into its metadata, unless they are all of them."""
    if found.are_all:
        return
    notes = {prop.key: prop for prop in proto.metadata_props}
    text = ";".join(found.left_out) or found.level.name
    for key, value in ((_MARK, text), (_BROKEN_AT, found.broken_at)):
        (notes.get(key) or proto.metadata_props.add(key=key)).value = value


def marked(proto: onnx.ModelProto) -> Optimizations:
    """Return the optimisations `mark` has written into a model."""
    notes = {prop.key: prop.value for prop in proto.metadata_props}
    text, broken_at = notes.get(_MARK, ""), notes.get(_BROKEN_AT, "")
    for level in _LOWER_LEVELS:
        if level.name == text:
            return Optimizations(level=level, broken_at=broken_at)
    return Optimizations(left_out=tuple(filter(None, text.split(";"))), broken_at=broken_at)


def _marked_file(model: Model) -> Optimizations:
    """Return `marked` of a model that is not read yet; all optimisations if it cannot be."""
    try:
        if isinstance(model, bytes):
            return marked(onnx.load_model_from_string(model))
        return marked(onnx.load(model, load_external_data=False))
    except Exception:  # ONNX Runtime has said what is wrong with it
        return ALL_OPTIMIZATIONS


def broken_at(proto: onnx.ModelProto, opens: Callable[[onnx.ModelProto], bool]) -> str:
    """Return the first operator with which a model breaks, and the operators it reads.

    Args:
        proto: A model that does not open, nodes in topological order.
        opens: True if a model can be opened with all optimisations.
    """
    few, many = 0, len(proto.graph.node)  # opens with the first few nodes, not with many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if opens(_beginning(proto, middle)) else (few, middle)
    last = proto.graph.node[many - 1]
    read = [node for node in proto.graph.node if set(node.output) & set(last.input)]
    return " and ".join(_named(node) for node in (*read, last))


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name}".strip()


def _beginning(proto: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """Return a model of the first nodes of another one, all results that nobody reads included."""
    part = copied(proto)
    del part.graph.node[count:]
    made = [name for node in part.graph.node for name in node.output if name]
    read = {name for node in part.graph.node for name in node.input}
    kept = [value for value in proto.graph.output if value.name in made]
    refill(part.graph.output, kept)
    names = {value.name for value in kept}
    ends = (name for name in made if name not in read and name not in names)
    part.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in ends)
    return part


def find_right(is_right: Callable[[Optimizations], bool]) -> Optimizations:
    """Return the most optimisations a model computes the right results with.

    Args:
        is_right: Opens the model with fresh options, and compares.
    """
    for name in _BY_ENTRY:  # each leaves out no more than itself
        if is_right(Optimizations(left_out=(name,))):
            return Optimizations(left_out=(name,))
    return _find(is_right)


def _find(opens: Callable[[Optimizations], bool]) -> Optimizations:
    """Return the most optimisations a model opens with; all of them if it never does."""
    if opens(Optimizations(left_out=_REWRITERS)):
        return Optimizations(
            left_out=fewest(_REWRITERS, lambda names: opens(Optimizations(left_out=names)))
        )
    found = (Optimizations(level=level) for level in _LOWER_LEVELS)
    return next(filter(opens, found), ALL_OPTIMIZATIONS)


def fewest(items: Sequence[T], suffice: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return items none of which can be spared; ever smaller groups are tried, the last first.

    Args:
        items: They suffice.
        suffice: Whether some of them do.
    """
    kept, size = tuple(items), max(len(items) // 2, 1)
    while size:
        for start in reversed(range(0, len(kept), size)):
            fewer = kept[:start] + kept[start + size :]
            if fewer and suffice(fewer):
                kept = fewer
        size //= 2
    return kept
