"""What a run of `rewrites.py` that was ended need not measure again."""

from __future__ import annotations

from pathlib import Path

import rewrites
from rewrite_blocks import BLOCKS

from aoe.tuning.sgat.subgraphs import RULES

_RULE = "mean-to-global-pool"


def _rows(version: int) -> set[tuple[str, int, str]]:
    return {(_RULE, version, f"block: {label}") for label in BLOCKS[_RULE]}


def test_rule_is_passed_over_when_all_its_blocks_were_measured_with_its_version() -> None:
    version = RULES[_RULE].version
    assert rewrites.is_known(_RULE, _rows(version))
    assert not rewrites.is_known(_RULE, _rows(version + 1))
    assert not rewrites.is_known(_RULE, [*_rows(version)][1:])


def test_networks_are_told_from_blocks_by_their_names() -> None:
    rows = {*_rows(1), (_RULE, 1, "yolo_silu")}
    assert rewrites.networks(rows) == {"yolo_silu"}
    assert rewrites.name_of(Path("/nets/yolo_silu/model.onnx")) == "yolo_silu"
    assert rewrites.name_of(Path("/nets/swin.onnx")) == "swin"
