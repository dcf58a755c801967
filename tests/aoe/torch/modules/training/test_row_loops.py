"""Loops of regions against the same operators in float64: odd extents, NaN and infinities."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from aoe.torch.modules.optimization import engine_settings  # noqa: E402
from aoe.torch.modules.training.choice import disagreement  # noqa: E402
from aoe.torch.modules.training.kernels import RegionSettings  # noqa: E402
from aoe.torch.modules.training.loops import LoopCompiler  # noqa: E402
from aoe.torch.modules.training.regions import RegionForm, results_of  # noqa: E402
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


@pytest.fixture
def compiler() -> LoopCompiler:
    """Return what compiles loops."""
    options = engine_settings(Path("net.onnx"), {"output": Path()}, os.environ)
    settings = RegionSettings(
        tune=options, env=os.environ, name="Net", direction="forward", limit_s=math.inf
    )
    return LoopCompiler(settings)


def test_every_loop_agrees_with_its_operators_in_float64(compiler: LoopCompiler) -> None:
    torch.manual_seed(0)
    cases, sources = {}, {}
    for name, (function, arguments) in {**_normalisations(), **_chains()}.items():
        module = make_fx(function)(*arguments)
        form = RegionForm.of(module, arguments, results_of(module(*arguments)))
        assert isinstance(form, RegionForm), name
        source = loop_source(module, form)
        assert not isinstance(source, str), f"{name}: {source}"
        cases[form], sources[form] = (name, module, arguments), source
    calls = compiler.compile(sources)
    reasons = {
        name: disagreement(module, calls[form], arguments)
        for form, (name, module, arguments) in cases.items()
    }
    assert reasons == dict.fromkeys(reasons, "")


def test_what_has_no_loop_is_refused_with_a_reason() -> None:
    x = torch.randn(4, 6, 5)
    for function in (
        lambda x: (x * 2).permute(1, 0, 2).clone() + 1,
        lambda x: x.amax((0, 1)) * 2,
        lambda x: (x * 2).cumsum(0),
    ):
        module = make_fx(function)(x)
        form = RegionForm.of(module, (x,), results_of(module(x)))
        assert isinstance(form, RegionForm)
        assert isinstance(loop_source(module, form), str)
