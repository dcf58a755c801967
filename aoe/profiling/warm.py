"""Operators timed alone, operands in the caches: what of their time is the way from memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph, names_read, subgraphs
from aoe.graph.protos import value_info
from aoe.ort.sessions import bound_run, random_feed, session_options, session_source
from aoe.profiling.figures import OperatorProfile
from aoe.profiling.subject import ProfileSubject

_LEAST_SHARE = 0.01
"""Of the time of all operators; others are not worth a session of their own."""
_RUNS = 20


def with_warm_times(
    operators: Sequence[OperatorProfile], subject: ProfileSubject, threads: int
) -> tuple[OperatorProfile, ...]:
    """Return the operators, those that take long with the time they need on warm operands.

    Operators whose shapes are not proven, or which cannot be run alone, stay as they are.

    Args:
        operators: Of the model.
        subject: The model.
        threads: Of their runs.
    """
    least_us = _LEAST_SHARE * sum(operator.median_us for operator in operators)
    nodes = {node.name: node for node in subject.running.graph.node}
    return tuple(
        replace(operator, warm_us=_warm_us(nodes[operator.name], subject, threads))
        if operator.median_us >= least_us
        else operator
        for operator in operators
    )


def _warm_us(node: onnx.NodeProto, subject: ProfileSubject, threads: int) -> float | None:
    model = single_node_model(node, subject.graph, subject.running)
    if model is None:
        return None
    options = session_options(threads=threads, optimize=False, library=subject.library)
    try:
        session = subject.device.open_session(session_source(model, options), options)
        run = bound_run(session, random_feed(session, seed=0))
    except RunError:
        return None  # made-up operands are not what it takes
    sample = subject.device.timer(run, repeats=1)
    return float(np.median([sample() for _ in range(_RUNS)]))


def single_node_model(
    node: onnx.NodeProto, graph: ModelGraph, running: onnx.ModelProto
) -> onnx.ModelProto | None:
    """Return a model of one node with its constants, None where a shape is not proven.

    Args:
        node: One of `running`.
        graph: Knows shapes and constants.
        running: The model the node is taken from.
    """
    if any(True for _ in subgraphs(node)):
        return None
    names = dict.fromkeys(names_read(node))
    computed = [name for name in names if name not in graph.initializers]
    made = [name for name in node.output if name]
    infos = {name: graph.find_info(name) for name in (*computed, *made)}
    if not computed or any(info is None for info in infos.values()):
        return None
    values = {name: value_info(name, info) for name, info in infos.items() if info is not None}
    alone = helper.make_graph(
        [node],
        "alone",
        [values[name] for name in computed],
        [values[name] for name in made],
        [graph.initializers[name] for name in names if name in graph.initializers],
    )
    return helper.make_model(
        alone,
        opset_imports=running.opset_import,
        ir_version=running.ir_version,
        functions=running.functions,
    )
