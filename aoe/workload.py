"""What is computed: one operator or a fused subgraph, free of model names and of schedules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

NCHWC_DOMAIN = "com.microsoft.nchwc"
"""Domain of ONNX Runtime's blocked-layout operators. Source: the optimised models it writes."""

KERNEL_DOMAIN = "aoe"
"""Domain of nodes that a generated kernel computes."""

TRAINING_CONVOLUTION, TRAINING_LOOP = "training_convolution", "training_loop"
"""Op types of parts of a training graph, whose weights change at each step."""
_GEOMETRY = ("kernel_shape", "strides", "dilations")

AttributeValue = float | int | str | tuple[int, ...] | tuple[float, ...]


class Layout(StrEnum):
    """How the elements of a tensor lie in memory."""

    PLAIN = "plain"
    """Row-major in the order of the shape (NCHW for images)."""
    BLOCKED = "blocked"
    """Shape (N, C, H, W), memory (N, C/block, H, W, block): ONNX Runtime's NCHWc."""


class Precision(StrEnum):
    """How the products of a workload may be computed, the most exact one first.

    Tensors of numbers are always float32, and so are sums, but for those of integers.
    """

    STRICT_FLOAT32 = "strict_float32"
    """As ONNX Runtime does, but for the order of sums: nothing is transformed before or after."""
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Factors rounded to 8 bits of mantissa, with the exponents of float32."""
    INT8 = "int8"
    """Factors rounded to 8 bits of the range of their row or column, and summed as integers."""
    INT4 = "int4"
    """The same, weights rounded to 4 bits of the range of a block of their column."""

    @property
    def is_lower(self) -> bool:
        """True if factors are rounded."""
        return self.rank > Precision.FLOAT32.rank

    @property
    def rank(self) -> int:
        """Place among the precisions: the higher, the less exact."""
        return list(Precision).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape, type and layout of a tensor."""

    # Extents as ONNX Runtime reports them; for a blocked tensor (N, C, H, W) where C is a multiple
    # of `block`.
    shape: tuple[int, ...]
    # Element type, NumPy spelling: float32, or int32 or int64 where it holds indices.
    dtype: str = "float32"
    layout: Layout = Layout.PLAIN  # Order of the elements in memory
    block: int = 0  # Channels per block of a blocked tensor, else 0
    constant: bool = False  # True if the tensor is an initializer of the model
    # Axes along which a kernel takes any extent; `shape` says those it is measured at.
    open: tuple[int, ...] = ()
    # Elements from one place of an axis to the next; empty where memory has the order of the shape.
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(extent < 1 for extent in self.shape):
            raise ValueError(f"extents must be positive (got {self.shape})")
        if self.layout is Layout.BLOCKED and (
            len(self.shape) != 4 or self.block < 1 or self.shape[1] % self.block
        ):
            raise ValueError(
                f"a blocked tensor has shape (N, C, H, W) with C a multiple of its block "
                f"(got {self.shape}, block {self.block})"
            )
        if self.layout is Layout.PLAIN and self.block:
            raise ValueError(f"a plain tensor has no block (got {self.block})")
        if any(not 0 <= axis < len(self.shape) for axis in self.open):
            raise ValueError(f"open axes of a tensor of {len(self.shape)} (got {self.open})")
        if self.strides and len(self.strides) != len(self.shape):
            raise ValueError(f"a stride for each of {len(self.shape)} axes (got {self.strides})")

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def layout_name(self) -> str:
        """`ND`, `NCHW` or `NCHW16c`, as it is written in a record."""
        if self.layout is Layout.BLOCKED:
            return f"NCHW{self.block}c"
        return "NCHW" if len(self.shape) == 4 else "ND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One ONNX operator inside a workload."""

    op_type: str  # Operator name, for example `PRelu`
    domain: str = ""  # Operator domain, empty for ONNX's own
    version: int = 1  # `since_version` of the operator's schema: fixes its meaning for all opsets
    # References to workload inputs (`x0`), scalars (`s0`) or results (`t0`); an omitted optional
    # input is the empty string.
    inputs: tuple[str, ...]
    output: str  # Reference of the single result, `t0`, `t1`, ..
    # Attributes given in the model; defaults are not filled in.
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A connected computation: the thing that is looked up and tuned.

    It has one result, but for a region of a training graph, which may have several.
    """

    op_type: str  # Kernel family that computes it; names the bank file, for example `lrn`
    # Tensors read, in the order of the kernel's arguments; referred to as `x<i>`.
    inputs: tuple[TensorSpec, ...]
    # Constants of one element, known when the kernel is compiled; `s<i>`.
    scalars: tuple[float, ...] = ()
    # The operators in topological order; the last one makes the result.
    operations: tuple[Operation, ...]
    output: TensorSpec  # The result; of several the first one
    others: tuple[TensorSpec, ...] = ()  # Further results
    # References of all results; empty where the last operation makes the only one.
    results: tuple[str, ...] = ()
    # How products may be computed. The tuner weighs a workload of lower precision against the same
    # one in float32, so a family offers for either only algorithms of that precision; their names
    # tell, see `aoe.kernels.algorithms`.
    precision: Precision = Precision.FLOAT32

    def __post_init__(self) -> None:
        known = {f"x{i}" for i in range(len(self.inputs))}
        known |= {f"s{i}" for i in range(len(self.scalars))} | {""}
        for operation in self.operations:
            unknown = [ref for ref in operation.inputs if ref not in known]
            if unknown:
                raise ValueError(f"{operation.op_type} reads {unknown}, which nothing defines")
            known.add(operation.output)
        if not self.operations:
            raise ValueError("a workload has at least one operation")
        has_names = bool(self.results or self.others)
        if has_names and (len(self.results) != 1 + len(self.others) or set(self.results) - known):
            raise ValueError(f"a reference for each result (got {self.results})")

    @property
    def opset(self) -> int:
        """Smallest ONNX opset in which every operation has its recorded version."""
        return max((op.version for op in self.operations if not op.domain), default=1)

    @property
    def result(self) -> str:
        """Reference of the result."""
        return self.operations[-1].output

    @property
    def is_open(self) -> bool:
        """True if the kernel takes any extents along some axes."""
        return bool(self.output.open)

    @property
    def blocked(self) -> bool:
        """True if the kernel computes in the blocked layout."""
        return self.output.layout is Layout.BLOCKED


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """Return the JSON value that stands for `workload` in a record (CANN `info_dict`).

    Member order is fixed: a record key is a hash over this value's text. `precision` is there
    only if it is not float32, so that it tells keys apart and leaves those of float32 alone; the
    members on results likewise where the last operation makes the only one.
    """
    value: dict[str, Any] = {
        "op_type": workload.op_type,
        "inputs": [_spec_to_json(spec) for spec in workload.inputs],
        "scalars": list(workload.scalars),
        "operations": [_operation_to_json(operation) for operation in workload.operations],
        "output": _spec_to_json(workload.output),
    }
    if workload.results:
        value["others"] = [_spec_to_json(spec) for spec in workload.others]
        value["results"] = list(workload.results)
    if workload.precision is not Precision.FLOAT32:
        value["precision"] = workload.precision.value
    return value


def workload_from_json(value: Mapping[str, Any]) -> Workload:
    """Return the workload a record's `info_dict` describes.

    Raises:
        ValueError: a member is missing, mistyped or contradicts another one.
    """
    try:
        return Workload(
            op_type=value["op_type"],
            inputs=tuple(_spec_from_json(item) for item in value["inputs"]),
            scalars=tuple(float(item) for item in value["scalars"]),
            operations=tuple(_operation_from_json(item) for item in value["operations"]),
            output=_spec_from_json(value["output"]),
            others=tuple(_spec_from_json(item) for item in value.get("others", ())),
            results=tuple(str(ref) for ref in value.get("results", ())),
            precision=Precision(value.get("precision", Precision.FLOAT32)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a workload of this engine: {error!r}") from error


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    value: dict[str, Any] = {
        "shape": list(spec.shape),
        "dtype": spec.dtype,
        "layout": spec.layout_name,
    }
    if spec.constant:
        value["constant"] = True
    if spec.open:
        value["open"] = list(spec.open)
    if spec.strides:
        value["strides"] = list(spec.strides)
    return value


def _spec_from_json(value: Mapping[str, Any]) -> TensorSpec:
    name = value["layout"]
    block = int(name[4:-1]) if name.startswith("NCHW") and name.endswith("c") else 0
    return TensorSpec(
        shape=tuple(int(extent) for extent in value["shape"]),
        dtype=str(value["dtype"]),
        layout=Layout.BLOCKED if block else Layout.PLAIN,
        block=block,
        constant=bool(value.get("constant", False)),
        open=tuple(int(axis) for axis in value.get("open", ())),
        strides=tuple(int(step) for step in value.get("strides", ())),
    )


def _operation_to_json(operation: Operation) -> dict[str, Any]:
    name = f"{operation.domain}:{operation.op_type}" if operation.domain else operation.op_type
    return {
        "op": name,
        "version": operation.version,
        "in": list(operation.inputs),
        "out": operation.output,
        "attr": {key: _plain(item) for key, item in sorted(operation.attributes.items())},
    }


def _operation_from_json(value: Mapping[str, Any]) -> Operation:
    domain, _, op_type = str(value["op"]).rpartition(":")
    return Operation(
        op_type=op_type,
        domain=domain,
        version=int(value["version"]),
        inputs=tuple(str(ref) for ref in value["in"]),
        output=str(value["out"]),
        attributes={key: _frozen(item) for key, item in value["attr"].items()},
    )


def _plain(value: AttributeValue) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def shape_text(shape: Sequence[int] | None) -> str:
    """Return the extents of a shape with an x between them; a question mark for none."""
    return "?" if shape is None else "x".join(map(str, shape)) or "scalar"


def shapes_text(shapes: Mapping[str, Sequence[int | str]]) -> str:
    """Return shapes by input name as `--input_shape` takes them."""
    return ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())


def gain_kind(workload: Workload) -> Hashable:
    """Return the properties workloads share whose gains predict each other: all but extents."""
    operations = tuple(
        (
            operation.op_type,
            *(operation.attributes.get(name) for name in _GEOMETRY),
            operation.attributes.get("group", 1) == 1,
        )
        for operation in workload.operations
    )
    return workload.precision, operations
