"""A float32 model in integers of 8 bits, with ranges from the user's own inputs.

ONNX Runtime's quantiser writes it: activations unsigned, one scale for each tensor; weights signed,
one scale for each channel. Source: onnxruntime.quantization, `quantize_static`.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from aoe.errors import RunError
from aoe.graph.protos import free_name
from aoe.graph.rewrites.preparation import prepared
from aoe.operators.quantised import ROWS_IN_INTEGERS, quantisations_of

Feed = Mapping[str, np.ndarray[Any, Any]]
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
"""Operators with products, which ONNX Runtime computes in integers."""
_LEAST_OPSET = 13
"""Opset with scales per channel."""
_CACHE = "calibration_cache_path"
"""Parameter that keeps ranges from one call to the next. Source: onnxruntime 1.32."""


class QuantizedReach(StrEnum):
    """Operators that are written in integers."""

    ALL = "all operators"
    """Whatever ONNX Runtime has in integers, so that few conversions stand between."""
    PRODUCTS = "products"
    """Convolutions and matrix products alone; what lies between them stays float32."""


def is_quantised(proto: onnx.ModelProto) -> bool:
    """True of a model that rounds numbers to integers and computes with those."""
    known = quantisations_of(node.op_type for node in proto.graph.node)
    return bool(known) or any(map(_rounds_rows, proto.graph.node))


def _rounds_rows(node: onnx.NodeProto) -> bool:
    """True for products by weights of few bits that round the other factor to 8 bits."""
    levels = (said.i for said in node.attribute if said.name == "accuracy_level")
    return node.op_type == "MatMulNBits" and any(level >= ROWS_IN_INTEGERS for level in levels)


class CalibratedQuantizer:
    """Writes a model in integers, again and again with other operators left in float32.

    Args:
        proto: A float32 model with its weights inside.
        folder: Empty directory for files on the way.
        feeds: Inputs ranges are taken from; ONNX Runtime runs the model on them once.
        reduce_range: True for weights of 7 bits, on a CPU that sums products of 8 bits in 16.

    Raises:
        RunError: ONNX Runtime cannot prepare the model.
    """

    def __init__(
        self, proto: onnx.ModelProto, folder: Path, feeds: Iterable[Feed], *, reduce_range: bool
    ) -> None:
        self._folder = folder
        self._feeds = list(feeds)
        self._reduce_range = reduce_range
        self._model = folder / "folded.onnx"
        given = folder / "float32.onnx"
        with _as_run_error("cannot be prepared for integers"), _quiet():
            from onnxruntime.quantization import quant_pre_process

            given.write_bytes(_with_channels(prepared(proto)).SerializeToString())
            quant_pre_process(str(given), str(self._model), skip_symbolic_shape=True)
        folded = onnx.load(str(self._model))
        fold_factors(folded.graph)
        onnx.save(folded, str(self._model))
        self._nodes = {node.name: node for node in folded.graph.node}
        self._clamps_beside_zero = tuple(_clamps_beside_zero(folded.graph))

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the operators with products, in the order of the model."""
        return tuple(name for name, node in self._nodes.items() if node.op_type in PRODUCTS)

    def op_type(self, name: str) -> str:
        """Return the operator type of a product."""
        return str(self._nodes[name].op_type)

    def product_before(self, name: str) -> str | None:
        """Return the nearest product that a product reads, None if there is none."""
        makers = {made: node for node in self._nodes.values() for made in node.output}
        waiting, seen = [self._nodes[name]], {name}
        while waiting:
            for read in waiting.pop(0).input:
                before = makers.get(read)
                if before is None or before.name in seen:
                    continue
                if before.op_type in PRODUCTS:
                    return str(before.name)
                seen.add(before.name)
                waiting.append(before)
        return None

    def quantised(self, products: Iterable[str], reach: QuantizedReach) -> onnx.ModelProto:
        """Return the model with these products in integers, the others in float32.

        Raises:
            RunError: ONNX Runtime's quantiser refuses the model.
        """
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        chosen = frozenset(products)
        made = self._folder / "integers.onnx"
        options: dict[str, Any] = {}
        if _CACHE in inspect.signature(quantize_static).parameters:
            options[_CACHE] = self._folder / f"ranges_{reach.name.lower()}.json"
        if reach is QuantizedReach.PRODUCTS:
            options["op_types_to_quantize"] = list(PRODUCTS)
        with _as_run_error("cannot be written in integers"), _quiet():
            quantize_static(
                str(self._model),
                str(made),
                _Reader(self._feeds),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                reduce_range=self._reduce_range,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=[
                    *(name for name in self.products if name not in chosen),
                    *self._clamps_beside_zero,
                ],
                **options,
            )
        return onnx.load(str(made))


class _Reader:
    """Gives the inputs to ONNX Runtime, whose abstract class is no more than this method."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        """Return the next inputs, None behind the last ones."""
        return next(self._feeds, None)

    def __iter__(self) -> Iterator[Feed]:
        return self._feeds

    def __next__(self) -> Feed:
        return next(self._feeds)


def _clamps_beside_zero(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of Clips whose limits are on one side of 0, or computed.

    The quantiser leaves a Clip in front of a quantised value out, as if the range of the integers
    ended at its limits; but that always has 0 in it. See
    findings/onnxruntime_quantizer_drops_limits_of_clip.sh.
    """
    constants = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type != "Clip":
            continue
        limits = [name for name in node.input[1:] if name]
        known = [numpy_helper.to_array(constants[name]) for name in limits if name in constants]
        low = node.input[1] if len(node.input) > 1 else ""
        beside = any(
            value > 0 if name == low else value < 0
            for name, value in zip(limits, known, strict=False)
        )
        if len(known) < len(limits) or beside:
            yield node.name


def fold_factors(graph: onnx.GraphProto) -> None:
    """Multiply the constants of every Gemm by its `alpha` and `beta`, which become 1.

    The quantiser writes a `beta` of 1 beside a bias it has not multiplied, and `QGemm` has none.
    See findings/onnxruntime_gemm_bias_in_integers.sh. A Gemm with a computed operand keeps its
    factors.
    """
    constants = {one.name: one for one in graph.initializer}
    taken = {*constants, *(name for node in graph.node for name in node.output)}
    for node in graph.node:
        if node.op_type != "Gemm" or node.domain:
            continue
        factors = {one.name: one for one in node.attribute if one.name in ("alpha", "beta")}
        for name, at in (("alpha", 1), ("beta", 2)):
            factor = factors[name].f if name in factors else 1.0
            given = constants.get(node.input[at]) if len(node.input) > at else None
            if factor == 1 or given is None:
                continue
            value = numpy_helper.to_array(given)
            made = numpy_helper.from_array(
                (value * factor).astype(value.dtype), free_name(f"{given.name}_{name}", taken)
            )
            taken.add(made.name)
            graph.initializer.append(made)
            node.input[at] = made.name
            factors[name].f = 1.0


def _with_channels(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model at an opset that has scales per channel."""
    opset = max((one.version for one in proto.opset_import if not one.domain), default=0)
    if opset >= _LEAST_OPSET:
        return proto
    return onnx.version_converter.convert_version(proto, _LEAST_OPSET)


@contextmanager
def _as_run_error(problem: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the quantiser raises whatever it meets, assertions too
        raise RunError("model", f"{problem}: {type(error).__name__}: {error}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantiser's advice to programmers from the screen."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
