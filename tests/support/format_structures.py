"""Structures of records of every format, and what the rules of a format say of the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aoebank.formats.aiter_triton import format as aiter_triton
from aoebank.formats.akg import format as akg
from aoebank.formats.cube import format as cube
from aoebank.formats.gradient import format as gradient
from aoebank.formats.graph import rules as graph
from aoebank.formats.kernel_tuner import format as kernel_tuner
from aoebank.formats.runtime_kb import rules as runtime_kb
from aoebank.formats.structure import Structure
from aoebank.formats.t4 import format as t4
from aoebank.formats.text.problem import Problem
from aoebank.formats.unified import format as unified
from aoebank.formats.vector import format as vector
from aoebank.formats.vllm import format as vllm

STRUCTURES: Mapping[str, Structure] = {
    "unified": unified.STRUCTURE,
    "vector": vector.STRUCTURE,
    "gradient": gradient.STRUCTURE,
    "graph": graph.STRUCTURE,
    "cube": cube.STRUCTURE,
    "runtime_kb": runtime_kb.STRUCTURE,
    "vllm": vllm.STRUCTURE,
    "aiter_triton": aiter_triton.STRUCTURE,
    "kernel_tuner": kernel_tuner.STRUCTURE,
    "t4": t4.STRUCTURE,
    "akg": akg.STRUCTURE,
}


def _of_graph(value: Any) -> Iterator[Problem]:
    problems = [*graph.line_problems(value)]
    yield from _about_structure(problems, value, "graphID")
    if {problem.code for problem in problems} <= {"AB309"}:
        yield from graph.structure_problems(value)


def _of_gradient(value: Any) -> Iterator[Problem]:
    return _about_structure([*gradient.item_problems(value)], value, "modelhash")


def _about_structure(problems: list[Problem], value: Any, identity: str) -> Iterator[Problem]:
    """Yield problems, but not that the text of an identity is no number."""
    is_text = isinstance(value, dict) and isinstance(value.get(identity), str)
    return (problem for problem in problems if problem.code != "AB309" or not is_text)


SHAPES: Mapping[str, tuple[Structure, Callable[[Any], Iterator[Problem]], Any]] = {
    "unified": (
        unified.STRUCTURE,
        unified.structure_problems,
        [{"knowledge": {}, "info_dict": "x"}],
    ),
    "vllm": (vllm.STRUCTURE, vllm.row_problems, {"BLOCK_SIZE_M": 16}),
    "akg": (
        akg.STRUCTURE,
        akg.structure_problems,
        {"metadata": {"attrs": {}}, "8_8--": {"float32--": {"dim": "0 0 8 8"}}},
    ),
    "vector": (vector.STRUCTURE, vector.structure_problems, "[[1], 2]"),
    "cube": (cube.STRUCTURE, cube.line_problems, {"shape": {}, "tiling": [1]}),
    "gradient": (
        gradient.STRUCTURE,
        _of_gradient,
        {"modelhash": "7", "modelvalue": {"gradientSize": [1], "gradientTime": [2.5]}},
    ),
    "graph": (
        graph.STRUCTURE,
        _of_graph,
        {
            "graphID": "7",
            "feature": {"feature": []},
            "strategy": {"group": [{"cut": [], "fusionType": [], "scopeId": []}]},
        },
    ),
}
"""Of formats whose rules tell of a shape too: structure, those rules, and a right record."""
