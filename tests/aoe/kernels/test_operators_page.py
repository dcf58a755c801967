"""The table of operators on the page of the kernels is what the engine does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from support.engine.offline import regions_of, view_of
from support.engine.operator_models import LEFT_MODELS, OPERATOR_MODELS, one_operator

from aoe.graph.regions import Region
from aoe.kernels.registry import FAMILIES, FUSIBLE, anchors
from aoe.target import Target

_PAGE = Path(__file__).parents[3] / "docs" / "kernels.md"
_NEWEST = 23
_NEWEST_OF = {"GlobalLpPool": 21}
"""Operators of which ONNX Runtime 1.31 has no newer version."""
_ONLY_FUSED = {"SimplifiedLayerNormalization"}
"""ONNX Runtime's own, in ONNX's domain."""
_WRITTEN_OUT = {"GroupNormalization"}
"""ONNX Runtime writes it as others before anything is tuned."""


@dataclass(frozen=True)
class _Row:
    operators: tuple[str, ...]
    families: tuple[str, ...]
    since: int
    left: str


def _quoted(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(\w+)`", text))


def _section() -> str:
    return _PAGE.read_text().split("\n## Operators\n")[1].split("\n## ")[0]


def _rows() -> list[_Row]:
    lines = [line for line in _section().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        _Row(_quoted(operators), _quoted(families), int(since), left)
        for operators, families, since, left in cells
    ]


_OPERATORS = {name: row for row in _rows() for name in row.operators}


def _regions(model: onnx.ModelProto, folder: Path, target: Target) -> tuple[Region, ...]:
    return regions_of(view_of(model, folder, target))


def test_every_operator_with_a_kernel_of_its_own_has_a_row() -> None:
    own = {name for domain, name in anchors() if not domain} - _ONLY_FUSED
    assert own | _WRITTEN_OUT | {"BatchNormalization"} == set(_OPERATORS)
    assert len(_OPERATORS) == sum(len(row.operators) for row in _rows())
    assert OPERATOR_MODELS.keys() == _OPERATORS.keys()
    assert {name for row in _rows() for name in row.families} <= set(FAMILIES)


def test_every_element_wise_operator_is_listed() -> None:
    text = " ".join(_section().split()).split("chain in any number:")[1].split(". Networks")[0]
    named = {name for domain, name in FUSIBLE if not domain} - {"BatchNormalization"}
    assert set(_quoted(text)) == named


def _own_regions(
    name: str, model: onnx.ModelProto, folder: Path, target: Target
) -> tuple[Region, ...]:
    """Return the regions of an operator, without the Transposes ONNX Runtime puts around it."""
    found = _regions(model, folder, target)
    if "movement" in _OPERATORS[name].families:
        return found
    return tuple(region for region in found if region.workload.op_type != "movement")


@pytest.mark.parametrize("name", _OPERATORS)
def test_operator_has_its_family_from_the_opset_of_its_row(
    name: str, tmp_path: Path, target: Target
) -> None:
    row = _OPERATORS[name]
    for opset in {row.since, _NEWEST_OF.get(name, _NEWEST)}:
        found = _own_regions(name, OPERATOR_MODELS[name](opset), tmp_path, target)
        assert [region.workload.op_type for region in found] in [[name] for name in row.families]


@pytest.mark.parametrize(("name", "words"), LEFT_MODELS, ids=lambda value: str(value))
def test_what_a_row_leaves_to_onnx_runtime_is_left(
    name: str, words: str, tmp_path: Path, target: Target
) -> None:
    assert words in _OPERATORS[name].left
    assert _own_regions(name, LEFT_MODELS[name, words](14), tmp_path, target) == ()


def test_operators_without_a_family_are_named() -> None:
    named = set(_quoted(_section().split("No family computes")[1]))
    assert {"TopK", "GatherND", "ScatterND"} <= named
    assert not named & {name for _, name in anchors() | FUSIBLE}


def test_softmax_over_another_axis_has_the_other_family_of_its_row(
    tmp_path: Path, target: Target
) -> None:
    (region,) = _regions(one_operator("Softmax", 13, axis=1), tmp_path, target)
    assert region.workload.op_type == "softmax"
