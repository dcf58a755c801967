"""A region of a training graph as values: operators on elements, and sums along axes.

Normalisations, softmax and their gradients are taken apart into these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aoe.torch.modules.training.c_expressions import EXPRESSIONS
from aoe.torch.modules.training.regions import Laid, RegionForm, name_of, results_of

_RESHAPED = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias"})
_PERMUTED = frozenset({"permute", "transpose", "t"})
_COPIED = frozenset({"clone", "detach", "to", "_to_copy", "expand", "contiguous"})
_SUMS = frozenset({"add", "sum"})
_SCALED = {"add": 1, "sub": 1, "rsub": 0}
"""Operators with an `alpha`, and the place of the argument it multiplies."""
_TWO_BOUNDS = {"clamp_min": "maximum", "clamp_max": "minimum"}
"""What bounds are that are tensors."""
_MOST_EXACT = 1 << 24
"""Integers up to which floats are exact."""
_MEAN = 1  # Of `at::Reduction`


class Refused(Exception):
    """A region this file has no loop for; the text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of the region: an operator on others, or an argument."""

    operator: str  # "load", "position", "sum", "max", or a name in `EXPRESSIONS`
    shape: tuple[int, ...]
    inputs: tuple[Value | float, ...] = ()
    argument: int = -1  # Number of the argument that is loaded
    strides: tuple[int, ...] = ()  # Of the argument that is loaded, or of what counts positions
    axes: frozenset[int] = frozenset()  # Axes of its input which a sum or maximum reduces

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(one for one in self.inputs if isinstance(one, Value))


class Tracer:
    """Turns the operators of a region into values."""

    def __init__(self, module: torch.fx.GraphModule, form: RegionForm) -> None:
        self._module = module
        self._form = form
        self._values: dict[torch.fx.Node, Any] = {}

    def results(self) -> list[Value]:
        """Return the values the region makes.

        Raises:
            Refused: an operator has no expression.
        """
        given = iter(enumerate(self._form.arguments))
        for node, shapes in _shapes(self._module, self._form):
            if node.op == "placeholder":
                number, laid = next(given)
                self._values[node] = laid
                if isinstance(laid, Laid):
                    self._values[node] = Value(
                        "load", laid.shape, argument=number, strides=laid.strides
                    )
            elif node.op == "call_function":
                arguments, keywords = torch.fx.map_arg(
                    (node.args, node.kwargs), self._values.__getitem__
                )
                if name_of(node) in EXPRESSIONS:
                    arguments = (*arguments, *_defaults(node))
                self._values[node] = self._computed(name_of(node), shapes, arguments, keywords)
            elif node.op == "output":
                made = torch.fx.map_arg(node.args[0], self._values.__getitem__)
                return list(results_of(made))
        raise Refused("no result")

    def _computed(
        self, name: str, shapes: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        if name == "getitem":
            return arguments[0][arguments[1]]
        if name in _PERMUTED:
            return _permuted(name, *arguments)
        if name in _RESHAPED:
            return _reshaped(arguments[0], shapes)
        if name in _COPIED:
            if torch.bool in (keywords.get("dtype"), *arguments[1:2]):
                return mapped("ne", shapes, arguments[0], 0.0)  # NaN is true
            if keywords.get("dtype") is torch.bfloat16:
                return mapped("to_bfloat16", shapes, arguments[0])
            return mapped("copy", shapes, arguments[0])
        if name == "copy":  # of `copy_`: in `EXPRESSIONS` it is what loops call a copy
            raise Refused("copy: what is overwritten may have another type")
        if name in _COMPOSED:
            return _COMPOSED[name](shapes, *arguments, **keywords)
        if name in _TWO_BOUNDS and isinstance(arguments[1], Value):
            name = _TWO_BOUNDS[name]  # NaN of a bound stays, too
        if name in _SCALED and len(arguments) > 2:  # of the overloads for numbers
            arguments, keywords = arguments[:2], {**keywords, "alpha": arguments[2]}
        if name == "pow" and isinstance(arguments[1], int | float):
            name, arguments = f"pow_{float(arguments[1])}", arguments[:1]
        if name in EXPRESSIONS:
            if any(value is not None and key != "dtype" for key, value in keywords.items()):
                return self._scaled(name, shapes, arguments, keywords)
            return mapped(name, shapes, *arguments)
        raise Refused(f"{name}: no expression")

    def _scaled(
        self, name: str, shapes: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Value:
        if name in _SCALED and set(keywords) == {"alpha"}:
            given, at = list(arguments), _SCALED[name]
            if keywords["alpha"] != 1:
                given[at] = mapped("mul", _shape_of(given[at]), given[at], keywords["alpha"])
            return mapped(name, shapes, *given)
        if name in ("gelu", "gelu_backward") and set(keywords) == {"approximate"}:
            if keywords["approximate"] == "tanh":
                name += "_tanh"
            return mapped(name, shapes, *arguments)
        raise Refused(f"{name}: {', '.join(keywords)}")


def _shapes(module: torch.fx.GraphModule, form: RegionForm) -> Iterator[tuple[torch.fx.Node, Any]]:
    """Yield the operators of a region with the shapes of their results in a form.

    Raises:
        Refused: masks are added up, which are 0 and 1 in a loop.
    """
    found = _traced_values(module, form) or _computed_values(module, form)
    for node, made in found.items():
        is_mask = isinstance(made, torch.Tensor) and made.dtype is torch.bool
        if is_mask and name_of(node) in _SUMS:
            raise Refused(f"{name_of(node)}: of masks")
        yield (
            node,
            torch.utils._pytree.tree_map_only(torch.Tensor, lambda one: tuple(one.shape), made),
        )


def _traced_values(module: torch.fx.GraphModule, form: RegionForm) -> dict[torch.fx.Node, Any]:
    """Return the values of the nodes as traced; none if the region was traced in another form."""
    given = iter(form.arguments)
    found: dict[torch.fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            found[node] = torch.fx.map_arg(node.args[0], found.__getitem__)
            continue
        made = node.meta.get("val")
        found[node] = made
        if node.op == "placeholder":
            laid = next(given)
            if not isinstance(laid, Laid) or not isinstance(made, torch.Tensor):
                return {}
            extents = (*made.shape, *made.stride())  # symbolic ones are never compared: they guard
            if not all(type(one) is int for one in extents) or not laid.holds(made):
                return {}
        elif not isinstance(made, torch.Tensor | tuple | list):
            return {}
    return found


def _computed_values(module: torch.fx.GraphModule, form: RegionForm) -> dict[torch.fx.Node, Any]:
    """Return the values of the nodes, computed of tensors without memory."""
    found: dict[torch.fx.Node, Any] = {}

    class Shapes(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: torch.fx.Node) -> Any:
            found[node] = super().run_node(node)
            return found[node]

    with FakeTensorMode(), torch.no_grad():
        given = [laid.empty() if isinstance(laid, Laid) else laid for laid in form.arguments]
        Shapes(module, garbage_collect_values=False).run(*given)
    return found


def _defaults(node: torch.fx.Node) -> list[Any]:
    """Return the values of arguments by place that are left out."""
    left = node.target._schema.arguments[len(node.args) :]
    return [one.default_value for one in left if not one.kwarg_only]


def _shape_of(value: Any) -> tuple[int, ...]:
    return value.shape if isinstance(value, Value) else ()


def mapped(name: str, shape: tuple[int, ...], *inputs: Any) -> Value:
    """Return an operator on elements, broadcast to a shape."""
    given = tuple(
        one if isinstance(one, Value) else float(one)
        for one in inputs
        if one is not None and not isinstance(one, str | torch.dtype)
    )
    if any(isinstance(one, list | tuple) for one in given):
        raise Refused(f"{name}: a list")
    return Value(name, tuple(shape), given)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    dense = dense_strides(shape)
    return all(n == 1 or one == other for n, one, other in zip(shape, strides, dense, strict=True))


def _reshaped(value: Value, shape: Sequence[int]) -> Value:
    """Return a value in another shape; a dense argument is loaded in that shape."""
    shape = tuple(shape)
    if value.operator == "load" and is_dense(value.shape, value.strides):
        return Value("load", shape, argument=value.argument, strides=dense_strides(shape))
    return Value("reshape", shape, (value,))


def _permuted(name: str, value: Value, *how: Any) -> Value:
    """Return an argument with its axes in another order.

    Raises:
        Refused: it is no argument: the elements of rows would change places.
    """
    if value.operator != "load":
        raise Refused(f"{name} of what is computed")
    axes = list(range(len(value.shape)))
    if name == "permute":
        axes = [axis % len(axes) for axis in how[0]]
    else:
        one, other = how or (0, len(axes) - 1)
        axes[one], axes[other] = axes[other], axes[one]
    shape = tuple(value.shape[axis] for axis in axes)
    strides = tuple(value.strides[axis] for axis in axes)
    return Value("load", shape, argument=value.argument, strides=strides)


def _sum(value: Value, axes: Sequence[int], kind: str = "sum", keep: bool = True) -> Value:
    reduced = frozenset(axis % len(value.shape) for axis in axes)
    kept = tuple(1 if axis in reduced else n for axis, n in enumerate(value.shape))
    made = Value(kind, kept, (value,), axes=reduced)
    if value.operator == "one_hot" and kind == "sum" and value.values[-1].shape == kept:
        made = value.values[-1]  # all others of the row are 0
    if keep:
        return made
    return _reshaped(made, tuple(n for axis, n in enumerate(kept) if axis not in reduced))


def _sum_of(shape: Any, x: Value, axes: Any = None, keep: bool = False, **_: Any) -> Value:
    return _sum(x, axes or range(len(x.shape)), keep=keep)


def _mean_of(shape: Any, x: Value, axes: Any = None, keep: bool = False, **_: Any) -> Value:
    axes = axes or range(len(x.shape))
    count = math.prod(x.shape[axis] for axis in axes)
    return mapped("mul", shape, _sum(x, axes, keep=keep), 1.0 / count)


def _softmax(shape: Any, x: Value, axis: int, half: bool = False) -> Value:
    top = _sum(x, [axis], "max")
    powers = mapped("exp", x.shape, mapped("sub", x.shape, x, top))
    total = _sum(powers, [axis])
    return mapped("mul", x.shape, powers, mapped("reciprocal", total.shape, total))


def _safe_softmax(shape: Any, x: Value, axis: int, dtype: Any = None) -> Value:
    """Return a softmax that is 0 in a row of -inf: the largest number says nothing of NaN."""
    hidden = _sum(mapped("eq", x.shape, x, -math.inf), [axis])
    is_hidden = mapped("eq", hidden.shape, hidden, x.shape[axis])
    return mapped("where", x.shape, is_hidden, 0.0, _softmax(shape, x, axis))


def _softmax_gradient(shape: Any, dy: Value, y: Value, axis: int, dtype: Any) -> Value:
    weighted = mapped("mul", y.shape, dy, y)
    total = _sum(weighted, [axis])
    return mapped("sub", y.shape, weighted, mapped("mul", y.shape, y, total))


def _log_softmax(shape: Any, x: Value, axis: int, half: bool = False) -> Value:
    top = _sum(x, [axis], "max")
    # twice, so that no row of it is kept; a large `top` plus the logarithm would lose the latter
    below, again = (mapped("sub", x.shape, x, top) for _ in range(2))
    total = _sum(mapped("exp", x.shape, below), [axis])
    return mapped("sub", x.shape, again, mapped("log", total.shape, total))


def _log_softmax_gradient(shape: Any, dy: Value, y: Value, axis: int, dtype: Any) -> Value:
    total = _sum(dy, [axis])
    return mapped("sub", y.shape, dy, mapped("mul", y.shape, mapped("exp", y.shape, y), total))


def _class_gradient(
    shape: Any,
    dy: Value,
    y: Value,
    labels: Value,
    weight: Any,
    reduction: int,
    ignored: int,
    total: Value,
) -> Value:
    """Return the gradient of the negative logarithms of each row's class: 0 beside that class."""
    axis = len(y.shape) - 1
    if weight is not None or max(y.shape[axis], abs(ignored)) > _MOST_EXACT:
        raise Refused("nll_loss_backward: weights of classes, or classes beyond 2**24")
    rows, line = (*y.shape[:axis], 1), (*(1 for _ in y.shape[:axis]), y.shape[axis])
    labels = _reshaped(labels, rows)
    slope = mapped("div", (), dy, total) if reduction == _MEAN else dy
    slope = mapped("neg", slope.shape, slope)
    slope = _reshaped(slope, rows) if slope.shape else slope
    is_counted = mapped("ne", rows, labels, float(ignored))
    slope = mapped("where", rows, is_counted, slope, 0.0)
    position = Value("position", line, strides=dense_strides(line))
    return mapped("one_hot", y.shape, labels, position, slope)


def _layer_norm(
    shapes: Any, x: Value, normal: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, ...]:
    axes = range(len(x.shape) - len(normal), len(x.shape))
    count = 1.0 / math.prod(normal)
    mean = mapped("mul", shapes[1], _sum(x, axes), count)
    centred = mapped("sub", x.shape, x, mean)
    squares = _sum(mapped("mul", x.shape, centred, centred), axes)
    variance = mapped("mul", shapes[1], squares, count)
    scale = mapped("rsqrt", shapes[1], mapped("add", shapes[1], variance, eps))
    y = mapped("mul", x.shape, centred, scale)
    y = y if weight is None else mapped("mul", x.shape, y, weight)
    return (y if bias is None else mapped("add", x.shape, y, bias)), mean, scale


def _layer_norm_gradient(
    shapes: Any,
    dy: Value,
    x: Value,
    normal: Sequence[int],
    mean: Value,
    scale: Value,
    weight: Any,
    bias: Any,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    rank = len(x.shape) - len(normal)
    axes = range(rank, len(x.shape))
    count = 1.0 / math.prod(normal)
    normed = mapped("mul", x.shape, mapped("sub", x.shape, x, mean), scale)
    weighted = dy if weight is None else mapped("mul", x.shape, dy, weight)
    one = mapped("mul", mean.shape, _sum(weighted, axes), count)
    two = mapped("mul", mean.shape, _sum(mapped("mul", x.shape, weighted, normed), axes), count)
    inner = mapped("sub", x.shape, weighted, one)
    inner = mapped("sub", x.shape, inner, mapped("mul", x.shape, normed, two))
    dx = mapped("mul", x.shape, inner, scale)
    outer = range(rank)
    of_weight = _sum(mapped("mul", x.shape, dy, normed), outer, keep=False) if wanted[1] else None
    of_bias = _sum(dy, outer, keep=False) if wanted[2] else None
    return (dx if wanted[0] else None), of_weight, of_bias


def _dropout_gradient(shape: Any, dy: Value, mask: Value, scale: float) -> Value:
    return mapped("mul", shape, dy, mapped("mul", mask.shape, mask, scale))


def _clamped(shape: Any, x: Value, low: Any = None, high: Any = None) -> Value:
    if isinstance(low, Value) or isinstance(high, Value):
        raise Refused("clamp: bounds in tensors")
    above = x if low is None else mapped("clamp_min", shape, x, low)
    return above if high is None else mapped("clamp_max", shape, above, high)


def _elu_gradient(
    shape: Any,
    dy: Value,
    alpha: float,
    scale: float,
    input_scale: float,
    is_of_result: bool,
    x: Value,
) -> Value:
    if is_of_result:
        raise Refused("elu_backward: of its result")
    return mapped("elu_backward", shape, dy, x, alpha * scale, scale, input_scale)


def _batch_norm_gradient(
    shapes: Any,
    dy: Value,
    x: Value,
    weight: Any,
    running_mean: Any,
    running_variance: Any,
    mean: Any,
    scale: Any,
    is_training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    if not is_training or mean is None or scale is None:
        raise Refused("native_batch_norm_backward: in evaluation")
    channels = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    count = 1.0 / math.prod(x.shape[axis] for axis in axes)
    mean, scale = (_reshaped(one, channels) for one in (mean, scale))
    normed = mapped("mul", x.shape, mapped("sub", x.shape, x, mean), scale)
    total = _sum(dy, axes)
    weighted = _sum(mapped("mul", x.shape, dy, normed), axes)
    factor = scale
    if weight is not None:
        factor = mapped("mul", channels, scale, _reshaped(weight, channels))
    inner = mapped("sub", x.shape, dy, mapped("mul", channels, total, count))
    part = mapped("mul", x.shape, normed, mapped("mul", channels, weighted, count))
    dx = mapped("mul", x.shape, mapped("sub", x.shape, inner, part), factor)
    made = [dx, *(_reshaped(one, (x.shape[1],)) for one in (weighted, total))]
    return tuple(one if is_wanted else None for one, is_wanted in zip(made, wanted, strict=True))


def _batch_norm(
    shapes: Any,
    x: Value,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_variance: Any,
    is_training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    if not is_training or running_mean is None:
        raise Refused("batch_norm: in evaluation")
    channels = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    count = math.prod(x.shape[axis] for axis in axes)
    if count < 2:
        raise Refused("batch_norm: a single element")
    mean = mapped("mul", channels, _sum(x, axes), 1.0 / count)
    centred = mapped("sub", x.shape, x, mean)
    squares = _sum(mapped("mul", x.shape, centred, centred), axes)
    variance = mapped("mul", channels, squares, 1.0 / count)
    scale = mapped("rsqrt", channels, mapped("add", channels, variance, eps))
    y = mapped("mul", x.shape, centred, scale)
    y = y if weight is None else mapped("mul", x.shape, y, _reshaped(weight, channels))
    y = y if bias is None else mapped("add", x.shape, y, _reshaped(bias, channels))
    running = []
    for old, new, factor in (
        (running_mean, mean, 1.0),
        (running_variance, variance, count / (count - 1)),
    ):
        kept = mapped("mul", channels, _reshaped(old, channels), 1.0 - momentum)
        running.append(
            mapped("add", channels, kept, mapped("mul", channels, new, momentum * factor))
        )
    flat = (x.shape[1],)
    return (y, *(_reshaped(one, flat) for one in (mean, scale, *running)))


def _in_groups(x: Value, count: int, channels: int, size: int, groups: int) -> Value:
    return _reshaped(x, (count, groups, channels // groups, size))


def _group_norm(
    shapes: Any,
    x: Value,
    weight: Any,
    bias: Any,
    count: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[Value, ...]:
    grouped = _in_groups(x, count, channels, size, groups)
    shape, stats = grouped.shape, (count, groups, 1, 1)
    factor = groups / (channels * size)
    mean = mapped("mul", stats, _sum(grouped, (2, 3)), factor)
    centred = mapped("sub", shape, grouped, mean)
    squares = _sum(mapped("mul", shape, centred, centred), (2, 3))
    variance = mapped("mul", stats, squares, factor)
    scale = mapped("rsqrt", stats, mapped("add", stats, variance, eps))
    y = mapped("mul", shape, centred, scale)
    per_channel = (1, groups, channels // groups, 1)
    y = y if weight is None else mapped("mul", shape, y, _reshaped(weight, per_channel))
    y = y if bias is None else mapped("add", shape, y, _reshaped(bias, per_channel))
    return (_reshaped(y, x.shape), *(_reshaped(one, (count, groups)) for one in (mean, scale)))


def _group_norm_gradient(
    shapes: Any,
    dy: Value,
    x: Value,
    mean: Value,
    scale: Value,
    weight: Any,
    count: int,
    channels: int,
    size: int,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    grouped = _in_groups(x, count, channels, size, groups)
    given = _in_groups(dy, count, channels, size, groups)
    shape, stats = grouped.shape, (count, groups, 1, 1)
    mean, scale = _reshaped(mean, stats), _reshaped(scale, stats)
    per_channel, factor = (1, groups, channels // groups, 1), groups / (channels * size)
    # as ATen computes it, term by term: its infinities and NaN stand in the same places
    rows = (count, groups, channels // groups, 1)
    of_ones, of_values = _sum(given, [3]), _sum(mapped("mul", shape, given, grouped), [3])
    sums, weighted = [of_ones, of_values], given
    if weight is not None:
        weighted = mapped("mul", shape, given, _reshaped(weight, per_channel))
        sums = [mapped("mul", rows, one, _reshaped(weight, per_channel)) for one in sums]
    of_bias, of_scale = (_sum(one, [2]) for one in sums)
    cube = mapped("mul", stats, scale, mapped("mul", stats, scale, scale))
    lowered = mapped("sub", stats, mapped("mul", stats, of_bias, mean), of_scale)
    slope = mapped("mul", stats, mapped("mul", stats, lowered, cube), factor)
    level = mapped("mul", stats, mapped("mul", stats, of_bias, scale), factor)
    offset = mapped("add", stats, mapped("mul", stats, slope, mean), level)
    inner = mapped(
        "add", shape, mapped("mul", shape, weighted, scale), (mapped("mul", shape, grouped, slope))
    )
    of_mean = mapped("mul", rows, of_ones, mean)
    of_weight = mapped("mul", rows, mapped("sub", rows, of_values, of_mean), scale)
    made = [
        _reshaped(mapped("sub", shape, inner, offset), x.shape),
        _reshaped(_sum(of_weight, (0,)), (channels,)),
        _reshaped(_sum(of_ones, (0,)), (channels,)),
    ]
    return tuple(one if is_wanted else None for one, is_wanted in zip(made, wanted, strict=True))


_COMPOSED: dict[str, Callable[..., Any]] = {
    "sum": _sum_of,
    "mean": _mean_of,
    "_softmax": _softmax,
    "_safe_softmax": _safe_softmax,
    "_softmax_backward_data": _softmax_gradient,
    "_log_softmax": _log_softmax,
    "_log_softmax_backward_data": _log_softmax_gradient,
    "nll_loss_backward": _class_gradient,
    "clamp": _clamped,
    "elu_backward": _elu_gradient,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_gradient,
    "native_dropout_backward": _dropout_gradient,
    "native_batch_norm_backward": _batch_norm_gradient,
    "_native_batch_norm_legit_functional": _batch_norm,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_gradient,
}
