"""Where the values of Winograd's tiles lie: apart from each other in the caches."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import halide as hl
import pytest
from support.contracts.kernels import block_size, blocked, kernel_target, operation, plain

from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.conv_nchwc.winograd.stages import DATA, GATHERED, stored_extents
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.schedule import Configuration
from aoe.workload import NCHWC_DOMAIN, Workload

LINES_OF_A_SET_MIN = 8
VALUES, SETS = 36, 64


@pytest.mark.parametrize("blocks", [1, 2, 4, 16, 32, 33])
def test_values_of_a_tile_do_not_share_a_few_sets_of_the_cache(blocks: int) -> None:
    for tiles in range(1, 66):
        wide, deep = stored_extents(tiles, blocks)
        assert tiles <= wide <= tiles + 1
        assert blocks <= deep <= blocks + 1
        if (wide, deep) != (tiles, blocks):
            assert tiles * blocks % 16 == 0
        lines = {value * wide * deep % SETS for value in range(VALUES)}
        assert len(lines) * LINES_OF_A_SET_MIN >= VALUES, (tiles, blocks)


@pytest.mark.skipif(block_size() != 16, reason="counts lines of blocks of 16 channels")
def test_stages_are_stored_so(tmp_path: Path) -> None:
    """Images of 64x64 in tiles of 4x4: 16 tiles in a row, 2 blocks, 2 rows of tiles in a group."""
    image = blocked(1, 32, 64, 64)
    conv = operation(
        "Conv", "x0 x1", "t0", domain=NCHWC_DOMAIN, kernel_shape=(3, 3), pads=(1, 1, 1, 1)
    )
    workload = Workload(
        op_type="convolution",
        inputs=(image, plain(32, 32, 3, 3, constant=True)),
        operations=(conv,),
        output=image,
    )
    family, target = Convolution(), replace(kernel_target(), threads=1)
    chosen = {"algorithm": "winograd_4x4", "blocks": 2, "across": 4, "down": 2}
    values = Configuration({**chosen, "tile_rows": 2, "scope": "group"})
    schedule = family.schedule(workload, values, target)
    pipeline = family.pipeline(workload, schedule.algorithm)
    apply_schedule(pipeline, schedule)
    set_extents(pipeline)
    file = tmp_path / "kernel.stmt"
    pipeline.output.compile_to_lowered_stmt(
        str(file), list(pipeline.arguments), hl.StmtOutputFormat.Text
    )
    text = file.read_text()
    for stage in (DATA, GATHERED):
        found = re.search(rf"allocate {stage}\S*\[float32\*? \* (.*?)\]", text)
        assert found is not None, re.findall(r"allocate .*", text)
        assert " 17" in f" {found[1]}", found[1]
