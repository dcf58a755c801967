"""Operators that sum up, or choose from, a window around each result: pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from aoe.operators.facts import (
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    Shape,
    Specials,
    integers,
    number,
)
from aoe.workload import NCHWC_DOMAIN, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window along one dimension."""

    extent: int  # Elements there are
    size: int  # Elements of a window
    stride: int  # From one window to the next
    dilation: int  # From one element of a window to the next
    before: int  # Padding in front of the first element
    behind: int  # Padding behind the last
    made: int  # Windows there are

    @property
    def reach(self) -> int:
        """Elements from the first of a window to its last, both counted."""
        return self.dilation * (self.size - 1) + 1

    @property
    def is_inside(self) -> bool:
        """True if no window reaches beyond the elements there are."""
        return self.before == 0 and self.end <= self.extent

    @property
    def is_inside_padding(self) -> bool:
        """True if no window reaches beyond the padding: rounded up, the last one may."""
        return self.end <= self.extent + self.behind

    @property
    def end(self) -> int:
        """End of the last window, counted from the first element there is."""
        return (self.made - 1) * self.stride - self.before + self.reach


def same_padding(rule: str, extent: int, stride: int, reach: int) -> tuple[int, int]:
    """Return the elements `SAME_UPPER` or `SAME_LOWER` adds before and behind an axis.

    Args:
        rule: Which of them; an odd element goes behind, or before.
        extent: Elements of the axis.
        stride: From one window to the next.
        reach: Elements from the first of a window to its last, both counted.
    """
    total = max(0, (-(-extent // stride) - 1) * stride + reach - extent)
    before = total // 2 if rule == "SAME_UPPER" else total - total // 2
    return before, total - before


def windows_of(operation: Operation, shape: Shape) -> tuple[Window, ...]:
    """Return the windows of a pooling along its dimensions behind the channels.

    Raises:
        ValueError: the attributes contradict each other.
    """
    rank = len(shape) - 2
    kernel = operation.attributes.get("kernel_shape", ())
    if rank < 1 or not isinstance(kernel, tuple) or len(kernel) != rank:
        raise ValueError(f"{operation.op_type}: windows {kernel} in {shape}")
    strides, dilations = (integers(operation, name, rank, 1) for name in ("strides", "dilations"))
    pads = integers(operation, "pads", 2 * rank, 0)
    rounds_up = bool(operation.attributes.get("ceil_mode", 0))
    padding = str(operation.attributes.get("auto_pad", "NOTSET"))
    found = []
    for at, extent in enumerate(shape[2:]):
        size, stride, dilation = int(kernel[at]), strides[at], dilations[at]
        before, behind = pads[at], pads[rank + at]
        reach = dilation * (size - 1) + 1
        if padding.startswith("SAME"):
            before, behind = same_padding(padding, extent, stride, reach)
        elif padding == "VALID":
            before = behind = 0
        steps, left = divmod(extent + before + behind - reach, stride)
        made = steps + 1 + (rounds_up and left > 0)
        made -= rounds_up and (made - 1) * stride >= extent + before
        found.append(
            Window(
                extent=extent,
                size=size,
                stride=stride,
                dilation=dilation,
                before=before,
                behind=behind,
                made=made,
            )
        )
    return tuple(found)


def _pooled(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    try:
        windows = windows_of(operation, shapes[0])
    except (ValueError, ZeroDivisionError):
        return None
    made = tuple(window.made for window in windows)
    return (*shapes[0][:2], *made) if all(count > 0 for count in made) else None


def _window_size(operation: Operation, shape: Shape) -> int:
    kernel = operation.attributes.get("kernel_shape", ())
    assert isinstance(kernel, tuple)
    return prod(int(number({"size": size}, "size", 1)) for size in kernel)


_LARGEST = OperatorFacts(
    kind=OperatorKind.WINDOW, shape=_pooled, specials=Specials.FEW, rounding=Rounding.EXACT
)
"""ONNX Runtime's largest of a window with NaN in it depends on where it is: see `nan_reach`."""
_MEAN = OperatorFacts(
    kind=OperatorKind.WINDOW, shape=_pooled, specials=Specials.SUMMED, summed=_window_size
)

WINDOW_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "AveragePool"): _MEAN,
    ("", "LpPool"): replace(_MEAN, since=2),
    ("", "MaxPool"): _LARGEST,
    (NCHWC_DOMAIN, "AveragePool"): _MEAN,
    (NCHWC_DOMAIN, "MaxPool"): _LARGEST,
}
