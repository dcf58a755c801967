"""Cheaper Python for a pass: operators through PyTorch's bindings, regions without a module.

A call of `torch.ops.aten.mm.default` takes 2 to 3 us before anything is computed: its arguments are
matched with a schema. `torch.mm` takes 1 us, methods that make views take less. A pass has hundreds
of such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.graph import CodeGen

_ATEN = torch.ops.aten
_FUNCTIONS: tuple[str, ...] = (
    *("mm", "bmm", "addmm", "baddbmm", "neg", "relu", "exp", "sqrt", "rsqrt", "sigmoid", "tanh"),
    *("_softmax", "_safe_softmax", "_softmax_backward_data", "native_layer_norm", "embedding"),
    *("_log_softmax", "_log_softmax_backward_data", "native_group_norm", "native_dropout"),
    *("convolution", "cat", "stack", "clone", "detach", "logical_not", "zeros_like", "ones_like"),
    *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "where.self", "pow.Tensor_Scalar"),
    *("sum", "sum.dim_IntList", "mean", "mean.dim", "mul.Scalar", "add.Scalar"),
    *("_scaled_dot_product_flash_attention_for_cpu", "gt.Scalar", "lt.Scalar", "eq.Scalar"),
)
"""Overloads of the functions in `torch` that take the same arguments in the same order."""
_METHODS: tuple[str, ...] = (
    *("view", "t", "transpose.int", "permute", "expand", "unsqueeze", "squeeze.dim"),
    *("squeeze.dims", "select.int"),
)
"""Overloads of methods of tensors that do."""


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_ATEN, packet), overload or "default")


def _known(names: Sequence[str]) -> dict[Any, str]:
    """Return the names of functions by their overloads, of those this PyTorch has."""
    found = {}
    for name in names:
        try:
            found[_overload(name)] = name.partition(".")[0]
        except AttributeError:
            continue
    return found


def _functions() -> Mapping[Any, Callable[..., Any]]:
    own = torch._C._VariableFunctions
    found = {
        overload: getattr(torch, name)
        for overload, name in _known(_FUNCTIONS).items()
        if hasattr(own, name) and getattr(torch, name, None) is getattr(own, name)
    }
    plain = {_ATEN.gelu.default: "gelu", _ATEN.silu.default: "silu"}
    return found | {overload: getattr(torch._C._nn, name) for overload, name in plain.items()}


_TO_FUNCTIONS = _functions()
_TO_METHODS = _known(_METHODS)


def call_directly(graph: torch.fx.Graph) -> None:
    """Call operators of a graph the cheapest way there is; results and dispatch stay the same."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in _TO_METHODS:
            node.op, node.target = "call_method", _TO_METHODS[node.target]
        elif node.target in _TO_FUNCTIONS:
            node.target = _TO_FUNCTIONS[node.target]


class BoxedCode(CodeGen):  # type: ignore[misc]
    """Code of a graph whose arguments come in one list, which the code empties.

    Nothing else keeps an argument alive then. PyTorch 2.9 has no such class of its own.
    """

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """Return the head of the function, up to where each argument has its name."""
        given = (one for one in free_vars if one != "self")
        names = "".join(one.partition(":")[0].partition("=")[0].strip() + ", " for one in given)
        head = f"def {self._func_name}(self, _given){maybe_return_annotation}:"
        return f"{head}\n    ({names}) = _given\n    _given.clear()"


def put_inline(node: torch.fx.Node, inner: torch.fx.Graph) -> None:
    """Replace the call of a module by the operators of its graph."""
    graph = node.graph
    places = dict(zip(inner.find_nodes(op="placeholder"), node.args, strict=True))
    with graph.inserting_before(node):
        made = graph.graph_copy(inner, places)
    if isinstance(made, tuple | list):
        for part in tuple(node.users):
            part.replace_all_uses_with(made[part.args[1]])
            graph.erase_node(part)
    else:
        node.replace_all_uses_with(made)
    graph.erase_node(node)


def put_function(node: torch.fx.Node, function: Callable[..., Any]) -> None:
    """Replace the call of a module by that of a function with the same arguments."""
    with node.graph.inserting_before(node):
        call = node.graph.call_function(function, node.args)
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    node.graph.erase_node(node)
