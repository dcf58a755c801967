"""`--out_nodes="node:0;other:1"`: a model cut off at these results, before anything is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import onnx

from aoe.errors import ModelImportError, OptionError
from aoe.graph.model_graph import names_read
from aoe.graph.protos import copied, refill
from aoe.graph.rewrite import drop_unused_initializers, live_nodes, prune_opsets

_EXAMPLE = 'for example --out_nodes="conv1:0;relu2:0"'


def parse_out_nodes(text: str | None) -> tuple[str, ...]:
    """Return the entries of an `--out_nodes` value, each `node:0` or the name of a result.

    Raises:
        OptionError: there is none, or one stands there twice.
    """
    if text is None:
        return ()
    names = tuple(filter(None, (part.strip() for part in text.split(";"))))
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise OptionError("--out_nodes", "output given twice", got=twice[0], hint=_EXAMPLE)
    if not names:
        raise OptionError("--out_nodes", "no output", got=repr(text), hint=_EXAMPLE)
    return names


def cut_at_outputs(proto: onnx.ModelProto, entries: Sequence[str]) -> None:
    """Make results of nodes the outputs of a model, in place; what no output needs goes.

    That includes inputs nothing reads any more. An output keeps the name the result has.

    Args:
        proto: A model whose functions are not inlined.
        entries: As `parse_out_nodes` gives them; none to leave the model as it is.

    Raises:
        ModelImportError: no node or result has that name, a node has no such result, or two entries
            stand for one.
    """
    if not entries:
        return
    graph = proto.graph
    results = [_result(graph, entry) for entry in entries]
    for at, name in enumerate(results):
        if name in results[:at]:
            raise ModelImportError(
                "--out_nodes", f"output {name} given twice", got=";".join(entries), hint=_EXAMPLE
            )
    kinds = _typed(proto)
    outputs = [
        kinds.get(name) or onnx.helper.make_empty_tensor_value_info(name) for name in results
    ]
    refill(graph.output, outputs)
    kept = live_nodes(graph.node, results)
    refill(graph.node, kept)
    _drop_unused_inputs(graph)
    drop_unused_initializers(graph)
    prune_opsets(proto)


def _result(graph: onnx.GraphProto, entry: str) -> str:
    """Return the name of the result an entry stands for: its own name, or node and number."""
    made = {name: node for node in graph.node for name in node.output if name}
    if entry in made:
        return entry
    name, colon, number = entry.rpartition(":")
    node = next((node for node in graph.node if name and node.name == name), None)
    if not colon or node is None:
        names = [*(node.name for node in graph.node if node.name), *made]
        close = get_close_matches(name or entry, names, n=1)
        raise ModelImportError(
            "--out_nodes",
            "the model has no such node or result",
            got=entry,
            expected="a node and the number of its result, or the name of a result",
            hint=f"did you mean {close[0]}?" if close else _EXAMPLE,
        )
    if not number.isdecimal() or int(number) >= len(node.output) or not node.output[int(number)]:
        raise ModelImportError(
            "--out_nodes",
            f"node {name} has no such result",
            got=entry,
            expected=" or ".join(f"{name}:{at}" for at, result in enumerate(node.output) if result),
        )
    return str(node.output[int(number)])


def _typed(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return types of results, as far as the model says them or they can be inferred."""
    try:
        graph = onnx.shape_inference.infer_shapes(proto).graph
    except (onnx.shape_inference.InferenceError, ValueError):  # the latter of models over 2 GiB
        graph = proto.graph
    return {value.name: copied(value) for value in (*graph.value_info, *graph.output)}


def _drop_unused_inputs(graph: onnx.GraphProto) -> None:
    used = {name for node in graph.node for name in names_read(node)}
    kept = [value for value in graph.input if value.name in used]
    refill(graph.input, kept)
