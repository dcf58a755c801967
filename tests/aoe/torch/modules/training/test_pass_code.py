"""Operators called through PyTorch's bindings: the same numbers in the same strides."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from aoe.torch.modules.training.pass_code import (  # noqa: E402
    BoxedCode,
    call_directly,
    put_function,
    put_inline,
)
from aoe.torch.modules.training.tracing import whole_upsampling  # noqa: E402


def _operators(x: Any, y: Any, weight: Any, image: Any, filters: Any, words: Any) -> Any:
    product = x @ y.t() + torch.addmm(weight[:6], x, y.transpose(0, 1))
    normed = F.layer_norm(x, [8], weight, weight)
    images = F.relu(F.conv2d(image, filters, stride=2, padding=1))
    rows = torch.stack([x, normed]).permute(1, 0, 2).clone(memory_format=torch.contiguous_format)
    return (
        product.softmax(-1).log_softmax(0),
        F.gelu(normed, approximate="tanh") - F.gelu(x) * F.silu(x) / 3,
        F.group_norm(images, 2).unsqueeze(1).squeeze(1).sum((2, 3), keepdim=True),
        torch.where(x > 0, x.exp(), -x).mean(1),
        torch.cat([x, x.expand(6, 8)]).select(0, 3).view(2, 4).detach(),
        F.embedding(torch.tensor([1, 0]), words).sigmoid().tanh().pow(2).rsqrt().sqrt(),
        torch.bmm(rows, rows.mT).mean() + (~(x == 0)).sum() + torch.ones_like(x) * 2.0,
        rows,
    )


def _arguments() -> tuple[Any, ...]:
    torch.manual_seed(0)
    sizes = ((6, 8), (6, 8), (8,), (2, 3, 5, 7), (4, 3, 3, 3), (3, 8))
    return tuple(torch.randn(size) for size in sizes)


def test_operators_called_directly_give_the_same_bits_in_the_same_strides() -> None:
    arguments = _arguments()
    traced = make_fx(_operators)(*arguments)
    expected = traced(*arguments)
    before = traced.code.count("torch.ops.aten")
    call_directly(traced.graph)
    traced.recompile()
    assert before > 40 and traced.code.count("torch.ops.aten") < 12
    for one, other in zip(expected, traced(*arguments), strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_boxed_code_empties_the_list_of_its_arguments(count: int) -> None:
    def total(*values: Any) -> Any:
        return sum(values, torch.ones(2))

    arguments = [torch.full((2,), float(one)) for one in range(count)]
    traced = make_fx(total)(*arguments)
    expected = total(*arguments)
    traced.graph.set_codegen(BoxedCode())
    traced.recompile()
    assert torch.equal(traced.forward(arguments), expected)
    assert arguments == []


def test_modules_become_their_operators_or_a_function() -> None:
    inner = make_fx(lambda x, y: (x * y, x + y))(torch.randn(3), torch.randn(3))
    single = make_fx(lambda x, y: x - y)(torch.randn(3), torch.randn(3))
    graph = torch.fx.Graph()
    given = [graph.placeholder(name) for name in ("x", "y")]
    both = graph.call_module("inner", tuple(given))
    parts = [graph.call_function(operator.getitem, (both, at)) for at in (1, 0)]
    third = graph.call_module("single", tuple(parts))
    graph.output((third, *parts))
    module = torch.fx.GraphModule({"inner": inner, "single": single}, graph)
    arguments = torch.randn(3), torch.randn(3)
    expected = copy.deepcopy(module)(*arguments)
    called = []

    def function(x: Any, y: Any) -> Any:
        called.append(x)
        return x - y

    first, second = graph.find_nodes(op="call_module")
    put_inline(first, inner.graph)
    put_function(second, function)
    module.recompile()
    assert not graph.find_nodes(op="call_module")
    for one, other in zip(expected, module(*arguments), strict=True):
        assert torch.equal(one, other)
    assert len(called) == 1


def test_upsampling_is_traced_as_the_operators_of_eager() -> None:
    from torch._functorch.aot_autograd import aot_function, make_boxed_func

    seen: list[str] = []

    def keep(graph_module: Any, given: Any) -> Any:
        seen.append(graph_module.code)
        return make_boxed_func(graph_module.forward)

    def enlarge(x: Any) -> Any:
        return F.interpolate(F.interpolate(x, scale_factor=2.0), scale_factor=2, mode="bilinear")

    x = torch.randn(2, 3, 5, 7, requires_grad=True)
    kernels = dict(torch.ops.aten.upsample_nearest2d.vec.py_kernels)
    with whole_upsampling():
        traced = aot_function(enlarge, fw_compiler=keep, bw_compiler=keep)
        found = traced(x)
    assert torch.ops.aten.upsample_nearest2d.vec.py_kernels == kernels
    (slope,) = torch.autograd.grad(found.sin().sum(), x)
    (expected,) = torch.autograd.grad(enlarge(x).sin().sum(), x)
    assert torch.equal(slope, expected)
    assert all("upsample_nearest2d" in code and "index" not in code for code in seen)
