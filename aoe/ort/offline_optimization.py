"""ONNX Runtime's own graph optimisation, done ahead of time and written down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import helper

from aoe.errors import RunError
from aoe.graph.model_graph import attributes_of, names_read, own_names, subgraphs
from aoe.graph.protos import copied, refill, rename_tensors
from aoe.graph.rewrite import prune_opsets
from aoe.graph.rewrites.always import ALWAYS, rewritten, write_tokens_as_images
from aoe.graph.rewrites.constants import fold_constants
from aoe.graph.rewrites.half_precision import is_half_precision
from aoe.graph.rewrites.inlined import joined_again
from aoe.graph.weights import SMALL_BYTES, is_outside, load_written, place_of, share_places
from aoe.operators import BLOCKED_CONVOLUTION, op_key
from aoe.ort.optimizers import ALL_OR_NOTHING, Optimizations, broken_at, mark, optimizations_of
from aoe.ort.sessions import (
    NO_PACKING,
    OpenSession,
    has_kernel,
    session_options,
    session_source,
)
from aoe.workload import NCHWC_DOMAIN

_WEIGHTS_SUFFIX = ".weights"
_WEIGHTS_FILE = "session.optimized_model_external_initializers_file_name"
_WEIGHTS_LEAST = "session.optimized_model_external_initializers_min_size_in_bytes"
_INSIDE_FUNCTION = "_inlfunc_"
"""Begins results inside of a function ONNX Runtime has put in the place of an operator. Source: its
`Graph::InlineFunctionProto`."""
_MOST_ROUNDS = 4
"""Of optimising again; the second one has left every model as it was that was seen."""


def optimize_offline(
    proto: onnx.ModelProto,
    file: Path,
    open_session: OpenSession,
    *,
    threads: int,
    tokens_as_images: bool = True,
) -> onnx.ModelProto:
    """Return the graph ONNX Runtime really runs, blocked layouts included.

    Rewriters that break the model are left out; `marked` tells which, and where it breaks. Rules
    that always help stand in front of it (`aoe/graph/rewrites/always.py`). Where ONNX Runtime puts
    functions in the place of operators, it optimises until nothing is left to optimise in them.

    Args:
        proto: A model with static input shapes.
        file: Where ONNX Runtime writes the optimised model; in a directory of the caller's. Where
            the model has its weights outside, those of the optimised one stay beside this file,
            and have to be there as long as the model is.
        open_session: Loads a model on the device it is optimised for.
        threads: Intra-op threads of the session.
        tokens_as_images: False to leave matrix products of tokens what they are.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    spelled = rewritten(_with_wide_constants(proto), *ALWAYS)
    if tokens_as_images:
        spelled = write_tokens_as_images(spelled)
    session, optimized = _saved(spelled, spelled, file, open_session, threads)
    applied = optimizations_of(session)
    del session  # it holds the weights
    if _functions_inside(optimized):
        mark(optimized, applied)
        optimized = _optimized_to_the_end(optimized, spelled, file, open_session, threads)
    fold_constants(optimized)
    optimized = joined_again(optimized)
    _write_filter_extents(optimized)
    make_canonical(optimized, spelled)
    mark(optimized, _told(spelled, applied, open_session))
    return optimized


def _saved(
    proto: onnx.ModelProto,
    original: onnx.ModelProto,
    file: Path,
    open_session: OpenSession,
    threads: int,
) -> tuple[ort.InferenceSession, onnx.ModelProto]:
    """Return a session of a model, and what it has written of it; weights as in `original`."""
    options = session_options(threads=threads, optimize=True)
    options.optimized_model_filepath = str(file)
    weights = file.with_name(file.name + _WEIGHTS_SUFFIX)
    if is_outside(original):
        options.add_session_config_entry(_WEIGHTS_FILE, weights.name)
        options.add_session_config_entry(_WEIGHTS_LEAST, str(SMALL_BYTES))
        options.add_session_config_entry(NO_PACKING, "1")  # nothing is run
    session = open_session(session_source(proto, options), options)
    optimized = load_written(file, whole=not is_outside(original))
    if is_outside(original):
        _drop_twins(optimized, original, weights)
    return session, optimized


# ---- Operators without a kernel, which are computed as the function ONNX defines them by ----
# ONNX Runtime puts their functions in place behind the rewriters of its first level, so that what
# it saves has all their casts and constants in it: GroupNormalization is 29 nodes, and 14 when
# optimised again; Swish is Cast, Mul, Sigmoid and Mul, and then one QuickGelu.


def _functions_inside(proto: onnx.ModelProto) -> bool:
    made = (name for node in _all_nodes(proto.graph) for name in node.output)
    return any(name.startswith(_INSIDE_FUNCTION) for name in made)


def _optimized_to_the_end(
    optimized: onnx.ModelProto,
    original: onnx.ModelProto,
    file: Path,
    open_session: OpenSession,
    threads: int,
) -> onnx.ModelProto:
    """Return the model, optimised again until the counts of its operators stay the same."""
    for number in range(_MOST_ROUNDS):
        again = file.with_name(f"{file.stem}_{number}{file.suffix}")
        try:
            _, found = _saved(optimized, original, again, open_session, threads)
        except RunError:  # a rewriter breaks what the others have made
            return optimized
        finally:
            again.unlink(missing_ok=True)
        if _operators(found) == _operators(optimized):
            return optimized
        optimized = found
    return optimized


def _operators(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}:{node.op_type}" for node in _all_nodes(proto.graph))


def with_functions_in_place(
    proto: onnx.ModelProto, file: Path, open_session: OpenSession
) -> tuple[onnx.ModelProto, Counter[str]]:
    """Return a model with the functions of operators ONNX Runtime has no kernel of.

    ONNX Runtime then optimises them as soon as it loads the model.

    Args:
        proto: A model.
        file: Where ONNX Runtime may write, in a directory of the caller's.
        open_session: Loads a model on the device it is for.

    Returns:
        The model, itself where there are none, and how many of each operator there are. Large
        models, whose weights lie outside, stay as they are.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    counts = Counter(node.op_type for node in _all_nodes(proto.graph) if _is_function(proto, node))
    if not counts or is_outside(proto):
        return proto, Counter()
    options = session_options(threads=1, optimize=False)
    options.optimized_model_filepath = str(file)
    open_session(session_source(proto, options), options)
    written = load_written(file, whole=True)
    file.unlink()
    if not _functions_inside(written):
        return proto, Counter()
    make_canonical(written, proto)
    prune_opsets(written)
    return written, counts


def _is_function(proto: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """True for an operator of ONNX that only its function computes; casts are not worth a look."""
    opset = next((one.version for one in proto.opset_import if one.domain == node.domain), 0)
    if node.domain or node.op_type == "CastLike" or not onnx.defs.has(node.op_type, opset, ""):
        return False
    schema: Any = onnx.defs.get_schema(node.op_type, opset, "")  # its stubs lack the functions
    is_defined = schema.has_function or schema.has_context_dependent_function
    return is_defined and not has_kernel(node.op_type, schema.since_version)


def _with_wide_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose cast weights are constants, which rules know by their values."""
    if not is_half_precision(proto):
        return proto
    model = copied(proto)
    fold_constants(model, "Cast")
    return model


def _write_filter_extents(proto: onnx.ModelProto) -> None:
    """Write the extents of filters that blocked convolutions in groups leave to their weights.

    A blocked convolution in groups that says none is the form in which ONNX Runtime leaves a
    BatchNormalization: its filters are single values, and are left.
    """
    weights = {tensor.name: tensor.dims for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        said = attributes_of(node)
        if op_key(node) != BLOCKED_CONVOLUTION or "kernel_shape" in said:
            continue
        extents = weights.get(node.input[1], ())[2:]
        if said.get("group", 1) > 1 and any(extent > 1 for extent in extents):
            node.attribute.append(helper.make_attribute("kernel_shape", list(extents)))


def _told(proto: onnx.ModelProto, found: Optimizations, open_session: OpenSession) -> Optimizations:
    """Add to what breaks a model where it does; not of a model too large to be opened often."""
    if found.are_all or is_outside(proto) or is_fully_optimized(proto, open_session):
        return found  # what is wrong, and not broken, is wrong nowhere in particular

    def opens(part: onnx.ModelProto) -> bool:
        return is_fully_optimized(part, open_session)

    return replace(found, broken_at=broken_at(proto, opens))


def is_fully_optimized(proto: onnx.ModelProto, open_session: OpenSession) -> bool:
    """True if a model can be opened with all optimisations; nothing is computed."""
    options = session_options(threads=1, optimize=True)
    options.add_session_config_entry(NO_PACKING, "1")
    options.add_session_config_entry(ALL_OR_NOTHING, "1")
    try:
        open_session(session_source(proto, options), options)
    except RunError:
        return False
    return True


def _drop_twins(optimized: onnx.ModelProto, original: onnx.ModelProto, weights: Path) -> None:
    """Remove the weights ONNX Runtime has written where none of them is another than before."""
    share_places(optimized, original)
    places = map(place_of, optimized.graph.initializer)
    if not any(place is not None and place.file == weights.absolute() for place in places):
        weights.unlink(missing_ok=True)


# ---- One form for equal graphs, so that equal models tune alike and give the same bytes ----
# ONNX Runtime's passes walk through hash tables: the order of the nodes it writes, of their
# attributes and of the initializers may differ from run to run, and with it the numbers in the
# names it makes up.

_NUMBERED = re.compile(r"_token_\d+$")
"""What ONNX Runtime appends to a name that is taken. Source: its `Graph::GenerateNodeArgName`.

A tensor that is named after a node without a name is called by nothing else: `_token_4`.
"""


def make_canonical(proto: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Put what ONNX Runtime has written into one order, with one set of names, in place.

    Nodes stand as a walk from the outputs to what they need finds them. Names the original gave
    stay, the others are numbered in that order. Every node gets a name of its own, those inside
    subgraphs too: the profiler tells nodes by nothing else.

    Args:
        proto: An optimised model.
        original: The model it was made from.
    """
    given = set(_tensor_names(original.graph))
    _sort(proto.graph)
    _name_tensors(proto.graph, {}, given, _Names(given))
    _name_nodes(proto.graph, {node.name for node in _all_nodes(original.graph)})
    for graph in _all_graphs(proto.graph):
        graph.initializer.sort(key=lambda tensor: tensor.name)
    proto.opset_import.sort(key=lambda entry: entry.domain)


class _Names:
    """Gives out names, each once."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)
        self._last: Counter[str] = Counter()

    def take(self, wanted: str) -> str:
        name = wanted
        while name in self._taken:
            self._last[wanted] += 1
            name = f"{wanted}_{self._last[wanted] + 1}"
        self._taken.add(name)
        return name


def _sort(graph: onnx.GraphProto) -> None:
    """Sort nodes topologically and their attributes by name, in subgraphs first."""
    for node in graph.node:
        node.attribute.sort(key=lambda attribute: attribute.name)
        for inner in subgraphs(node):
            _sort(inner)
    nodes = list(graph.node)
    producer = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [[producer[name] for name in names_read(node) if name in producer] for node in nodes]
    ends = [producer[value.name] for value in graph.output if value.name in producer]
    ends += sorted(range(len(nodes)), key=lambda at: _looks(nodes[at]))  # nobody needs those left
    order = list(_walk(needs, ends))
    ordered = [nodes[at] for at in order]
    refill(graph.node, ordered)


def _looks(node: onnx.NodeProto) -> tuple[str, ...]:
    names = (node.name, *node.input, *node.output)
    return (node.op_type, *(_NUMBERED.sub("", name) for name in names))


def _walk(needs: list[list[int]], ends: list[int]) -> Iterator[int]:
    """Yield the nodes `ends` need, depth first, every node behind what it needs."""
    seen: set[int] = set()
    for end in ends:
        path = [(end, iter(needs[end]))] if end not in seen else []
        seen.add(end)
        while path:
            node, rest = path[-1]
            needed = next((at for at in rest if at not in seen), None)
            if needed is None:
                yield node
                path.pop()
            else:
                seen.add(needed)
                path.append((needed, iter(needs[needed])))


def _name_tensors(
    graph: onnx.GraphProto, outer: dict[str, str], given: set[str], names: _Names
) -> None:
    """Rename what the original did not name: initializers where they are read, results."""
    own = own_names(graph)
    known = {name: new for name, new in outer.items() if name not in own}
    stored = {tensor.name for tensor in graph.initializer}

    def rename(name: str, nameless: str) -> None:
        if name and name not in given:
            known[name] = names.take(_NUMBERED.sub("", name) or nameless)

    for value in graph.input:
        rename(value.name, "input")
    for node in graph.node:
        for name in names_read(node):
            if name in stored and name not in known:
                rename(name, f"{node.op_type}_constant")
        for inner in subgraphs(node):
            _name_tensors(inner, known, given, names)
        for name in node.output:
            rename(name, f"{node.op_type}_result")
        rename_tensors(node, known)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = known.get(value.name, value.name)


def _name_nodes(graph: onnx.GraphProto, given: set[str]) -> None:
    """Name nodes: of the main graph the ones the original named first, then all others."""
    main, names = len(graph.node), _Names(set())
    others = []
    for at, node in enumerate(_all_nodes(graph)):
        if at < main and node.name in given and node.name and not _is_reorder(node):
            node.name = names.take(node.name)
        else:
            others.append(node)
    for node in others:
        wanted = "" if _is_reorder(node) else node.name
        if wanted not in given:
            wanted = _NUMBERED.sub("", wanted)
        wanted = wanted or f"{node.op_type}_{next(iter(node.input), '')}"
        node.name = names.take(wanted if wanted in given else _NUMBERED.sub("", wanted))


def _is_reorder(node: onnx.NodeProto) -> bool:
    return bool(node.domain == NCHWC_DOMAIN and node.op_type.startswith("Reorder"))


def _all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _all_graphs(inner)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph, then the nodes of the graphs inside it."""
    for found in _all_graphs(graph):
        yield from found.node


def _tensor_names(graph: onnx.GraphProto) -> Iterator[str]:
    for found in _all_graphs(graph):
        for value in (*found.input, *found.output, *found.initializer):
            yield value.name
        for node in found.node:
            yield from (*node.input, *node.output)
