"""Under which names a user knows a node of the optimised graph.

ONNX Runtime fuses nodes, names them after the tensor they make (`b_nchwc`) or appends what it did
(`/fc/MatMul/MatMulAddFusion`). Tensors that survive keep their names, and lead back.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import onnx

_BLOCKED_SUFFIX = "_nchwc"
_MOST_NODES = 16
"""Nodes looked at behind a tensor: more than ONNX Runtime fuses into one."""


class Origins:
    """What became of the nodes of an imported model.

    Args:
        imported: The model before it was optimised.
        optimized: The same, as ONNX Runtime runs it.
    """

    def __init__(self, imported: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
        self._producer: Mapping[str, onnx.NodeProto] = {
            name: node for node in imported.graph.node for name in node.output if name
        }
        self._surviving = {name for node in optimized.graph.node for name in _results(node)}

    def names(self, node: onnx.NodeProto, kinds: Container[str]) -> tuple[str, ...]:
        """Return the names of an optimised node, its own first.

        Args:
            node: A node of the optimised graph.
            kinds: Operator types of the imported node it stands for; nearer its result first.
        """
        origin = self._origin(_results(node), kinds)
        found = (node.name, *([origin.name] if origin is not None else []), *_results(node)[:1])
        return tuple(dict.fromkeys(name for name in found if name))

    def _origin(self, results: list[str], kinds: Container[str]) -> onnx.NodeProto | None:
        """Return the nearest imported node of a kind that was fused into one with `results`."""
        waiting = list(results)
        for _ in range(_MOST_NODES):
            if not waiting:
                break
            node = self._producer.get(waiting.pop(0))
            if node is None:
                continue
            if node.op_type in kinds:
                return node
            waiting.extend(name for name in node.input if name not in self._surviving)
        return None


def _results(node: onnx.NodeProto) -> list[str]:
    """Return the tensors of the imported model a node may make."""
    return [node.name.removesuffix(_BLOCKED_SUFFIX), *node.output]
