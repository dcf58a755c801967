"""Register tiles of several heights beside that of a schedule stay in registers."""

from __future__ import annotations

import pytest
from support.engine.open_rows import opened, parsed

from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.kernels.family import KernelTarget, Pipeline, SizedTile
from aoe.kernels.halide.apply import legal_steps
from aoe.kernels.matmul.row_tiles import PanelTile, with_panels
from aoe.kernels.matmul.shape import BLOCK, PANEL, most_panels, stays_in_registers
from aoe.kernels.registry import get_family
from aoe.schedule import Configuration, Schedule, Split
from aoe.workload import Workload

_AVX512 = KernelTarget(vector_lanes=16, threads=1, int8_dot=True)
_TARGETS = {
    "AVX-512": _AVX512,
    "AVX2": KernelTarget(vector_lanes=8, threads=1),
    "NEON": KernelTarget(vector_lanes=4, threads=1),
}
_FLOAT = ("t = MatMul(x, w) u = Add(t, b) y = Relu(u)", "float[96,200] w, float[200] b")
_LONG = (
    "t = MatMul(x, w) u = Add(t, b) y = com.microsoft.Gelu(u)",
    "float[96,200] w, float[200] b",
)
_FOUR_BITS = (
    """y = com.microsoft.MatMulNBits
    <K = 96, N = 200, bits = 4, block_size = 32, accuracy_level = 4> (x, w, scale_w)""",
    "uint8[200,3,16] w, float[600] scale_w",
)


def _sized(
    net: tuple[str, str], target: KernelTarget, rows: int = 64, **chosen: int
) -> tuple[Pipeline, Schedule, list[SizedTile]]:
    """Return the pipeline of any rows, the schedule of so many, and the tiles beside its own."""
    body, weights = net
    graph, shapes, parts = opened(parsed("float[S,96] x", body, weights=weights), {"S": 64})
    found = find_open_rows(graph, parts.regions[-1], shapes)
    assert isinstance(found, OpenRows)
    workload = found.of(rows)
    assert isinstance(workload, Workload)
    family = get_family(workload.op_type)
    guess = {**family.space(workload, target).first_guesses[0], **chosen}
    schedule = family.schedule(workload, Configuration(guess), target)
    pipeline = family.pipeline(workload, schedule.algorithm)
    assert pipeline.tiled is not None and pipeline.tiled.argument is None
    return pipeline, schedule, list(pipeline.tiled.tiles(schedule, target))


def _panels(pipeline: Pipeline, schedule: Schedule) -> int:
    column = pipeline.loops["y"][0][0]
    cuts = [step for step in schedule.steps if isinstance(step, Split) and step.stage == "y"]
    return next(step.factor for step in cuts if step.var == column) // PANEL


@pytest.mark.parametrize("net", [_FLOAT, _LONG, _FOUR_BITS])
@pytest.mark.parametrize("name", _TARGETS)
def test_every_tile_is_legal_and_stays_in_registers(net: tuple[str, str], name: str) -> None:
    target = _TARGETS[name]
    pipeline, schedule, found = _sized(net, target)
    assert found[0].schedule == schedule
    assert found[-1].size == 1
    assert len({one.size for one in found}) == len(found) <= 10  # files of variants have one digit
    for one in found:
        legal_steps(pipeline, one.schedule)
        assert stays_in_registers(_panels(pipeline, one.schedule), one.size, target)


def test_lower_tiles_hold_more_panels() -> None:
    pipeline, _, found = _sized(_FLOAT, _AVX512)
    wide = {one.size: _panels(pipeline, one.schedule) for one in found}
    assert (wide[9], wide[8], wide[6], wide[5]) == (3, 3, 4, 5)
    pipeline, _, found = _sized(_FOUR_BITS, _AVX512, blocks=2, rows=8)
    wide = {one.size: _panels(pipeline, one.schedule) for one in found}
    assert (wide[8], wide[6], wide[5]) == (2, 3, 4)


def test_rows_are_computed_in_the_tiles_that_cost_least() -> None:
    _, _, found = _sized(_FLOAT, _AVX512)

    def computed(rows: int) -> int:
        fitting = [one for one in found if one.size <= rows]
        best = min(fitting, key=lambda one: -(-rows // one.size) * one.cost)
        return -(-rows // best.size) * best.size

    expected = {6: 6, 8: 8, 16: 16, 17: 18, 25: 25, 45: 45}
    assert {rows: computed(rows) for rows in expected} == expected


@pytest.mark.parametrize("wide", [1, 2, 5])
def test_panels_of_a_tile_come_back(wide: int) -> None:
    pipeline, schedule, _ = _sized(_FLOAT, _AVX512)
    column = pipeline.loops["y"][0][0]
    tile = PanelTile(stage="y", columns=column, panel=PANEL, sums=None, panels=BLOCK)
    own = _panels(pipeline, schedule)
    changed = with_panels(schedule, tile, wide)
    assert _panels(pipeline, changed) == wide
    assert with_panels(changed, tile, own) == schedule


def test_no_panel_fits_beside_too_many_rows() -> None:
    assert most_panels(31, _AVX512) == 0
    assert most_panels(5, _AVX512) == 5
