"""Models of a newer opset than ONNX Runtime computes, in one that it computes.

`onnx.helper` writes the newest opset of ONNX, for which ONNX Runtime is a release or two behind: it
refuses the opset, or has no kernel of an operator's newest version. Most new versions take more
element types and mean what they meant. The version converter of ONNX is not asked, since it
changes results (`findings/onnx_version_converter_changes_results.sh`): no node is changed here but
for attributes that say what the older version does anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx
from onnx import defs, helper

from aoe.graph.model_graph import attributes_of, subgraphs
from aoe.graph.protos import copied, refill

_OLDEST, _NEWEST = 24, 28
"""Opsets whose new versions were read, one by one: ONNX Runtime 1.28 computes all of the oldest.
Source: onnx 1.23, docs/Changelog.md."""
_DIFFERENT = {
    "BitShift": "a shift by all bits of an integer or more has a result since then",
}
"""Operators whose newest version says more than element types, by what that is."""
_OF_NEW_TYPES = {("Cast", "round_mode"), ("CastLike", "round_mode"), ("Range", "stash_type")}
"""Attributes that mean nothing for element types that older versions take."""
_ONNX_DOMAINS = ("", "ai.onnx")

Refused = Callable[[onnx.ModelProto], str | None]
"""Returns the operator and version ONNX Runtime has no kernel of, `Swish(24)`; the empty string
where it refuses the opset as a whole, None where neither is a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableModel:
    """A model in an opset ONNX Runtime computes."""

    proto: onnx.ModelProto  # The model, as it was given where it needs no other opset
    # What has to be said of it: the opset it was written in; empty if that is its own.
    caveat: str = ""
    problem: str = ""  # Why no older opset will do: operator and version; empty if one will


def in_readable_opset(proto: onnx.ModelProto, refused: Refused) -> ReadableModel:
    """Return a model in the newest opset that ONNX Runtime computes it in.

    Args:
        proto: A checked model.
        refused: Asked for models of an opset above 24 alone.
    """
    written = _opset(proto)
    if not _OLDEST < written <= _NEWEST:
        return ReadableModel(proto=proto)
    operator = refused(proto)
    if operator is None:
        return ReadableModel(proto=proto)
    for opset in range(written - 1, _OLDEST - 1, -1):
        problems = dict(_differences(proto, opset))
        if problems:
            own = {_versioned(node, written) for node in _nodes(proto)}
            first = next(iter(problems.values()))  # of the opset, or of an operator in a function
            problem = problems.get(operator, "") if operator in own else first
            return ReadableModel(proto=proto, problem=problem)
        older = _in_opset(proto, opset)
        if refused(older) is None:
            caveat = (
                f"ONNX Runtime does not compute this model of opset {written}: it is tuned as one "
                f"of opset {opset}, in which its operators mean the same"
            )
            return ReadableModel(proto=older, caveat=caveat)
    return ReadableModel(proto=proto)  # something else is wrong with it, which is told later


def _opset(proto: onnx.ModelProto) -> int:
    versions = [one.version for one in proto.opset_import if one.domain in _ONNX_DOMAINS]
    return max(versions, default=0)


def _differences(proto: onnx.ModelProto, opset: int) -> Iterator[tuple[str, str]]:
    """Yield operators that an older opset lacks or has in another form, and what that is."""
    written = _opset(proto)
    for node in _nodes(proto):
        if node.domain not in _ONNX_DOMAINS or not defs.has(node.op_type, written, ""):
            continue
        new = defs.get_schema(node.op_type, written, "")
        lacks = _difference(node, new, opset)
        if lacks:
            name = node.name or next(filter(None, node.output), "")
            what = f"{node.op_type} of version {new.since_version}, the operator of node {name!r}"
            yield _versioned(node, written), f"{what}: {lacks}"


def _versioned(node: onnx.NodeProto, opset: int) -> str:
    """Return an operator as ONNX Runtime writes it, `Swish(24)`; of other domains by name."""
    is_known = node.domain in _ONNX_DOMAINS and defs.has(node.op_type, opset, "")
    if not is_known:
        return node.op_type
    return f"{node.op_type}({defs.get_schema(node.op_type, opset, '').since_version})"


def _difference(node: onnx.NodeProto, new: defs.OpSchema, opset: int) -> str:
    """Return the inputs, attributes or meaning an older version lacks; empty if it lacks none."""
    if not defs.has(node.op_type, opset, ""):
        return f"opset {opset} does not have it"
    old = defs.get_schema(node.op_type, opset, "")
    if old.since_version == new.since_version:
        return ""
    if node.op_type in _DIFFERENT:
        return _DIFFERENT[node.op_type]
    if len(node.input) > len(old.inputs) and not _is_variadic(old):
        return f"opset {opset} has it with fewer inputs"
    names = _attributes_that_differ(node, new, old)
    return f"opset {opset} has it without {' and '.join(names)}" if names else ""


def _is_variadic(schema: defs.OpSchema) -> bool:
    last = schema.inputs[-1:]
    return any(one.option == defs.OpSchema.FormalParameterOption.Variadic for one in last)


def _attributes_that_differ(
    node: onnx.NodeProto, new: defs.OpSchema, old: defs.OpSchema
) -> list[str]:
    """Return attributes of a node that mean something, and which an older version lacks."""
    return [
        f"{name}={value}"
        for name, value in attributes_of(node).items()
        if name not in old.attributes
        and (node.op_type, name) not in _OF_NEW_TYPES
        and value != _default(new, name)
    ]


def _default(schema: defs.OpSchema, name: str) -> object:
    known = schema.attributes.get(name)
    if known is None or not known.default_value.name:
        return None
    value: object = helper.get_attribute_value(known.default_value)
    return value.decode() if isinstance(value, bytes) else value


def _in_opset(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a copy of a model in an older opset, without attributes that say nothing there."""
    older = copied(proto)
    for imports in (older.opset_import, *(one.opset_import for one in older.functions)):
        for entry in imports:
            if entry.domain in _ONNX_DOMAINS:
                entry.version = min(entry.version, opset)
    for node in _nodes(older):
        if node.domain in _ONNX_DOMAINS and defs.has(node.op_type, opset, ""):
            old = defs.get_schema(node.op_type, opset, "")
            if any(one.name not in old.attributes for one in node.attribute):
                refill(node.attribute, [a for a in node.attribute if a.name in old.attributes])
    return older


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model, of its functions and of the graphs inside."""
    waiting = [*proto.graph.node, *(node for one in proto.functions for node in one.node)]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [inner for graph in subgraphs(node) for inner in graph.node]
