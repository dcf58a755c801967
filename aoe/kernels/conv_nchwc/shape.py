"""What a blocked convolution computes, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aoe.kernels.conv_nchwc.padding import without_padding_dropped
from aoe.kernels.conv_nchwc.pointwise import in_long_rows
from aoe.kernels.conv_nchwc.pooling import without_pooling
from aoe.kernels.family import Support
from aoe.kernels.halide.epilogue import Epilogue, split_at_product
from aoe.kernels.halide.prologue import Prologue, read_prologue
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.math.normalization import refuse_activation
from aoe.operators import BLOCKED_CONVOLUTION, integers, number, op_key
from aoe.workload import Layout, Operation, TensorSpec, Workload

X, WEIGHTS, BIAS, SUM = range(4)
"""Positions of the operator's inputs. Source: `com.microsoft.nchwc.Conv`, version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionShape:
    """Extents of one convolution of images.

    Attributes:
        batch: Images.
        channels_in: Channels read, padding of the blocked layout included.
        channels_out: Channels written, likewise.
        height: Rows of an image read.
        width: Columns of an image read.
        rows: Rows of a result.
        columns: Columns of a result.
        kernel: Rows and columns of a filter.
        strides: Rows and columns from one result to the next.
        dilations: Rows and columns from one value of a filter to the next.
        pads: Zeros above, left, below, right.
        block: Channels of one block.
        is_stem: True if the image is plain: fewer channels than a block has.
        groups: Groups of channels that have nothing to do with each other, whole blocks each; as
            many as channels where the convolution is depthwise.
        is_made: True if a chain in front makes the image: it is never read itself.
        pooled: Rows and columns of results of which the largest is written; 1 where all are.
        is_open: True if images have any number of rows and columns: these are for schedules alone.
    """

    batch: int
    channels_in: int
    channels_out: int
    height: int
    width: int
    rows: int
    columns: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    block: int
    is_stem: bool
    groups: int = 1
    is_made: bool = False
    pooled: int = 1
    is_open: bool = False

    @property
    def is_depthwise(self) -> bool:
        """True if every channel has a filter of its own."""
        return self.groups > 1 and self.groups == self.channels_in

    @property
    def blocks_in(self) -> int:
        """Blocks of channels read."""
        return self.channels_in // self.block

    @property
    def blocks_out(self) -> int:
        """Blocks of channels written."""
        return self.channels_out // self.block

    @property
    def blocks_summed(self) -> int:
        """Blocks of channels summed up into one result."""
        return self.blocks_in // self.groups

    @property
    def blocks_together(self) -> int:
        """Blocks of results made of the same channels."""
        return self.blocks_out // self.groups

    @property
    def image_extents(self) -> tuple[int, ...]:
        """Extents of the buffer read, innermost first."""
        if self.is_stem:
            return self.width, self.height, self.channels_in, self.batch
        return self.block, self.width, self.height, self.blocks_in, self.batch

    @property
    def weight_extents(self) -> tuple[int, ...]:
        """Extents of the weights as the host keeps them, innermost first.

        "OIhw16i16o" with AVX-512, "OIhw16o" for a stem, "Ohw16o" for a depthwise convolution.
        """
        rows, columns = self.kernel
        if self.is_depthwise:
            return self.block, columns, rows, self.blocks_out
        if self.is_stem:
            return self.block, columns, rows, self.channels_in, self.blocks_out
        return self.block, self.block, columns, rows, self.blocks_summed, self.blocks_out

    @property
    def summed_extents(self) -> tuple[int, ...]:
        """Extents of the results, and of a tensor that is added to them, innermost first."""
        return self.block, self.columns, self.rows, self.blocks_out, self.batch

    @property
    def result_extents(self) -> tuple[int, ...]:
        """Extents of the buffer written, innermost first."""
        across, down = self.columns // self.pooled, self.rows // self.pooled
        return self.block, across, down, self.blocks_out, self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionPlan:
    """A workload that is one convolution, the chain behind it, and perhaps one in front.

    Attributes:
        workload: All of it but for a pooling at its end.
        shape: What the convolution computes, in numbers.
        epilogue: The chain.
        prologue: The chain in front of it, which makes the image; None where there is none.
    """

    workload: Workload
    shape: ConvolutionShape
    epilogue: Epilogue
    prologue: Prologue | None = None

    @property
    def inputs(self) -> dict[int, int]:
        """Numbers of the workload inputs the operator itself reads, by its positions."""
        read = enumerate(self.epilogue.product.inputs)
        return {at: int(ref[1:]) for at, ref in read if ref.startswith("x")}


def read_convolution(
    workload: Workload, *, takes_long_rows: bool = False
) -> ConvolutionPlan | Support:
    """Return the plan of a blocked convolution, or why the workload is none.

    Args:
        workload: What is computed.
        takes_long_rows: True if a pointwise convolution may be one of images of other rows.
    """
    workload, pooled = without_pooling(workload)
    workload, channels = without_padding_dropped(workload)
    found = _read(workload, pooled, channels)
    if isinstance(found, Support) or not takes_long_rows or workload.is_open:
        return found
    longer = in_long_rows(workload, found.epilogue.product)
    again = found if longer is workload else _read(longer, pooled, channels)
    return found if isinstance(again, Support) else again


def _read(workload: Workload, pooled: int, channels: int) -> ConvolutionPlan | Support:
    """Return the plan of a blocked convolution without its pooling, or why it is none.

    Args:
        workload: What is computed in front of the pooling.
        pooled: See `ConvolutionShape`.
        channels: See `read_prologue`.
    """
    epilogue = split_at_product(workload, takes_front=True)
    if isinstance(epilogue, Support):
        return epilogue
    operation = epilogue.product
    if op_key(operation) != BLOCKED_CONVOLUTION:
        return Support(f"{operation.op_type} is no blocked convolution")
    prologue = _prologue(workload, epilogue, channels)
    if isinstance(prologue, Support):
        return prologue
    made = prologue.made if prologue else None
    specs = [_spec(workload, ref, made) if ref else None for ref in operation.inputs]
    refused = _refusal(operation, workload, specs)
    if refused:
        return Support(refused)
    x, weights = specs[X], specs[WEIGHTS]
    assert x is not None and weights is not None
    top, left, bottom, right = integers(operation, "pads", 4, 0)
    down, along = integers(operation, "strides", 2, 1)
    rows_apart, columns_apart = integers(operation, "dilations", 2, 1)
    shape = ConvolutionShape(
        batch=x.shape[0],
        channels_in=x.shape[1],
        channels_out=weights.shape[0],
        height=x.shape[2],
        width=x.shape[3],
        rows=workload.output.shape[2],
        columns=workload.output.shape[3],
        kernel=(weights.shape[2], weights.shape[3]),
        strides=(down, along),
        dilations=(rows_apart, columns_apart),
        pads=(top, left, bottom, right),
        block=workload.output.block,
        is_stem=x.layout is Layout.PLAIN,
        groups=groups_of(operation),
        is_made=prologue is not None,
        pooled=pooled,
        is_open=workload.is_open,
    )
    return ConvolutionPlan(workload=workload, shape=shape, epilogue=epilogue, prologue=prologue)


def _prologue(workload: Workload, epilogue: Epilogue, channels: int) -> Prologue | Support | None:
    """Return the chain in front of a convolution, None if there is none, or why it has no form."""
    if not epilogue.front:
        return None
    shapes = infer_shapes(workload)
    assert not isinstance(shapes, str)  # they are what the epilogue was split by
    return read_prologue(workload, epilogue.front, shapes, channels)


def _spec(workload: Workload, ref: str, made: TensorSpec | None) -> TensorSpec:
    """Return the operands of a convolution; its image may be `made` in front of it."""
    if ref.startswith("x"):
        return workload.inputs[int(ref[1:])]
    assert made is not None
    return made


def _refusal(operation: Operation, workload: Workload, specs: Sequence[TensorSpec | None]) -> str:
    """Return the reason why an operation is no convolution with constant weights; "" if it is."""
    x, weights, bias, added = (*specs, None, None)[:4]
    block = workload.output.block
    if x is None or weights is None or not weights.constant or not block:
        return "Conv with computed weights"
    if refused := _refused_groups(groups_of(operation), x, weights, block):
        return refused
    if x.layout is Layout.PLAIN and x.shape[1] >= block:
        return f"Conv of a plain tensor with {x.shape[1]} channels"
    if weights.shape[0] % block or len(weights.shape) != 4:
        return f"Conv with weights {weights.shape} in blocks of {block}"
    if bias is not None and (not bias.constant or bias.shape != weights.shape[:1]):
        return "Conv with a computed bias"
    if added is not None and not _is_like(added, workload.output):
        return "Conv that adds a tensor of another shape"
    if str(operation.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", ""):
        return "Conv with automatic padding"
    return refuse_activation(operation)


def groups_of(operation: Operation) -> int:
    """Return the attribute `group` of a convolution."""
    return int(number(operation.attributes, "group", 1))


def _refused_groups(groups: int, x: TensorSpec, weights: TensorSpec, block: int) -> str:
    """Return the reason why the host's blocked convolution has no such groups of channels."""
    if groups < 1 or weights.shape[1] * groups != x.shape[1]:
        return f"Conv in {groups} groups of {weights.shape[1]} channels"
    if groups == 1:
        return ""
    if x.layout is Layout.PLAIN:
        return "Conv of a plain tensor in groups"
    if groups == x.shape[1]:
        return "" if weights.shape[0] == groups else "Conv with several filters for each channel"
    is_whole = weights.shape[1] % block == 0 and weights.shape[0] % (groups * block) == 0
    return "" if is_whole else f"Conv in groups of {weights.shape[1]} channels, no whole blocks"


def _is_like(spec: TensorSpec, output: TensorSpec) -> bool:
    return (spec.shape, spec.layout, spec.block) == (output.shape, output.layout, output.block)
