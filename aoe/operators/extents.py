"""Extents that are open: names, and what windows and scales make of them.

An extent is `(times * base + plus) // over` of another one, written in one way only: equal texts
are equal extents in every run. The text is what ONNX Runtime carries along as a dimension's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

from aoe.operators.facts import OperatorKey, Shape, integers, number, op_key
from aoe.operators.products import BLOCKED_CONVOLUTION
from aoe.operators.windows import same_padding
from aoe.workload import NCHWC_DOMAIN, Operation

Extent = int | str
"""A number, the name of an open extent, or the text of one that follows from it."""
_TIMES = r"(?:(?P<times>-?\d+)\*)"
_MULTIPLE = re.compile(rf"{_TIMES}(?P<base>\w+|\(.+\))")
_QUOTIENT = re.compile(
    rf"\({_TIMES}?(?P<base>[^()]+?|\(.+\))(?P<plus>[+-]\d+)?\)(?://(?P<over>\d+))?"
)
_SAME = ("SAME_UPPER", "SAME_LOWER")
"""Values of `auto_pad` with which there is a window for each `stride` elements."""
_CONVOLUTIONS = frozenset({BLOCKED_CONVOLUTION, ("", "Conv"), ("com.microsoft", "FusedConv")})
_POOLINGS = frozenset(
    (domain, name) for domain in ("", NCHWC_DOMAIN) for name in ("MaxPool", "AveragePool")
)
_GLOBAL = frozenset(
    (domain, f"Global{name}Pool") for domain in ("", NCHWC_DOMAIN) for name in ("Max", "Average")
)
_SAME_IMAGE: frozenset[OperatorKey] = frozenset(
    {("", name) for name in ("BatchNormalization", "InstanceNormalization", "Dropout", "Identity")}
)
_SCALED: frozenset[OperatorKey] = frozenset(
    {("", "Resize"), ("", "Upsample"), (NCHWC_DOMAIN, "Upsample")}
)


@dataclass(frozen=True, slots=True)
class Steps:
    """The extent `(times * base + plus) // over`."""

    base: Extent
    times: int = 1
    plus: int = 0
    over: int = 1

    def __str__(self) -> str:
        base = str(self.base)
        inner = (
            base
            if self.times == 1
            else f"{self.times}*{base if base.isidentifier() else f'({base})'}"
        )
        if self.over == 1 and not self.plus:
            return inner
        inner += f"{self.plus:+d}" if self.plus else ""
        return f"({inner})//{self.over}" if self.over > 1 else f"({inner})"


def steps_of(extent: Extent) -> Steps:
    """Return an extent as steps from the one it follows from; from itself where it is a name.

    A multiple is written as exporters name an input's extent that is one, `32*height`.

    >>> steps_of("(h+1)//2"), steps_of("32*height").times
    (Steps(base='h', times=1, plus=1, over=2), 32)
    """
    for form in (_MULTIPLE, _QUOTIENT):
        match = form.fullmatch(extent) if isinstance(extent, str) else None
        base = match["base"] if match is not None else ""
        base = base[1:-1] if base.startswith("(") else base
        if match is not None and _is_balanced(base):
            given = match.groupdict()
            times, plus, over = (int(given.get(name) or 0) for name in ("times", "plus", "over"))
            return Steps(base, times or 1, plus, over or 1)
    return Steps(extent)


def _is_balanced(text: str) -> bool:
    """True if every parenthesis closes, and none before it opens."""
    depths = [*accumulate((sign == "(") - (sign == ")") for sign in text)]
    return min(depths, default=0) >= 0 and depths[-1:] == [0]


def stepped(base: Extent, *, times: int = 1, plus: int = 0, over: int = 1) -> Extent:
    """Return `(times * base + plus) // over` in its one form.

    >>> stepped(stepped("h", plus=1, over=2), plus=1, over=2), stepped("h", times=2, plus=1, over=2)
    ('(h+3)//4', 'h')
    >>> stepped("32*h", plus=1, over=2), stepped(stepped("h", over=2), times=2)
    ('16*h', '2*((h)//2)')
    """
    if isinstance(base, int):
        return (base * times + plus) // over
    common = gcd(times, over)
    times, plus, over = times // common, plus // common, over // common
    inner = steps_of(base)
    if inner.over == 1:
        base, plus, times = inner.base, inner.plus * times + plus, inner.times * times
    elif times == 1:  # the floor of a floor is one floor
        base, plus, times = inner.base, inner.plus + plus * inner.over, inner.times
        over *= inner.over
    if (times, over) != (1, 1) and (common := gcd(times, over)) > 1:
        return stepped(base, times=times, plus=plus, over=over)
    return base if (times, plus, over) == (1, 0, 1) else str(Steps(base, times, plus, over))


def extent_at(extent: Extent, extents: Mapping[str, int]) -> int | None:
    """Return an extent by the values of names; None where it follows from none of them."""
    if isinstance(extent, int):
        return extent
    if extent in extents:
        return extents[extent]
    steps = steps_of(extent)
    if steps.base == extent:
        multiples = (steps_of(name) for name in extents)
        known = next((one for one in multiples if one.base == extent and one.times > 1), None)
        return None if known is None else extents[str(known)] // known.times
    base = extent_at(steps.base, extents)
    return None if base is None else (base * steps.times + steps.plus) // steps.over


def image_extents(
    operation: Operation, given: Sequence[Extent], kernel: Shape
) -> tuple[Extent, ...] | None:
    """Return rows, columns, ... of the image an operator makes of one, None if it is not known.

    Args:
        operation: A convolution, a pooling, a normalisation, or what enlarges an image.
        given: Extents of the image it reads, behind the channels.
        kernel: Of its weights, the same; empty where it has none, or they are not known.
    """
    key, rank = op_key(operation), len(given)
    if key in _GLOBAL:
        return (1,) * rank
    if key in _SAME_IMAGE:
        return tuple(given)
    if key in _SCALED:
        return _scaled(operation, given)
    padding = str(operation.attributes.get("auto_pad", "NOTSET"))
    rounds_up = bool(operation.attributes.get("ceil_mode", 0))
    strides, dilations = (integers(operation, name, rank, 1) for name in ("strides", "dilations"))
    if padding in _SAME and (key in _CONVOLUTIONS or (key in _POOLINGS and not rounds_up)):
        return tuple(
            stepped(extent, plus=stride - 1, over=stride)
            for extent, stride in zip(given, strides, strict=True)
        )
    if padding in _SAME:
        return None
    pads = (0,) * 2 * rank if padding == "VALID" else integers(operation, "pads", 2 * rank, 0)
    around = [before + behind for before, behind in zip(pads[:rank], pads[rank:], strict=True)]
    size = kernel or integers(operation, "kernel_shape", rank, 0)
    if 0 in size:
        return None
    reach = [apart * (extent - 1) + 1 for apart, extent in zip(dilations, size, strict=True)]
    if key in _POOLINGS and rounds_up:
        if any(map(_may_lose_last, strides, pads[rank:], reach)):
            return None
        around = [pad + stride - 1 for pad, stride in zip(around, strides, strict=True)]
    if key in _CONVOLUTIONS or key in _POOLINGS:
        return tuple(
            stepped(extent, plus=pad - wide + stride, over=stride)
            for extent, pad, wide, stride in zip(given, around, reach, strides, strict=True)
        )
    if key == ("", "ConvTranspose") and "output_shape" not in operation.attributes:
        more = integers(operation, "output_padding", rank, 0)
        return tuple(
            stepped(extent, times=stride, plus=wide - stride - pad + rest)
            for extent, pad, wide, stride, rest in zip(
                given, around, reach, strides, more, strict=True
            )
        )
    return None


def _may_lose_last(stride: int, behind: int, reach: int) -> bool:
    """True if the last window, rounded up, may begin behind the image, and is none then."""
    return stride + behind > reach


def pads_by_extent(operation: Operation, kernel: Shape) -> bool:
    """True if the padding in front of an image depends on its extents.

    `SAME_UPPER` and `SAME_LOWER` put half of the padding there; how much there is depends on what
    the stride leaves of an extent.

    Args:
        operation: A convolution or a pooling.
        kernel: Extents of its weights but channels; empty where it has none.
    """
    padding = str(operation.attributes.get("auto_pad", "NOTSET"))
    if padding not in _SAME:
        return False
    given = operation.attributes.get("kernel_shape", ())
    rank = len(kernel) or (len(given) if isinstance(given, tuple) else 0)
    size = kernel or integers(operation, "kernel_shape", rank, 0)
    strides, dilations = (integers(operation, name, rank, 1) for name in ("strides", "dilations"))
    for stride, dilation, extent in zip(strides, dilations, size, strict=True):
        reach = dilation * (extent - 1) + 1
        every = range(1, stride + 1)
        if len({same_padding(padding, one, stride, reach)[0] for one in every}) > 1:
            return True
    return False


def _scaled(operation: Operation, given: Sequence[Extent]) -> tuple[Extent, ...] | None:
    """Return the extents of an enlarged image; scales are of all dimensions, and whole numbers."""
    scales = operation.attributes.get("scales", ())
    if operation.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if not isinstance(scales, tuple) or len(scales) != len(given) + 2:
        return None
    whole = [round(number({"scale": scale}, "scale", 0)) for scale in scales]
    if list(scales) != whole or whole[:2] != [1, 1] or min(whole) < 1:
        return None
    return tuple(
        stepped(extent, times=scale) for extent, scale in zip(given, whole[2:], strict=True)
    )
