"""Regions of a training graph: connected operators beside convolutions and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from aoe.workload import Workload

_COMPUTED = frozenset({torch.float32, torch.bfloat16, torch.bool})
_LEAST_ELEMENTS = 1 << 12
"""Elements of the largest result below which a call of a region costs more than it computes."""
_LEFT = (
    *("mm", "bmm", "convolution", "attention", "linear", "_rnn", "lstm", "gru", "pool", "fft"),
    *("scatter", "select_backward", "slice", "index", "gather", "embedding"),
    *("nll_loss_forward", "nll_loss2d"),
    *("cat", "stack", "sort", "topk", "cumsum", "upsample", "linalg", "unique", "nonzero", "empty"),
)
"""Parts of the names of operators that PyTorch computes best itself, or that have no loop."""
TABLE_GRADIENT = "embedding_dense_backward"
"""Operator that adds rows to those of a table: a region by itself."""
_LABELLED = "nll_loss_backward"
"""Operator that reads integers in a chain: the class of each row."""
_STATISTICS = frozenset(
    {
        *("native_batch_norm", "var_mean", "_native_batch_norm_legit"),
        *("_native_batch_norm_legit_no_training", "_fused_rms_norm"),
    }
)
"""Operators that make a result and its statistics in one pass, which have no loop."""
_VIEWS = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "_reshape_alias", "t", "transpose", "permute"),
        *("expand", "unsqueeze", "squeeze", "select", "slice", "split", "split_with_sizes"),
        *("alias", "detach", "as_strided", "diagonal", "unbind", "lift_fresh_copy"),
    }
)
"""Operators that make a view of a tensor: part of a region only if all their users are."""
_COSTLY = frozenset(
    {
        *("gelu", "gelu_backward", "silu", "silu_backward", "mish", "mish_backward", "softplus"),
        *("softplus_backward", "elu", "elu_backward", "_softmax", "_softmax_backward_data"),
        *("native_group_norm_backward", "native_batch_norm_backward", "tanh", "erf"),
        *("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_functional"),
        *("native_layer_norm_backward", "_log_softmax", "_log_softmax_backward_data"),
        *("hardswish", "hardswish_backward", "pow", "sigmoid", "exp", "log_sigmoid_forward"),
    }
)
"""Operators that may gain alone; of all others a region has two at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionOutcome:
    """What became of a region in one form, or of one part of a convolution."""

    direction: str  # forward or backward
    operators: tuple[str, ...]  # Of PyTorch, each once
    shapes: tuple[str, ...]  # Types and extents of its tensors
    way: str  # What computes it: `loop`, or a way of convolutions; empty where none does
    reason: str  # Why PyTorch computes it; empty if it does not
    is_known: bool = False  # True if an earlier run has decided it
    workloads: tuple[Workload, ...] = ()  # Its records are of; none where no record can say it
    places: int = 1  # How often the graph has it
    compute: Callable[[], object] | None = None  # Computes it once, as PyTorch does


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """How a tensor lies in memory: an argument or a result of a region.

    Transposed and broadcast tensors are read as they lie.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Laid:
        return cls(shape=tuple(tensor.shape), strides=tensor.stride(), dtype=tensor.dtype)

    def holds(self, tensor: torch.Tensor) -> bool:
        """True if a tensor lies like this."""
        return (
            tensor.shape == self.shape
            and tensor.stride() == self.strides
            and tensor.dtype is self.dtype
        )

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions from the one with the largest stride on."""
        axes = range(len(self.shape))
        return tuple(sorted(axes, key=lambda axis: (-self.strides[axis], axis)))

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Extents in the order of memory; broadcast dimensions have one element."""
        return tuple(1 if self.strides[axis] == 0 else self.shape[axis] for axis in self.order)

    @property
    def is_dense(self) -> bool:
        """True if the elements are all of a block of memory."""
        step = 1
        for axis in reversed(self.order):
            if self.shape[axis] == 1 or self.strides[axis] == 0:
                continue
            if self.strides[axis] != step:
                return False
            step *= self.shape[axis]
        return True

    @property
    def read_shape(self) -> tuple[int, ...]:
        """Extents of what is read of it, in the order of memory if that has no gaps."""
        return self.memory_shape if self.is_dense else self.shape

    def empty(self) -> torch.Tensor:
        """Return a new tensor."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionForm:
    """A region as it was called: equal ones have one program."""

    text: str  # What it computes, and with which numbers: 0.0 equals -0.0, and is another one
    arguments: tuple[Laid | int | float | bool, ...]
    results: tuple[Laid, ...]

    @classmethod
    def of(
        cls, module: torch.fx.GraphModule, arguments: Sequence[Any], results: Sequence[Any]
    ) -> RegionForm | str:
        """Return the form of a call, or why no kernel computes such ones."""
        given = [value for value in arguments if not isinstance(value, int | float)]
        for value in (*given, *results):
            if isinstance(value, Laid):
                continue
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return "a tensor of a class of its own, or none"
            if not value.numel():
                return "an empty tensor"
        made = tuple(one if isinstance(one, Laid) else Laid.of(one) for one in results)
        if not all(
            laid.is_dense and laid.size == torch.Size(laid.memory_shape).numel() for laid in made
        ):
            return "a result with gaps in memory"
        laid_or_number = tuple(
            value if isinstance(value, int | float) else Laid.of(value) for value in arguments
        )
        numbers = [repr(one) for one in laid_or_number if not isinstance(one, Laid)]
        text = "\n".join((region_text(module), *numbers))
        return cls(text=text, arguments=laid_or_number, results=made)

    @property
    def tensors(self) -> tuple[Laid, ...]:
        """The arguments that are tensors."""
        return tuple(laid for laid in self.arguments if isinstance(laid, Laid))

    def takes(self, arguments: Sequence[Any]) -> bool:
        """True for a call like the one it was made of."""
        for laid, value in zip(self.arguments, arguments, strict=True):
            if not isinstance(laid, Laid):
                if repr(laid) != repr(value):
                    return False
            elif not laid.holds(value):
                return False
        return True


def cut_regions(
    graph_module: torch.fx.GraphModule, wrap: Callable[[torch.fx.GraphModule], torch.nn.Module]
) -> list[torch.nn.Module]:
    """Replace each region of a graph by what `wrap` makes of it; return these, in order.

    Args:
        graph_module: A graph of ATen operators, which is changed.
        wrap: Makes the module that computes a region in its place.
    """
    partitioner = CapabilityBasedPartitioner(
        graph_module, _InRegions(), allows_single_node_partition=True
    )
    proposed = [set(part.nodes) for part in partitioner.propose_partitions()]
    kept = [_without_outer_views(nodes) for part in proposed for nodes in _connected(part)]
    order = {node: place for place, node in enumerate(graph_module.graph.nodes)}
    parts = [
        dict.fromkeys(sorted(nodes, key=order.__getitem__)) for nodes in kept if _may_gain(nodes)
    ]
    parts += [{node: None} for node in order if _is_table_gradient(node)]
    fuse_by_partitions(graph_module, parts, prefix="region_")
    wrapped = []
    for name, module in list(graph_module.named_children()):
        if name.startswith("region_"):
            wrapped.append(wrap(module))
            setattr(graph_module, name, wrapped[-1])
    return wrapped


def _is_table_gradient(node: torch.fx.Node) -> bool:
    """True for the gradient of an embedding by integers of 64 bits."""
    if node.op != "call_function" or name_of(node) != TABLE_GRADIENT:
        return False
    (made,), (rows, places) = _values(node), map(_values, node.args[:2])
    kinds = [*((one.dtype, one.device.type) for one in (made, *rows, *places))]
    return (
        kinds == [(torch.float32, "cpu")] * 2 + [(torch.int64, "cpu")]
        and all(isinstance(extent, int) for extent in made.shape)
        and made.numel() >= _LEAST_ELEMENTS
    )


def _connected(nodes: set[torch.fx.Node]) -> Iterator[set[torch.fx.Node]]:
    """Yield the connected parts of nodes."""
    left = set(nodes)
    while left:
        found, waiting = set(), [left.pop()]
        while waiting:
            node = waiting.pop()
            found.add(node)
            near = left.intersection((*node.all_input_nodes, *node.users))
            left -= near
            waiting.extend(near)
        yield found


class _InRegions(OperatorSupportBase):  # type: ignore[misc]
    """Says which nodes may be part of a region."""

    def is_node_supported(
        self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node
    ) -> bool:
        """True for functional operators on tensors that kernels compute with."""
        if node.op != "call_function":
            return False
        if name_of(node) == "getitem":
            return self.is_node_supported(submodules, node.args[0])
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            return False
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return False  # masks of dropout come from PyTorch's generator
        if node.target._schema.is_mutable or any(part in name_of(node) for part in _LEFT):
            return False
        if name_of(node) in _STATISTICS or not node.all_input_nodes:
            return False
        kinds = _COMPUTED
        if name_of(node) == _LABELLED:
            if node.args[3] is not None:  # weights of classes
                return False
            kinds = _COMPUTED | {torch.int64}
        made = node.meta.get("val")
        values = [*tensors_of(made), *(v for n in node.all_input_nodes for v in _values(n))]
        return bool(values) and all(
            value.dtype in kinds and value.device.type == "cpu" for value in values
        )


def name_of(node: torch.fx.Node) -> str:
    """Return the name of an operator without namespace and overload."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))


def tensors_of(value: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors among the results of an operator."""
    items = value if isinstance(value, tuple | list) else (value,)
    return tuple(item for item in items if isinstance(item, torch.Tensor))


def _values(node: torch.fx.Node) -> tuple[torch.Tensor, ...]:
    return tensors_of(node.meta.get("val"))


def _without_outer_views(nodes: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """Return the nodes without views at either end that others use as well: they cost nothing."""
    while True:
        outer = {node for node in nodes if _is_view(node) and _is_outer(node, nodes)}
        if not outer:
            return nodes
        nodes = nodes - outer


def _is_outer(node: torch.fx.Node, nodes: set[torch.fx.Node]) -> bool:
    inside = [user in nodes for user in node.users]
    reads = any(read in nodes for read in node.all_input_nodes)
    return not any(inside) or (not reads and not all(inside))


def _is_view(node: torch.fx.Node) -> bool:
    name = name_of(node)
    return name in _VIEWS or (name == "getitem" and _is_view(node.args[0]))


def _may_gain(nodes: set[torch.fx.Node]) -> bool:
    """True if a region computes enough to be worth a call of its own."""
    computing = [node for node in nodes if not _is_view(node) and name_of(node) != "getitem"]
    sizes = [value.numel() for node in computing for value in _values(node)]
    if not sizes or not any(bool(size >= _LEAST_ELEMENTS) for size in sizes):
        return False
    return len(computing) > 1 or any(name_of(node) in _COSTLY for node in computing)


def region_text(module: torch.fx.GraphModule) -> str:
    """Return what a region computes, the same text for equal ones, whatever their names."""
    numbers: dict[str, int] = {}
    lines = []
    for node in module.graph.nodes:
        arguments = torch.fx.map_arg(
            (node.args, node.kwargs), lambda read: f"%{numbers[read.name]}"
        )
        numbers[node.name] = len(numbers)
        target = "" if node.op == "placeholder" else str(node.target)
        lines.append(f"{node.op} {target} {arguments}")
    return "\n".join(lines)


def operator_names(module: torch.fx.GraphModule) -> Iterator[str]:
    """Yield the names of the operators a region computes with, views left out."""
    for node in module.graph.nodes:
        if node.op == "call_function" and not _is_view(node) and name_of(node) != "getitem":
            yield name_of(node)


def tensor_text(tensor: torch.Tensor | Laid) -> str:
    """Return type and extents of a tensor, as reports show them."""
    shape = tensor.read_shape if isinstance(tensor, Laid) else tensor.shape
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"


def results_of(value: Any) -> Sequence[torch.Tensor]:
    """Return the results of a region as a sequence: a lone one is not in a tuple."""
    return value if isinstance(value, tuple | list) else (value,)
