"""What a run of `rewrites.py` that was ended need not measure again."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rewrites
from rewrite_blocks import BLOCKS
from support.engine.tuning import make_measurement

from aoe.execute.accuracy import AS_BEFORE, Deviation
from aoe.execute.tasks import ModelComparison
from aoe.graph.rewrites.registry import GAIN_ON_KERNELS, ONLY_AT_O1
from aoe.tasks.rewrites.subgraphs import RULES

_RULE = "mean-to-global-pool"


def _rows(version: int) -> set[tuple[str, int, str]]:
    return {(_RULE, version, f"block: {label}") for label in BLOCKS[_RULE]}


def test_rule_is_passed_over_when_all_its_blocks_were_measured_with_its_version() -> None:
    version = RULES[_RULE].version
    assert rewrites.is_known(_RULE, _rows(version))
    assert not rewrites.is_known(_RULE, _rows(version + 1))
    assert not rewrites.is_known(_RULE, [*_rows(version)][1:])


def test_network_is_passed_over_for_rules_that_were_measured_with_their_version_alone() -> None:
    other, version = next(rule for rule in RULES if rule != _RULE), RULES[_RULE].version
    rows = {*_rows(version), (_RULE, version, "yolo_silu")}
    assert rewrites.unmeasured("yolo_silu", [_RULE, other], rows) == [other]
    assert rewrites.unmeasured("swin", [_RULE], rows) == [_RULE]
    rows = {(_RULE, version + 1, "yolo_silu")}
    assert rewrites.unmeasured("yolo_silu", [_RULE], rows) == [_RULE]


def test_network_has_the_name_of_its_file_or_folder() -> None:
    assert rewrites.name_of(Path("/nets/yolo_silu/model.onnx")) == "yolo_silu"
    assert rewrites.name_of(Path("/nets/swin.onnx")) == "swin"


def test_rewritten_block_that_computes_something_else_has_no_figure(tmp_path: Path) -> None:
    job = rewrites.Job(
        rule=RULES[_RULE], model="block", matches=1, before=tmp_path / "a", after=tmp_path / "b"
    )
    wrong = Deviation(max_abs_err=1.0, excess=9.0, detail="result 0 is off by 1")
    for deviation in (AS_BEFORE, wrong):
        found = ModelComparison(measurement=make_measurement(2.0), deviation=deviation)
        runner: Any = SimpleNamespace(
            target=SimpleNamespace(core_num=1), call=lambda *_, found=found, **__: found
        )
        if deviation is AS_BEFORE:
            figure = rewrites.measure(job, runner, tmp_path, pairs=6, on_kernels=False)
            assert figure.speedup == 2.0
        else:
            with pytest.raises(rewrites.WrongResultsError, match="on block: result 0 is off by 1"):
                rewrites.measure(job, runner, tmp_path, pairs=6, on_kernels=False)


def _lows(file: Path, rule: str) -> list[float]:
    rows = json.loads(file.read_text())["figures"]
    return [row["low"] for row in rows if row["rule"] == rule and "block: " in row["model"]]


@pytest.mark.parametrize("rule", sorted(ONLY_AT_O1))
def test_rule_is_kept_out_of_the_default_by_figures_only(rule: str) -> None:
    alone, on_kernels = _lows(rewrites.RESULTS, rule), _lows(rewrites.ON_KERNELS, rule)
    assert alone
    assert max(alone) < 1.05 or (on_kernels and max(on_kernels) < 1.01)


def test_search_expects_of_a_rule_what_was_measured_with_kernels() -> None:
    rows = json.loads(rewrites.ON_KERNELS.read_text())["figures"]
    for rule, gain in GAIN_ON_KERNELS.items():
        speedups = [row["speedup"] for row in rows if row["rule"] == rule]
        assert gain == pytest.approx(statistics.geometric_mean(speedups), abs=1e-3), rule
    assert GAIN_ON_KERNELS.keys() == {row["rule"] for row in rows} - ONLY_AT_O1


def test_tuned_figures_are_told_from_untuned_ones() -> None:
    rows = json.loads(rewrites.ON_KERNELS.read_text())["figures"]
    assert all(len(row["kernels"]) == 2 for row in rows)
    assert rewrites.measured(rewrites.ON_KERNELS) <= {
        (rule, RULES[rule].version, f"block: {label}") for rule in RULES for label in BLOCKS[rule]
    }
