"""`--base_result` for subgraphs: hits are taken, near misses seed, the rest has reasons."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import helper
from support.engine.result_files import change_kernel_sources
from support.engine.subgraph_runs import Run
from support.engine.subgraphs import c2f_network

from aoe.bank.records.subgraph import NodeFeature
from aoe.runs.subgraphs.result import SgatResult
from aoe.tasks.rewrites.earlier import nearest_nodes_change
from aoe.tuner.reuse.kinds import ReuseKind, ReuseSummary


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def _change(run: Run, model: onnx.ModelProto | None = None) -> None:
    """Go on with an empty bank, another output, and another model where one is given."""
    (run.place / "out").rename(run.place / "base")
    (run.place / "bank").rename(run.place / "base.bank")
    (run.place / "bank").mkdir()
    if model is not None:
        onnx.save(model, run.place / "net.onnx")


def _reuse(result: SgatResult) -> ReuseSummary:
    assert result.reuse is not None
    return result.reuse


def _of(result: SgatResult, kind: ReuseKind) -> set[str]:
    return {part.key for part in _reuse(result).parts if part.kind is kind}


def _ids(result: SgatResult) -> set[str]:
    return {tuned.subgraph.graph_id for tuned in result.subgraphs}


def _trials(result: SgatResult) -> int:
    return sum(len(tuned.trials) for tuned in result.subgraphs)


def _place(run: Run, first: SgatResult, rewrite: str) -> Path:
    """Return an earlier result in one of the rewrites it is given in."""
    match rewrite:
        case "directory":
            return run.place / "base"
        case "directory without a bank":
            shutil.rmtree(run.place / "base/bank")
            return run.place / "base"
        case "bank":
            return run.place / "base.bank"
        case "model alone":
            return Path(shutil.copy(run.place / "base" / first.om_file.name, run.place / "one.om"))
    raise AssertionError(rewrite)


@pytest.mark.parametrize(
    "rewrite", ["directory", "directory without a bank", "bank", "model alone"]
)
def test_what_is_known_is_taken_and_counted(run: Run, rewrite: str) -> None:
    first = run.tune()
    _change(run)
    second = run.tune(base_result=_place(run, first, rewrite))
    known = first.used_ids if rewrite == "model alone" else _ids(first)
    assert _of(second, ReuseKind.REUSED) == known != set()
    assert {tuned.subgraph.graph_id for tuned in second.subgraphs if tuned.trials} == (
        _ids(first) - known
    )
    assert second.used_ids == first.used_ids
    own = run.tune()  # what was taken is in the own bank now
    assert _trials(own) == 0 and own.used_ids == first.used_ids


def _with_another_end(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network with one operator more behind its last one."""
    output = model.graph.output[0]
    model.graph.node.append(helper.make_node("Relu", [output.name], ["end"], "end"))
    output.name = "end"
    return model


def test_what_the_earlier_model_has_kept_in_the_same_place_has_no_test(run: Run) -> None:
    first = run.tune()
    assert run.runners[-1].restarts == 3
    _change(run, _with_another_end(c2f_network(3)))
    second = run.tune(base_result=run.place / "base")
    assert {one.name for one in second.validation.kept} and second.used_ids <= first.used_ids
    assert second.speedup == pytest.approx(first.speedup, rel=0.05)
    assert run.runners[-1].restarts == 1  # its proof: how far processes scatter is known
    compared = run.runners[-1].asked("compare_models")
    assert "variant.onnx" not in {one.arguments["tuned"].model.name for one in compared}
    third = run.tune()  # and that is its own verdict from now on
    assert third.used_ids == second.used_ids and run.runners[-1].restarts == 0


def test_other_shape_seeds_the_search_and_is_named(run: Run) -> None:
    _trials(run.tune())
    _change(run, c2f_network(3, extent=12))
    second = run.tune(base_result=run.place / "base")
    (run.place / "bank").rename(run.place / "second.bank")
    (run.place / "bank").mkdir()
    alone = run.tune()
    reasons = {part.reason for part in _reuse(second).parts if part.kind is ReuseKind.RETUNED}
    assert reasons == {"shape changed 8->12"}
    assert second.used_ids == alone.used_ids
    for with_base, without in zip(second.subgraphs, alone.subgraphs, strict=True):
        if with_base.strategy is not None:  # its first trial is what was best for the other shape
            assert with_base.trials[0].strategy == with_base.strategy
            assert len(with_base.trials) <= len(without.trials)


def test_what_the_model_has_no_more_is_dropped_and_what_is_unknown_is_new(run: Run) -> None:
    first = run.tune()
    model = c2f_network(3)
    model.graph.node[-1].op_type = "ReduceMax"  # no mean: another subgraph at the end
    _change(run, model)
    second = run.tune(base_result=run.place / "base")
    gone = _ids(first) - _ids(second)
    assert _of(second, ReuseKind.DROPPED) == gone != set()
    told = json.loads((run.place / "out/summary.json").read_text())["reuse"]
    assert told["counts"]["dropped"] == len(gone)
    assert {part["reason"] for part in told["parts"] if part["kind"] == "dropped"} == {
        "not in the model any more"
    }


def test_model_nothing_is_known_of_is_new(run: Run) -> None:
    run.tune()
    _change(run, c2f_network(2, batch=4))
    for file in (run.place / "base/subgraph_tuning").iterdir():
        file.unlink()
    shutil.rmtree(run.place / "base/bank")
    second = run.tune(base_result=run.place / "base")
    assert _of(second, ReuseKind.NEW) == _ids(second) != set()


def test_stale_record_is_tuned_again_and_that_is_said(
    run: Run,
) -> None:
    first = run.tune()
    _change(run)
    change_kernel_sources(run.place / "base")
    second = run.tune(base_result=run.place / "base")
    assert _of(second, ReuseKind.RETUNED) >= first.used_ids
    reasons = {part.reason for part in _reuse(second).parts if part.key in first.used_ids}
    assert reasons == {"kernel source changed: stale"}


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "[]",
        '{"graph_id": 3}',
        '{"graph_id": "1", "nodes": ["n"], "feature": {"feature": 1}, "record": {"strategy": {}}}',
    ],
)
def test_details_somebody_has_broken_are_passed_over(run: Run, odd: str) -> None:
    run.tune()
    _change(run)
    shutil.rmtree(run.place / "base/bank")
    for file in (run.place / "base/subgraph_tuning").iterdir():
        file.write_text(odd)
    second = run.tune(base_result=run.place / "base")
    assert not _of(second, ReuseKind.REUSED)


def _node(op_type: str, *shapes: tuple[int, ...]) -> NodeFeature:
    return NodeFeature(op_type=op_type, shapes=shapes, item_bytes=(4,) * len(shapes))


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], ""),
        ([[_node("Conv", (1, 3, 8, 8))]], "shape changed 8->16"),
        ([[_node("Conv", (1, 3, 16, 16))]], "another rewrite of the same operators"),
        ([[_node("Conv", (1, 3, 16))]], "shape changed 1x3x16->1x3x16x16"),
        ([[_node("Conv", (1, 3, 16, 16), (4,))]], "shape changed 4->scalar"),
        ([[_node("Gemm", (1, 3, 16, 16))], [_node("Conv", (1, 3, 8, 8))]], "shape changed 8->16"),
    ],
)
def test_nearest_of_the_same_operators_says_what_changed(
    others: list[list[NodeFeature]], expected: str
) -> None:
    assert nearest_nodes_change([_node("Conv", (1, 3, 16, 16))], others) == expected
