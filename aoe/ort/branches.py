"""Branches of an If that hold models of other shapes than the one that is fixed.

With the shapes of one branch, the operators of the other do not fit together, although nobody
takes it. ONNX Runtime infers shapes in both, and refuses the model. What such a branch reads from
outside goes through a Loop of one turn there: nothing is inferred across it, the branch computes
what it computed before, and all others are as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from aoe.graph.model_graph import names_read, own_names, subgraphs
from aoe.graph.protos import copied, refill
from aoe.graph.rewrites.editing import rename_outer
from aoe.ort.optimizers import fewest

_ANY = ".any_shape"
Opens = Callable[[onnx.ModelProto], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedModel:
    """A model whose branches do with its fixed shapes."""

    proto: onnx.ModelProto  # The model
    # Names of the Ifs with branches for other shapes, in which nothing is inferred now.
    nodes: tuple[str, ...] = ()

    @property
    def caveat(self) -> str:
        """Warning for the user; the empty string if there is none."""
        if not self.nodes:
            return ""
        names = ", ".join(name or "an If without a name" for name in self.nodes)
        return f"branches of {names} are for other shapes than those of the inputs: they stay open"


def free_branches(proto: onnx.ModelProto, written: onnx.ModelProto, opens: Opens) -> FreedModel:
    """Return a model that can be opened with its fixed shapes, itself if it can be or never could.

    Args:
        proto: A model with static input shapes.
        written: The same with the input shapes it was written with.
        opens: Whether ONNX Runtime takes a model with all optimisations.
    """
    branches = range(len(list(_branches(proto.graph))))
    if opens(proto) or not opens(written) or not opens(_freed(proto, branches)):
        return FreedModel(proto=proto)
    # as small a part as can be: those that hold others are spared first
    chosen = fewest(branches[::-1], lambda some: opens(_freed(proto, some)))
    names = [node.name for node, _ in _branches(proto.graph)]
    nodes = tuple(dict.fromkeys(names[number] for number in sorted(chosen)))
    return FreedModel(proto=_freed(proto, chosen), nodes=nodes)


def has_branches(proto: onnx.ModelProto) -> bool:
    """True if a model has an If, also inside of a branch or body."""
    return any(True for _ in _branches(proto.graph))


def _branches(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto]]:
    """Yield the branches of every If; inner branches come behind the graph they are in."""
    for node in graph.node:
        for inner in subgraphs(node):
            if node.op_type == "If":
                yield node, inner
            yield from _branches(inner)


def _freed(proto: onnx.ModelProto, chosen: Collection[int]) -> onnx.ModelProto:
    freed = copied(proto)
    for number, (_, branch) in enumerate(list(_branches(freed.graph))):
        if number in chosen:
            _free(branch, f"{_ANY}{number}")
    return freed


def _free(branch: onnx.GraphProto, suffix: str) -> None:
    read = {value.name for value in branch.output}
    read.update(name for node in branch.node for name in names_read(node))
    names = {name: f"{name}{suffix}" for name in sorted(read - own_names(branch))}
    rename_outer(branch, names)
    if names:
        nodes = [*_loop(names, suffix), *branch.node]
        refill(branch.node, nodes)


def _loop(names: dict[str, str], suffix: str) -> Sequence[onnx.NodeProto]:
    """Return a Loop of one turn that hands on tensors, and the constants it needs."""
    once, always, still, go_on = (
        f"{name}{suffix}" for name in ("once", "always", "still", "go_on")
    )
    handed = {still: go_on, **{f"{new}.in": f"{new}.out" for new in names.values()}}
    body = helper.make_graph(
        [helper.make_node("Identity", [before], [after]) for before, after in handed.items()],
        f"body{suffix}",
        [
            helper.make_tensor_value_info(f"turn{suffix}", TensorProto.INT64, []),
            helper.make_tensor_value_info(still, TensorProto.BOOL, []),
            *map(helper.make_empty_tensor_value_info, list(handed)[1:]),
        ],
        [
            helper.make_tensor_value_info(go_on, TensorProto.BOOL, []),
            *map(helper.make_empty_tensor_value_info, list(handed.values())[1:]),
        ],
    )
    return (
        _constant(once, TensorProto.INT64),
        _constant(always, TensorProto.BOOL),
        helper.make_node("Loop", [once, always, *names], list(names.values()), body=body),
    )


def _constant(name: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, kind, [], [1]))
