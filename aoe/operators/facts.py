"""The row of an operator in the table, and the words its fields are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from aoe.workload import AttributeValue, Operation

MICROSOFT_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
KERNEL_DTYPES = frozenset({"float32"})
"""Element types of the tensors kernels compute in, NumPy spelling."""
MOVED_DTYPES = frozenset({"float16", "int8", "uint8", "int16", "uint16"})
"""Element types of tensors kernels move without a look at their values."""
STORED_DTYPES = frozenset({"float16", "int8", "uint8"})
"""Element types of tensors kernels read and make; in between they compute in float32."""
INDEX_DTYPES = frozenset({"int32", "int64"})
"""Element types of indices, which kernels read and make but do not compute with."""
RESULT_NUMBER = "result"
"""Attribute of an operation in a workload: which of several results it is, if not the first."""

OperatorKey = tuple[str, str]
"""(domain, op_type); ONNX's own domain is the empty string."""
Shape = tuple[int, ...]


Attributes = Mapping[str, AttributeValue]


class Named(Protocol):
    """A node of a model or an operation of a workload."""

    @property
    def domain(self) -> str: ...

    @property
    def op_type(self) -> str: ...


def op_key(operator: Named) -> OperatorKey:
    """Return the name by which an operation of a workload, or a node of a model, is looked up."""
    return ("" if operator.domain == "ai.onnx" else operator.domain, operator.op_type)


class OperatorKind(StrEnum):
    """Elements of the inputs that one result of an operator depends on."""

    ELEMENTWISE = "elementwise"
    """One of each; a convolution counts as far as it is depthwise and 1x1."""
    REORDER = "reorder"
    """One, unchanged: only the layout is another."""
    MOVEMENT = "movement"
    """One, unchanged, from another place; or a constant."""
    WINDOW = "window"
    """The neighbours along an axis."""
    AXIS = "axis"
    """All along an axis."""
    PRODUCT = "product"
    """All channels of a neighbourhood: sums of products with weights."""


class Signature(StrEnum):
    """Inputs and result of an operator that are booleans; the others are numbers."""

    NUMBERS = "numbers"
    COMPARISON = "comparison"
    LOGIC = "logic"
    WHERE = "where"
    CAST = "cast"
    """Numbers of one type, which become numbers of another."""
    QUANTIZE = "quantize"
    """Numbers and their scale, which become integers of the type of the zero point."""
    DEQUANTIZE = "dequantize"
    """Integers, which become numbers of the type of their scale."""
    LEVELS = "levels"
    """Integers that stand for numbers, with their scales and zero points: `QuantisedInputs`."""
    MEASURED = "measured"
    """Numbers, which become integers, the scale of these and their zero point: three results."""

    def reads_boolean(self, position: int) -> bool:
        """Return True if an input is a boolean."""
        return self is Signature.LOGIC or (self is Signature.WHERE and position == 0)

    @property
    def makes_boolean(self) -> bool:
        """True if the result is a boolean."""
        return self in (Signature.COMPARISON, Signature.LOGIC)

    @property
    def converts(self) -> bool:
        """True if the type of the result is not that of what is read."""
        return self in (Signature.CAST, Signature.QUANTIZE, Signature.DEQUANTIZE)


class Rounding(StrEnum):
    """Distance allowed between two right implementations of an operator."""

    EXACT = "exact"
    """Not at all: results are chosen or copied, never rounded."""
    STEPS = "steps"
    """Some rounding steps, more where many elements are summed up."""
    SCALE = "scale"
    """As STEPS, or by a small share of the largest result: sums may be taken apart and put
    together in another way, which costs small results more than large ones."""


class Specials(StrEnum):
    """Special values that an operator can be compared on."""

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


def broadcast_shape(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return broadcast(shapes)


def first_shape(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    return shapes[0]


def integers(operation: Operation, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return an attribute of `count` integers; `default` for each if it is not given so."""
    given = operation.attributes.get(name, ())
    if not isinstance(given, tuple) or len(given) != count:
        return (default,) * count
    return tuple(int(item) for item in given)


def number(attributes: Attributes, name: str, default: float) -> float:
    """Return a numeric attribute or its default.

    Raises:
        ValueError: it is no number.
    """
    value = attributes.get(name, default)
    if isinstance(value, str | tuple):
        raise ValueError(f"attribute {name} is not a number (got {value!r})")
    return float(value)


def _one(operation: Operation, shape: Shape) -> int:
    return 1


@dataclass(frozen=True, slots=True)
class ConstantInput:
    """An input that has to be a constant: in a workload it is an attribute of the operation."""

    position: int  # Of the input
    # Of the attribute; where an older version of the operator has it as an attribute, the same.
    name: str
    # Element type, NumPy spelling; empty for that of the levels it is the zero point of.
    dtype: str = "int64"
    is_uniform: bool = False  # True if it is one number, given once or for each channel


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedInputs:
    """Positions of the inputs of an operator that computes with levels."""

    operands: tuple[tuple[int, int, int], ...]  # Levels, scale and zero point of what is read
    # Scale and zero point of the result; without them it is the float32 number.
    result: tuple[int, int]
    bias: int = -1  # int32, in steps of the product of both scales; below 0 where there is none
    makes_sums: bool = False  # True if the result is what products come to, in 32 bits

    @property
    def levels(self) -> frozenset[int]:
        """Inputs that are levels."""
        return frozenset(levels for levels, _, _ in self.operands)

    @property
    def scales(self) -> frozenset[int]:
        """Inputs that are scales, of the result too."""
        return frozenset({self.result[0], *(scale for _, scale, _ in self.operands)})

    @property
    def zero_points(self) -> frozenset[int]:
        """Inputs that are zero points, of the result too."""
        return frozenset({self.result[1], *(zero for _, _, zero in self.operands)})

    @property
    def parameters(self) -> frozenset[int]:
        """Inputs that say what levels stand for: they stay inputs of a workload."""
        return self.scales | self.zero_points


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """A row of the table."""

    kind: OperatorKind = OperatorKind.ELEMENTWISE  # What one result depends on
    inputs: tuple[int, int] = (1, 1)  # Least and most inputs
    since: int = 1  # First version with today's meaning of inputs and broadcasting
    signature: Signature = Signature.NUMBERS  # Where booleans are
    # Shape of the result from the operation and the shapes of its inputs, None if they do not fit.
    shape: Callable[[Operation, Sequence[Shape]], Shape | None] = broadcast_shape
    constants: tuple[ConstantInput, ...] = ()  # Inputs a workload has as attributes
    # Inputs with one value per channel of the first, which do not broadcast; of operators that
    # convert, one value for all, or one per element of an axis.
    per_channel: range = range(0)
    positive: tuple[int, ...] = ()  # Inputs that make NaN of every negative value
    nonzero: tuple[int, ...] = ()  # Inputs that make a pole of zero
    specials: Specials = Specials.ANY  # Special values it is compared on
    rounding: Rounding = Rounding.STEPS  # Whether results are rounded at all
    # Elements summed up into one result, from the operation and the shape of its first input.
    summed: Callable[[Operation, Shape], int] = _one
    takes_prologue: bool = False  # True if a kernel for it also computes the chain in front of it
    indices: tuple[int, ...] = ()  # Inputs that are indices
    # Elements those count, from the operation and the shape of its first input.
    indexed: Callable[[Operation, Shape], int] = _one
    makes_indices: bool = False  # True if its result is indices
    # Inputs with the second factors of products; random ones are scaled, so that sums are standard
    # normal.
    factors: tuple[int, ...] = (1,)
    results: int = 1  # Results it may make, of which a kernel makes any one
    quantised: QuantisedInputs | None = None  # Where its levels are, if it computes with levels

    @property
    def channel_values(self) -> range:
        """Inputs whose only element, if they have one, is that of the only channel."""
        return range(0) if self.signature.converts else self.per_channel
