"""What the engine knows about operators: one row each, whoever asks.

The rows say what ONNX and ONNX Runtime define. How an operator is computed is written in the
kernel families, keyed by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Protocol

from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation

MICROSOFT_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
KERNEL_DTYPES = frozenset({"float32"})
"""Element types of the tensors kernels read and write, NumPy spelling."""
SOFTMAX_ONE_AXIS_SINCE = 13
"""Version from which Softmax works on one axis, not on all from `axis` to the last."""
_ANY_NUMBER = 32  # inputs of a variadic operator

OperatorKey = tuple[str, str]
"""(domain, op_type); ONNX's own domain is the empty string."""
Shape = tuple[int, ...]


Attributes = Mapping[str, AttributeValue]


class _Named(Protocol):
    @property
    def domain(self) -> str: ...

    @property
    def op_type(self) -> str: ...


def op_key(operator: _Named) -> OperatorKey:
    """Return the name by which an operation of a workload, or a node of a model, is looked up."""
    return ("" if operator.domain == "ai.onnx" else operator.domain, operator.op_type)


class OperatorKind(StrEnum):
    """Which elements of its inputs one result of an operator depends on."""

    ELEMENTWISE = "elementwise"
    """One of each; a convolution counts as far as it is depthwise and 1x1."""
    REORDER = "reorder"
    """One, unchanged: only the layout is another."""
    WINDOW = "window"
    """The neighbours along an axis."""
    AXIS = "axis"
    """All along an axis."""
    PRODUCT = "product"
    """All channels of a neighbourhood: sums of products with weights."""


class Signature(StrEnum):
    """Which inputs and which result of an operator are booleans; the others are float32."""

    NUMBERS = "numbers"
    COMPARISON = "comparison"
    LOGIC = "logic"
    WHERE = "where"

    def reads_boolean(self, position: int) -> bool:
        """Return True if an input is a boolean."""
        return self is Signature.LOGIC or (self is Signature.WHERE and position == 0)

    @property
    def makes_boolean(self) -> bool:
        """True if the result is a boolean."""
        return self in (Signature.COMPARISON, Signature.LOGIC)


class Rounding(StrEnum):
    """How far two right implementations of an operator may be apart."""

    EXACT = "exact"
    """Not at all: results are chosen or copied, never rounded."""
    STEPS = "steps"
    """Some rounding steps, more where many elements are summed up."""
    SCALE = "scale"
    """As STEPS, or by a small share of the largest result: sums may be taken apart and put
    together in another way, which costs small results more than large ones."""


class Specials(StrEnum):
    """Which special values an operator can be compared on."""

    ANY = "any"
    """All of them, everywhere."""
    FEW = "few"
    """All of them, but few: one NaN reaches many results."""
    SUMMED = "summed"
    """Few, infinities and NaN too, but no finite ones so large that a sum of products may
    overflow in one order and not in another."""
    MODERATE = "moderate"
    """Few, finite and small: ONNX Runtime's LRN keeps a running sum, out of which a large square
    does not come again, and a convolution that transforms tiles spreads a large value, an
    infinity or a NaN over its tile."""


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of a multidirectional broadcast, None if the shapes do not fit.

    >>> broadcast([(64, 1, 1), (1, 64, 7, 7), ()])
    (1, 64, 7, 7)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for at, extent in enumerate(shape, start=rank - len(shape)):
            if extent != 1 and result[at] not in (1, extent):
                return None
            result[at] = max(result[at], extent)
    return tuple(result)


def _broadcast(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return broadcast(shapes)


def _first(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    return shapes[0]


def convolved(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (N, O, rows, columns, ...) of a convolution with explicit padding."""
    data, weights = shapes[0], shapes[1]
    kernel = weights[2:]
    rank = len(kernel)
    if len(data) != rank + 2:
        return None
    strides, dilations = (integers(operation, name, rank, 1) for name in ("strides", "dilations"))
    pads = integers(operation, "pads", 2 * rank, 0)
    extents = tuple(
        (data[2 + at] + pads[at] + pads[rank + at] - dilations[at] * (kernel[at] - 1) - 1)
        // strides[at]
        + 1
        for at in range(rank)
    )
    return (data[0], weights[0], *extents)


def integers(operation: Operation, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return an attribute of `count` integers; `default` for each if it is not given so."""
    given = operation.attributes.get(name, ())
    if not isinstance(given, tuple) or len(given) != count:
        return (default,) * count
    return tuple(int(item) for item in given)


def _multiplied(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (..., M, N) of a matrix product, either matrix transposed where attributes say so."""
    left, right = (
        turned(shape, operation.attributes.get(name, 0))
        for shape, name in zip(shapes, ("transA", "transB"), strict=False)
    )
    if not left or not right:
        return None
    depth = right[-2] if len(right) > 1 else right[-1]
    batch = broadcast([left[:-2], right[:-2]])
    if batch is None or left[-1] != depth:
        return None
    rows = left[-2:-1] if len(left) > 1 else ()
    columns = right[-1:] if len(right) > 1 else ()
    return (*batch, *rows, *columns)


def turned(shape: Shape, transposed: object) -> Shape:
    """Return the shape of a matrix, or of a batch of them, its last two axes swapped if asked."""
    return (*shape[:-2], shape[-1], shape[-2]) if transposed and len(shape) > 1 else shape


def _one(operation: Operation, shape: Shape) -> int:
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """A row of the table.

    Attributes:
        kind: What one result depends on.
        inputs: Least and most inputs.
        since: First version with today's meaning of inputs and broadcasting.
        signature: Where booleans are.
        shape: Shape of the result from the operation and the shapes of its inputs, None if
            they do not fit.
        per_channel: Inputs with one value per channel of the first, which do not broadcast.
        positive: Inputs that make NaN of every negative value.
        nonzero: Inputs that make a pole of zero.
        specials: Special values it is compared on.
        rounding: Whether results are rounded at all.
        summed: Elements summed up into one result, from the operation and the shape of its first
            input.
    """

    kind: OperatorKind = OperatorKind.ELEMENTWISE
    inputs: tuple[int, int] = (1, 1)
    since: int = 1
    signature: Signature = Signature.NUMBERS
    shape: Callable[[Operation, Sequence[Shape]], Shape | None] = _broadcast
    per_channel: range = range(0)
    positive: tuple[int, ...] = ()
    nonzero: tuple[int, ...] = ()
    specials: Specials = Specials.ANY
    rounding: Rounding = Rounding.STEPS
    summed: Callable[[Operation, Shape], int] = _one


def number(attributes: Attributes, name: str, default: float) -> float:
    """Return a numeric attribute or its default.

    Raises:
        ValueError: it is no number.
    """
    value = attributes.get(name, default)
    if isinstance(value, str | tuple):
        raise ValueError(f"attribute {name} is not a number (got {value!r})")
    return float(value)


def softmax_axis(operation: Operation) -> int:
    """Return the `axis` of a Softmax or LogSoftmax, its default filled in."""
    default = -1 if operation.version >= SOFTMAX_ONE_AXIS_SINCE else 1
    return int(number(operation.attributes, "axis", default))


def _softmax_length(operation: Operation, shape: Shape) -> int:
    axis = softmax_axis(operation)
    one_axis = operation.version >= SOFTMAX_ONE_AXIS_SINCE
    return shape[axis] if one_axis else prod(shape[axis:])


def _lrn_window(operation: Operation, shape: Shape) -> int:
    return int(number(operation.attributes, "size", 1))


def _depth(operation: Operation, shape: Shape) -> int:
    return turned(shape, operation.attributes.get("transA", 0))[-1]


def _filter_size(operation: Operation, shape: Shape) -> int:
    kernel = operation.attributes.get("kernel_shape", ())
    assert isinstance(kernel, tuple)
    groups = int(number(operation.attributes, "group", 1))
    return shape[1] // groups * prod(int(extent) for extent in kernel)


_UNARY = OperatorFacts()
_EXACT = OperatorFacts(rounding=Rounding.EXACT)
_BINARY = OperatorFacts(inputs=(2, 2), since=7)
_VARIADIC = OperatorFacts(inputs=(1, _ANY_NUMBER))
_EXACT_VARIADIC = OperatorFacts(inputs=(1, _ANY_NUMBER), rounding=Rounding.EXACT)
_COMPARISON = OperatorFacts(
    inputs=(2, 2), since=7, signature=Signature.COMPARISON, rounding=Rounding.EXACT
)
_LOGIC = OperatorFacts(inputs=(2, 2), since=7, signature=Signature.LOGIC, rounding=Rounding.EXACT)
_REORDER = OperatorFacts(kind=OperatorKind.REORDER, shape=_first, rounding=Rounding.EXACT)
_SOFTMAX = OperatorFacts(
    kind=OperatorKind.AXIS, shape=_first, specials=Specials.FEW, summed=_softmax_length
)

_DENSE_CONVOLUTION = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(2, 4),
    shape=convolved,
    specials=Specials.MODERATE,
    rounding=Rounding.SCALE,
    summed=_filter_size,
)
"""ONNX Runtime's blocked convolution, but for the one that scales channels."""

_MATRIX_PRODUCT = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(2, 2),
    shape=_multiplied,
    specials=Specials.SUMMED,
    summed=_depth,
)
_GENERAL_PRODUCT = replace(_MATRIX_PRODUCT, inputs=(2, 3), since=7)

BLOCKED_CONVOLUTION: OperatorKey = (NCHWC_DOMAIN, "Conv")
REORDER_INPUT: OperatorKey = (NCHWC_DOMAIN, "ReorderInput")
REORDER_OUTPUT: OperatorKey = (NCHWC_DOMAIN, "ReorderOutput")

OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "Abs"): _EXACT,
    ("", "Add"): _BINARY,
    ("", "And"): _LOGIC,
    ("", "BatchNormalization"): OperatorFacts(
        inputs=(5, 5), since=7, shape=_first, per_channel=range(1, 5), positive=(4,)
    ),
    ("", "Ceil"): _EXACT,
    ("", "Celu"): _UNARY,
    ("", "Clip"): OperatorFacts(inputs=(1, 3), rounding=Rounding.EXACT),
    ("", "Cos"): _UNARY,
    ("", "Div"): OperatorFacts(inputs=(2, 2), since=7, nonzero=(1,)),
    ("", "Dropout"): OperatorFacts(inputs=(1, 3), since=7, shape=_first, rounding=Rounding.EXACT),
    ("", "Elu"): _UNARY,
    ("", "Equal"): _COMPARISON,
    ("", "Erf"): _UNARY,
    ("", "Exp"): _UNARY,
    ("", "Floor"): _EXACT,
    ("", "Gelu"): _UNARY,
    ("", "Gemm"): _GENERAL_PRODUCT,
    ("", "Greater"): _COMPARISON,
    ("", "GreaterOrEqual"): _COMPARISON,
    ("", "HardSigmoid"): _UNARY,
    ("", "HardSwish"): _UNARY,
    ("", "Identity"): _EXACT,
    ("", "IsNaN"): OperatorFacts(signature=Signature.COMPARISON, rounding=Rounding.EXACT),
    ("", "LRN"): OperatorFacts(
        kind=OperatorKind.WINDOW, shape=_first, specials=Specials.MODERATE, summed=_lrn_window
    ),
    ("", "LeakyRelu"): _UNARY,
    ("", "Less"): _COMPARISON,
    ("", "LessOrEqual"): _COMPARISON,
    ("", "Log"): OperatorFacts(positive=(0,)),
    ("", "LogSoftmax"): _SOFTMAX,
    ("", "MatMul"): _MATRIX_PRODUCT,
    ("", "Max"): _EXACT_VARIADIC,
    ("", "Mean"): _VARIADIC,
    ("", "Min"): _EXACT_VARIADIC,
    ("", "Mish"): _UNARY,
    ("", "Mul"): _BINARY,
    ("", "Neg"): _EXACT,
    ("", "Not"): OperatorFacts(signature=Signature.LOGIC, rounding=Rounding.EXACT),
    ("", "Or"): _LOGIC,
    ("", "PRelu"): _BINARY,
    ("", "Pow"): OperatorFacts(inputs=(2, 2), since=7, positive=(0,)),
    ("", "Reciprocal"): OperatorFacts(nonzero=(0,)),
    ("", "Relu"): _EXACT,
    ("", "Round"): _EXACT,
    ("", "Selu"): _UNARY,
    ("", "Shrink"): _UNARY,
    ("", "Sigmoid"): _UNARY,
    ("", "Sign"): _EXACT,
    ("", "Sin"): _UNARY,
    ("", "Softmax"): _SOFTMAX,
    ("", "Softplus"): _UNARY,
    ("", "Softsign"): _UNARY,
    ("", "Sqrt"): OperatorFacts(positive=(0,)),
    ("", "Sub"): _BINARY,
    ("", "Sum"): _VARIADIC,
    ("", "Swish"): _UNARY,
    ("", "Tanh"): _UNARY,
    ("", "ThresholdedRelu"): _EXACT,
    ("", "Where"): OperatorFacts(inputs=(3, 3), signature=Signature.WHERE, rounding=Rounding.EXACT),
    ("", "Xor"): _LOGIC,
    (MICROSOFT_DOMAIN, "BiasGelu"): OperatorFacts(inputs=(2, 2)),
    (MICROSOFT_DOMAIN, "FastGelu"): OperatorFacts(inputs=(1, 2)),
    (MICROSOFT_DOMAIN, "FusedGemm"): _GENERAL_PRODUCT,
    (MICROSOFT_DOMAIN, "FusedMatMul"): _MATRIX_PRODUCT,
    (MICROSOFT_DOMAIN, "Gelu"): _UNARY,
    (MICROSOFT_DOMAIN, "QuickGelu"): _UNARY,
    BLOCKED_CONVOLUTION: OperatorFacts(inputs=(2, 3), shape=_first, per_channel=range(1, 3)),
    REORDER_INPUT: _REORDER,
    REORDER_OUTPUT: _REORDER,
}
"""Every operator a workload may hold."""


def facts_of(operation: Operation) -> OperatorFacts:
    """Return the row of an operation of a workload.

    Raises:
        ValueError: the table has none.
    """
    if op_key(operation) == BLOCKED_CONVOLUTION and not _scales_channels(operation):
        return _DENSE_CONVOLUTION
    found = OPERATORS.get(op_key(operation))
    if found is None:
        raise ValueError(
            f"operator: unknown (got {operation.domain or 'ai.onnx'}:{operation.op_type})"
        )
    return found


def _scales_channels(convolution: Operation) -> bool:
    """Return True for the form in which ONNX Runtime leaves a BatchNormalization or a scale."""
    group = convolution.attributes.get("group", 1)
    kernel = convolution.attributes.get("kernel_shape", ())
    return group != 1 and isinstance(kernel, tuple) and all(extent == 1 for extent in kernel)


def is_reorder(operator: _Named) -> bool:
    """Return True for operators that change the layout and no value."""
    return op_key(operator) in (REORDER_INPUT, REORDER_OUTPUT)
