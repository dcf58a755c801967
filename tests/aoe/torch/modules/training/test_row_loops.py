"""Loops of regions against the same operators in float64: odd extents, NaN and infinities."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.trainings_compiled import region_settings  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from aoe.torch.modules.training.c_expressions import EXPRESSIONS  # noqa: E402
from aoe.torch.modules.training.choice import disagreement  # noqa: E402
from aoe.torch.modules.training.loops import LoopCompiler  # noqa: E402
from aoe.torch.modules.training.regions import (  # noqa: E402
    RegionForm,
    operator_names,
    results_of,
)
from aoe.torch.modules.training.row_loops import loop_source  # noqa: E402

A = torch.ops.aten
Region = tuple[Callable[..., Any], tuple[Any, ...]]


def _aten(name: str) -> Any:
    return getattr(A, name)


def _normalisations() -> dict[str, Region]:
    r, mask = torch.randn, torch.rand(3, 17, 37) > 0.1
    rows, weight, bias = r(51, 37), r(37), r(37)
    _, mean, scale = A.native_layer_norm(r(3, 17, 37), [37], weight, bias, 1e-5)
    images, channels = r(3, 12, 7, 5), r(12)
    _, group_mean, group_scale = A.native_group_norm(images, channels, channels, 3, 12, 35, 4, 1e-5)
    _, batch_mean, batch_scale = A.native_batch_norm(
        images, None, None, None, None, True, 0.1, 1e-5
    )

    def layer_norm_gradient(dy: Any, more: Any, x: Any, m: Any, s: Any, w: Any, keep: Any) -> Any:
        total = dy + more.view(3, 17, 37)
        found = A.native_layer_norm_backward(total, x, [37], m, s, w, w, [True, True, True])
        return *found, A.native_dropout_backward(found[0], keep, 1.25)

    def batch_norm(x: Any, w: Any, b: Any, old_mean: Any, old_variance: Any) -> Any:
        found = _aten("_native_batch_norm_legit_functional")(
            x, w, b, old_mean, old_variance, True, 0.1, 1e-5
        )
        return A.relu(found[0]), *found[1:]

    def batch_norm_gradient(dy: Any, x: Any, w: Any, m: Any, s: Any, y: Any) -> Any:
        masked = A.threshold_backward(dy, y, 0)
        return A.native_batch_norm_backward(masked, x, w, m, s, m, s, True, 1e-5, [True] * 3)

    def group_norm(x: Any, w: Any, b: Any) -> Any:
        found = A.native_group_norm(x, w, b, 3, 12, 35, 4, 1e-5)
        return A.silu(found[0]), *found

    def group_norm_gradient(dy: Any, before: Any, x: Any, m: Any, s: Any, w: Any) -> Any:
        given = A.silu_backward(dy, before)
        return A.native_group_norm_backward(given, x, m, s, w, 3, 12, 35, 4, [True] * 3)

    return {
        "layer norm": (
            lambda x, y, w, b: A.native_layer_norm(x.view(3, 17, 37) + y, [37], w, b, 1e-5),
            (rows, r(3, 17, 37), weight, bias),
        ),
        "layer norm gradient": (
            layer_norm_gradient,
            (r(3, 17, 37), rows, r(3, 17, 37), mean, scale, weight, mask),
        ),
        "batch norm": (batch_norm, (images, channels, r(12), r(12), torch.rand(12))),
        "batch norm gradient": (
            batch_norm_gradient,
            (r(3, 12, 7, 5), images, channels, batch_mean, batch_scale, images.relu()),
        ),
        "group norm": (group_norm, (images, channels, r(12))),
        "group norm gradient": (
            group_norm_gradient,
            (r(3, 12, 7, 5), r(3, 12, 7, 5), images, group_mean, group_scale, channels),
        ),
        "root mean square": (
            lambda x, w: x * A.rsqrt(A.mean.dim(A.pow(x, 2), [-1], True) + 1e-6) * w,
            (r(3, 17, 37), weight),
        ),
    }


def _unary(name: str) -> Callable[..., Any]:
    return lambda x: _aten(name)(x) + 0.0


def _binary(name: str) -> Callable[..., Any]:
    return lambda x, y: (_aten(name)(x, y), x * y)


def _with_number(name: str) -> Callable[..., Any]:
    return lambda x: (_aten(name)(x, 0.7), -x)


def _power(power: float) -> Callable[..., Any]:
    return lambda x: A.pow(x, power) + 0.0


def _operators() -> dict[str, Region]:
    """Return each operator on elements by itself, on numbers of either sign."""
    many, row = torch.randn(51, 37), torch.randn(37)
    unary = [
        *("neg", "abs", "reciprocal", "sqrt", "rsqrt", "exp", "log", "sigmoid", "tanh", "erf"),
        *("relu", "silu", "gelu", "alias", "detach", "clone", "hardswish", "hardsigmoid"),
        *("leaky_relu", "elu", "hardtanh"),
    ]
    binary = ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"]
    gradients = [
        *("sigmoid_backward", "tanh_backward", "silu_backward", "gelu_backward"),
        *("hardswish_backward", "hardsigmoid_backward", "maximum", "minimum"),
    ]
    rows = many.abs()
    return {
        **{name: (_unary(name), (many,)) for name in unary},
        **{name: (_binary(name), (many, row)) for name in binary},
        **{f"{name}, number": (_with_number(name), (many,)) for name in binary},
        **{name: (_binary(name), (many, many.flip(0))) for name in gradients},
        **{f"power {power}": (_power(power), (many,)) for power in (2, 3, 0.5, 1, -1, -0.5)},
        "number less": (lambda x: 1.5 - x + A.rsub(x, x * 2), (many,)),
        "alpha": (lambda x, y: A.add(x, y, alpha=-0.3) + A.sub(y, x, alpha=3), (many, row)),
        "threshold": (lambda dy, y: A.threshold_backward(dy, y, 0.2), (many, rows)),
        "leaky, slope": (lambda x: A.leaky_relu(x, 0.3) * 2, (many,)),
        "leaky, gradient": (
            lambda dy, x: A.leaky_relu_backward(dy, x, 0.3, False) * 2,
            (many.flip(0), many),
        ),
        "elu, scaled": (lambda x: A.elu(x, 1.3, 1.1, 0.7) * 2, (many,)),
        "elu, gradient": (
            lambda dy, x: A.elu_backward(dy, 1.3, 1.1, 0.7, False, x) * 2,
            (many.flip(0), many),
        ),
        "clamped": (lambda x: A.clamp(x, -0.3, 0.7) + A.clamp(x, None, 0.1) * 2, (many,)),
        "clamped on one side": (lambda x: A.clamp_min(x, 0.1) - A.clamp_max(x, 0.2), (many,)),
        "clamp, gradient": (
            lambda dy, x: A.hardtanh_backward(dy, x, -0.3, 0.7) * 2,
            (many.flip(0), many),
        ),
        "within": (
            lambda dy, x: A.where(A.logical_and(x >= -0.3, A.bitwise_not(x > 0.7)), dy, x),
            (many.flip(0), many),
        ),
        "filled": (lambda x: A.masked_fill(x, x > 0.1, -2.0) + x, (many,)),
        "not": (lambda x: A.where(A.logical_not(x > 0.1), x, x.exp()), (many,)),
        "to a mask": (lambda x: A.where(A.relu(x - 0.5).to(torch.bool), x, -x), (many,)),
        "of a mask": (lambda keep: (keep.to(torch.float32) - 1) * 3, (many > 0,)),
        "all": (lambda x: (A.sum(x * x), A.mean(x), x + 1), (many,)),
        "axes": (
            lambda x: (A.mean.dim(x * 2, [1], True) + x, A.sum.dim_IntList(x, [-2, -1], True)),
            (torch.randn(3, 17, 37),),
        ),
        "one row": (lambda x, y: (x * y).squeeze(0).unsqueeze(-1) + 1, (many[:1], row)),
        "one column": (lambda x, y: (x * y).exp() + x, (many[:, :1].clone(), rows[:, :1].clone())),
    }


def _layouts() -> dict[str, Region]:
    """Return chains on tensors that lie otherwise than in order."""
    wide = torch.randn(51, 74)
    planes = torch.randn(2, 12, 7, 5).contiguous(memory_format=torch.channels_last)

    def chain(x: Any, y: Any) -> Any:
        return A.silu(x * 1.5) + y, x - y

    return {
        "gaps": (chain, (wide[:, ::2], wide[:, 1::2])),
        "rows apart": (chain, (wide[::2, :37], torch.randn(26, 37))),
        "expanded": (chain, (torch.randn(51, 1).expand(51, 37), torch.randn(37).expand(51, 37))),
        "both transposed": (chain, (wide.t(), torch.randn(51, 74).t())),
        "channels last": (chain, (planes, planes * 2)),
        "planes and channels": (chain, (planes, torch.randn(2, 12, 7, 5))),
        "swapped": (
            lambda x, y: A.tanh(x.transpose(0, 1)) * y,
            (torch.randn(7, 3, 37), torch.randn(3, 7, 37)),
        ),
    }


def _in_bfloat16() -> dict[str, Region]:
    """Return chains as autocast makes them: bfloat16 is read, written and cast to."""
    many, wide, weight = (torch.randn(*shape) for shape in ((51, 37), (51, 37), (37,)))
    narrow, other = many.bfloat16(), wide.bfloat16()
    _, mean, scale = A.native_layer_norm(narrow, [37], weight, weight, 1e-5)

    def cast(x: Any) -> Any:
        return _aten("_to_copy")(x, dtype=torch.bfloat16)

    def layer_norm_gradient(dy: Any, x: Any, m: Any, s: Any, w: Any) -> Any:
        return A.native_layer_norm_backward(dy * 2, x, [37], m, s, w, w, [True, True, True])

    return {
        "bfloat16": (lambda x, y: A.gelu(x) * y + x, (narrow, other)),
        "bfloat16 and float32": (lambda x, y: (x * y, cast(x * y), x + 1), (narrow, wide)),
        "cast to bfloat16": (lambda x: cast(x * 1.7).to(torch.float32) * 3, (many,)),
        "bfloat16, layer norm": (
            lambda x, w: A.native_layer_norm(x + 1, [37], w, w, 1e-5),
            (narrow, weight),
        ),
        "bfloat16, layer norm gradient": (
            layer_norm_gradient,
            (other, narrow, mean, scale, weight),
        ),
        "bfloat16, softmax": (lambda x: _aten("_softmax")(x * 2, -1, False), (narrow,)),
        "bfloat16, sums": (lambda x: (A.sum.dim_IntList(x * 2, [0]), x * 2), (narrow,)),
    }


def _with_few_gradients() -> dict[str, Region]:
    """Return normalisations without weights, and softmax that hides all of a row."""
    r = torch.randn
    images = r(3, 12, 7, 5)
    _, mean, scale = A.native_layer_norm(r(51, 37), [37], None, None, 1e-5)
    _, group_mean, group_scale = A.native_group_norm(images, None, None, 3, 12, 35, 4, 1e-5)
    hidden = torch.where(torch.rand(5, 9, 37) > 0.3, r(5, 9, 37), -math.inf)
    hidden[2, 3] = -math.inf

    def layer_norm(dy: Any, x: Any, m: Any, s: Any) -> Any:
        wanted = [True, False, False]
        return A.native_layer_norm_backward(dy, x, [37], m, s, None, None, wanted)[0] * 2

    def group_norm(dy: Any, x: Any, m: Any, s: Any) -> Any:
        wanted = [True, False, False]
        return A.native_group_norm_backward(dy, x, m, s, None, 3, 12, 35, 4, wanted)[0] + x

    return {
        "layer norm, no weight": (
            lambda x: A.native_layer_norm(x, [37], None, None, 1e-5),
            (r(51, 37),),
        ),
        "layer norm of two axes": (
            lambda x, w: A.native_layer_norm(x, [17, 37], w, w, 1e-5),
            (r(5, 17, 37), r(17, 37)),
        ),
        "layer norm, gradient of x": (layer_norm, (r(51, 37), r(51, 37), mean, scale)),
        "group norm, gradient of x": (
            group_norm,
            (r(3, 12, 7, 5), images, group_mean, group_scale),
        ),
        "batch norm of rows": (
            lambda x, m, v: _aten("_native_batch_norm_legit_functional")(
                x, None, None, m, v, True, 0.2, 1e-3
            ),
            (r(51, 37), r(37), torch.rand(37)),
        ),
        "hidden rows": (lambda x: _aten("_safe_softmax")(x, -1), (hidden,)),
        "hidden, with NaN": (lambda x: _aten("_softmax")(x + 0.0, -1, False), (hidden,)),
    }


def _chains() -> dict[str, Region]:
    r, mask = torch.randn, torch.rand(3, 2, 17, 37) > 0.1
    many, scores, table = r(51, 37), r(3, 2, 17, 37), r(9, 301)

    def gelu_gradient(dy: Any, x: Any) -> Any:
        found = A.gelu_backward(dy.view(3, 17, 37), x.view(3, 17, 37))
        return found, A.sum.dim_IntList(found.view(51, 37), [0], True)

    def softmax_gradient(dy: Any, keep: Any, y: Any) -> Any:
        kept = A.native_dropout_backward(dy.view(3, 2, 17, 37), keep, 1.25)
        return _aten("_softmax_backward_data")(kept, y, -1, torch.float32)

    return {
        "gelu": (lambda x: A.gelu(x.view(3, 17, 37)), (many * 3,)),
        "gelu gradient": (gelu_gradient, (r(51, 37), many * 3)),
        "gelu by tanh": (lambda x: A.gelu(x, approximate="tanh"), (many * 3,)),
        "gelu by tanh gradient": (
            lambda dy, x: A.gelu_backward(dy, x, approximate="tanh"),
            (r(51, 37), many * 3),
        ),
        "softmax": (lambda x, y: _aten("_softmax")(x + y, -1, False), (scores, r(3, 1, 1, 37))),
        "softmax gradient": (softmax_gradient, (r(6, 17, 37), mask, scores.softmax(-1))),
        "log softmax": (lambda x: _aten("_log_softmax")(x * 2, -1, False), (table,)),
        "log softmax gradient": (
            lambda dy, y: _aten("_log_softmax_backward_data")(dy, y, -1, torch.float32),
            (r(9, 301), table.log_softmax(-1)),
        ),
        "gate": (lambda x, y: A.silu(x) * y.sigmoid() + A.tanh(y), (many, r(51, 37))),
        "sums": (lambda x: (A.sum.dim_IntList(x * 2, [0, 2]), x * 2), (r(3, 17, 37),)),
        "transposed": (lambda x, y: A.silu(x.t() * y) + 1, (r(37, 51), r(51, 37))),
        "broadcast": (lambda x, w, y: x.view(3, 17, 37) * w + y, (many, r(37), r(3, 17, 37))),
        "mask": (lambda x, keep: A.where(keep, x, x * 2), (scores, mask)),
    }


def _cross_entropies() -> dict[str, Region]:
    """Return gradients of cross entropy, by reduction and index that is ignored."""
    scores, several = torch.randn(9, 301).log_softmax(-1), torch.arange(9) * 37 % 301
    some, none = torch.where(several > 150, several, -100), torch.full((9,), -100)

    def gradient(reduction: int, ignored: int = -100) -> Callable[..., Any]:
        def found(dy: Any, y: Any, labels: Any, total: Any) -> Any:
            slope = A.nll_loss_backward(dy, y, labels, None, reduction, ignored, total)
            return _aten("_log_softmax_backward_data")(slope, y, -1, torch.float32)

        return found

    dy, total = torch.tensor(0.7), torch.tensor(9.0)
    one_row = (dy, scores[0].clone(), several[1], torch.tensor(1.0))
    return {
        "cross entropy": (gradient(1), (dy, scores, several, total)),
        "cross entropy, some ignored": (gradient(1), (dy, scores, some, torch.tensor(4.0))),
        "cross entropy, all ignored": (gradient(1), (dy, scores, none, torch.tensor(0.0))),
        "cross entropy, a class ignored": (gradient(1, 37), (dy, scores, several, total)),
        "cross entropy, sum": (gradient(2), (dy, scores, some, total)),
        "cross entropy, each": (gradient(0, 0), (torch.randn(9), scores, several, total)),
        "cross entropy of one row": (gradient(1), one_row),
        "cross entropy, transposed": (
            gradient(1),
            (dy, torch.randn(301, 9).log_softmax(0).t(), several, total),
        ),
        "class gradient": (
            lambda dy, y, labels, total: (
                A.nll_loss_backward(dy, y, labels, None, 1, -100, total) * 2,
                y.exp(),
            ),
            (dy, scores, some, total),
        ),
    }


@pytest.mark.parametrize("ignored", [-1, 0, 10], ids=["none ignored", "first", "last"])
@pytest.mark.parametrize("shape", [(1, 1), (5,), (3, 40)], ids=["one", "few", "twice"])
def test_gradient_of_a_table_has_the_bits_of_aten(
    compiler: LoopCompiler, shape: tuple[int, ...], ignored: int
) -> None:
    torch.manual_seed(0)
    places, rows = torch.randint(0, 11, shape), torch.randn(*shape, 37)
    rows.view(-1)[3], rows.view(-1)[-5] = math.nan, math.inf
    module = make_fx(lambda dy, at: A.embedding_dense_backward(dy, at, 11, ignored, False))(
        rows, places
    )
    expected = module(rows, places)
    form = RegionForm.of(module, (rows, places), [expected])
    assert isinstance(form, RegionForm)
    source = loop_source(module, form)
    assert not isinstance(source, str), source
    call = compiler.compile({form: source})[form]
    for _ in range(2):  # each call begins with zeros
        (found,) = call(rows, places)
        assert found.stride() == expected.stride()
        assert torch.equal(found.view(torch.int32), expected.view(torch.int32))


@pytest.fixture
def compiler() -> LoopCompiler:
    """Return what compiles loops."""
    return LoopCompiler(region_settings(os.environ))


def test_every_loop_agrees_with_its_operators_in_float64(compiler: LoopCompiler) -> None:
    torch.manual_seed(0)
    cases, sources, used = {}, {}, set()
    regions = {**_normalisations(), **_chains(), **_operators(), **_layouts()}
    more = {**_with_few_gradients(), **_cross_entropies(), **_in_bfloat16()}
    for name, (function, arguments) in {**regions, **more}.items():
        module = make_fx(function)(*arguments)
        form = RegionForm.of(module, arguments, results_of(module(*arguments)))
        assert isinstance(form, RegionForm), name
        source = loop_source(module, form)
        assert not isinstance(source, str), f"{name}: {source}"
        cases[form], sources[form] = (name, module, arguments), source
        used |= {*operator_names(module)}
    calls = compiler.compile(sources)
    reasons = {
        name: disagreement(module, calls[form], arguments)
        for form, (name, module, arguments) in cases.items()
    }
    assert reasons == dict.fromkeys(reasons, "")
    powers = {name for name in EXPRESSIONS if name.startswith("pow_")}
    by_argument = {"copy", "to_bfloat16", "gelu_tanh", "gelu_backward_tanh", "one_hot", *powers}
    assert {*EXPRESSIONS} - by_argument <= used


def test_masks_of_a_loop_are_those_of_any_numbers(compiler: LoopCompiler) -> None:
    """The numbers of a first call may not show what a mask is for others."""
    whole = torch.ones(51, 37)
    module = make_fx(lambda x: (x.to(torch.bool), x + 1))(whole)
    form = RegionForm.of(module, (whole,), results_of(module(whole)))
    assert isinstance(form, RegionForm)
    source = loop_source(module, form)
    assert not isinstance(source, str), source
    call = compiler.compile({form: source})[form]
    other = torch.randn(51, 37).relu() * 0.3
    other[0, 0] = math.nan
    assert torch.equal(call(other)[0], other.to(torch.bool))


_ROOTS = torch.linspace(8, 9, 51 * 37).view(51, 37)  # where tanh is rounded to 1
_NAN_ROW = torch.full((51, 37), math.nan).where(torch.arange(51)[:, None] < 2, -math.inf)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(lambda x: A.sqrt(1 - A.tanh(x) * A.tanh(x)), (_ROOTS,), id="tanh"),
        pytest.param(lambda x: A.sqrt(1 - A.erf(x) * A.erf(x)), (_ROOTS - 4.9,), id="erf"),
        pytest.param(
            lambda x: _aten("_log_softmax")(x, 1, False), (_ROOTS // 9 + 3e7,), id="logarithms"
        ),
        pytest.param(lambda x: _aten("_safe_softmax")(x, 1), (_NAN_ROW,), id="softmax"),
        pytest.param(lambda x, y: A.clamp_min(x, y) * 2, (_ROOTS, _NAN_ROW), id="lower bound"),
        pytest.param(lambda x, y: A.clamp_max(x, y) * 2, (_ROOTS, _NAN_ROW), id="upper bound"),
        pytest.param(lambda x: A.rsub(x, 1.5, 2) * 2, (_ROOTS,), id="number less than a multiple"),
        pytest.param(lambda x: A.rsub(x, x * x, alpha=2) * 2, (_ROOTS,), id="less than a multiple"),
        pytest.param(lambda x: A.add.Scalar(x, 1.5, 2) * 2, (_ROOTS,), id="multiple of a number"),
    ],
)
def test_numbers_a_first_call_may_not_have_are_those_of_pytorch(
    compiler: LoopCompiler, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    module = make_fx(function)(*arguments)
    (expected,) = results_of(module(*arguments))
    form = RegionForm.of(module, arguments, [expected])
    assert isinstance(form, RegionForm)
    source = loop_source(module, form)
    assert not isinstance(source, str), source
    (found,) = compiler.compile({form: source})[form](*arguments)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3, equal_nan=True)


def test_results_lie_on_the_cpu_whatever_the_default_device_is(compiler: LoopCompiler) -> None:
    x = torch.randn(51, 37)
    module = make_fx(lambda x: A.silu(x) * 2)(x)
    form = RegionForm.of(module, (x,), results_of(module(x)))
    assert isinstance(form, RegionForm)
    source = loop_source(module, form)
    assert not isinstance(source, str), source
    call = compiler.compile({form: source})[form]
    with torch.device("meta"):
        (found,) = call(x)
    torch.testing.assert_close(found, module(x))


def _of_too_many_classes(x: Any) -> Any:
    labels, total = torch.zeros(4, dtype=torch.int64), torch.ones(())
    rows = x.view(4, 30)
    return A.nll_loss_backward(total, rows, labels, None, 1, 1 << 30, total) * 2


def test_what_has_no_loop_is_refused_with_a_reason() -> None:
    x = torch.randn(4, 6, 5)
    for function in (
        lambda x: (x * 2).permute(1, 0, 2).clone() + 1,
        lambda x: x.amax((0, 1)) * 2,
        lambda x: (x * 2).cumsum(0),
        lambda x: A.where((x > 0) + (x < 1), x, 0.0),  # masks are 0 and 1 in a loop
        lambda x: A.pow(x, 2.0000001) * 2,
        lambda x: A.div(x, 3.0, rounding_mode="floor") * 2,
        lambda x: A.add(x, x, alpha=2) * A.sin(x),
        lambda x: A.clamp(x, x * 0.1, None) * 2,
        lambda x: A.copy(x, x * 2) * 2,
        lambda x: A.embedding_dense_backward(x, torch.zeros(4, 6, dtype=torch.int64), 9, -1, True),
        lambda x: A.elu_backward(x, 1.0, 1.0, 1.0, True, x) * 2,
        _of_too_many_classes,
    ):
        module = make_fx(function)(x)
        form = RegionForm.of(module, (x,), results_of(module(x)))
        assert isinstance(form, RegionForm)
        assert isinstance(loop_source(module, form), str)


def test_empty_tensors_and_other_layouts_are_left_to_pytorch() -> None:
    x = torch.randn(51, 37)
    module = make_fx(lambda x: A.silu(x) * 2)(x)
    form = RegionForm.of(module, (x,), results_of(module(x)))
    assert isinstance(form, RegionForm) and form.takes((torch.randn(51, 37),))
    for other in (x[:0], x[:50], x.t(), x.double(), x.clone().t().contiguous().t()):
        assert not form.takes((other,))
    assert RegionForm.of(module, (x[:0],), [x[:0]]) == "an empty tensor"
    assert (
        RegionForm.of(module, (x,), [torch.empty(51, 74)[:, ::2]]) == "a result with gaps in memory"
    )
    assert isinstance(RegionForm.of(module, (x,), [None]), str)


def test_numbers_that_are_equal_and_not_the_same_are_forms_of_their_own() -> None:
    graph = torch.fx.Graph()
    tensor, number = graph.placeholder("x"), graph.placeholder("n")
    graph.output(graph.call_function(torch.ops.aten.mul.Tensor, (tensor, number)))
    module, ones = torch.fx.GraphModule(torch.nn.Module(), graph), torch.ones(4)
    numbers: tuple[Any, ...] = (0.0, -0.0, 1, 1.0, True, float("nan"))
    forms = [RegionForm.of(module, (ones, one), [ones]) for one in numbers]
    assert len(set(forms)) == len(numbers)
    for form, own in zip(forms, numbers, strict=True):
        assert isinstance(form, RegionForm)
        assert [form.takes((ones, one)) for one in numbers] == [one is own for one in numbers]
