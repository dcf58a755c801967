"""A whole run of scopes: kernels, records of subgraphs, second run, limits, what is not believed.

Graphs are optimised, cut and rewritten for real; times and kernels are scripted.
"""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.kernels import block_size
from support.engine.fakes import RecordingProgress
from support.engine.models import conv_net
from support.engine.subgraph_runs import FusionRun
from support.engine.subgraphs import by_kernels, chains_network
from support.engine.tuning import make_tuned
from support.tiers import few_every_day

import aoe
from aoe.device.cpu.device import Cpu
from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.om.file import read_manifest
from aoe.ort.sessions import session_options
from aoe.report.tuning import report_of
from aoe.results.files import RepoOutcome
from aoe.runs.subgraphs.fusion_groups import kernel_teller
from aoe.runs.subgraphs.result import SgatResult
from aoe.schedule import schedule_from_json
from aoe.target import InstructionSet
from aoe.tuner.live_report import Stopwatch
from aoe.tuner.mode import JobType, OptimizationLevel
from aoe.tuner.precision.settings import PrecisionMode, PrecisionSettings, parse_precision
from aoe.workload import workload_from_json
from aoebank import emit, plural, validate

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_EXTENTS = (1, 256, 64)
_CHAIN = ("Exp", "Neg", "Abs", "Sqrt", "Tanh", "Neg", "Exp")


def _network() -> onnx.ModelProto:
    """Two equal chains of seven element-wise operators, a matrix product behind each."""
    return chains_network((_CHAIN, _CHAIN))


_by_kernels = by_kernels(1.1)


class Run(FusionRun):
    """Runs on two chains, with the bank of subgraphs at hand."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, _network())

    @property
    def measured(self) -> int:
        """How many kernels, and subgraphs with kernels, the last run measured."""
        segments = [
            call
            for call in self.runner.asked("compare_models")
            if call.arguments["baseline"].model.name == "piece.onnx"
        ]
        return len(self.runner.asked("measure_candidates")) + len(segments)

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of the bank of subgraphs."""
        (file,) = (self.place / "bank").glob("graph/*/*_l2cache.json")
        return [json.loads(line) for line in file.read_text().splitlines()[1:]]

    def edit_records(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the first group of every record in place, as a person might."""
        (file,) = (self.place / "bank").glob("graph/*/*_l2cache.json")
        head, *lines = file.read_text().splitlines()
        found = [json.loads(line) for line in lines]
        for record in found:
            change(record["strategy"]["group"][0])
        text = "\n".join([head, *(json.dumps(r, separators=(",", ":")) for r in found)]) + "\n"
        file.write_text(text)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_scopes_become_kernels_of_the_model_and_records_of_their_subgraph(run: Run) -> None:
    result = run.tune()
    manifest = read_manifest(result.om_file)
    assert manifest.kernels
    assert {use.graph_id for use in manifest.subgraphs} == result.used_ids != frozenset()
    assert result.speedup > 1
    summary = json.loads((run.place / "out" / "summary.json").read_text())
    of_model = {node.name for node in onnx.load(run.place / "net.onnx").graph.node}
    assert {place for row in summary["subgraphs"] for place in row["places"]} <= of_model
    groups = [record["strategy"]["group"][0] for record in run.records()]
    names = [name for group in groups for name in group["ubPass"]]
    assert any(name.startswith("kernel.elementwise.inlined") for name in names)
    for group in groups:
        for nodes in group["ubPass"].values():
            assert {group["fusionType"][at] for at in nodes} == {True}
            assert len({group["scopeId"][at] for at in nodes}) == 1
    assert list(validate(run.place / "bank").findings) == []


@pytest.mark.slow
def test_equal_chains_share_a_kernel(run: Run) -> None:
    result = run.tune(tune_optimization_level=OptimizationLevel.O1)
    kernels = read_manifest(result.om_file).kernels
    assert sum(len(kernel.op_names) for kernel in kernels) > len(kernels)
    assert result.used_ids


@pytest.mark.parametrize(
    ("level", "longest"), few_every_day([(OptimizationLevel.O2, 5), (OptimizationLevel.O1, 8)])
)
def test_limits_bound_what_one_kernel_may_compute(
    run: Run, level: OptimizationLevel, longest: int
) -> None:
    result = run.tune(tune_optimization_level=level)
    allowed = [group for one in result.subgraphs for group in one.subgraph.allowed_fusion_groups]
    used = [s for one in result.subgraphs if one.strategy for s in one.strategy.groups]
    assert max(len(group.nodes) for group in allowed) == longest
    assert set(used) <= set(allowed)
    assert used


def test_log_tells_what_the_classes_allow_and_refuse_with_node_names(run: Run) -> None:
    run.tune()
    told = run.progress.texts("detail")
    assert any(text.startswith("elementwise_chain: matched Exp_0_0, Neg_0_1") for text in told)
    refused = [text for text in told if text.startswith("elementwise_chain: refused Exp_0_0")]
    assert any("element-wise operators behind the first, 4 are allowed" in t for t in refused)


def test_second_run_measures_nothing_and_writes_the_same_model(run: Run) -> None:
    first = run.tune()
    shutil.copy(first.om_file, run.place / "first.om")
    second = run.tune()
    assert run.measured == 0
    assert {one.outcome.value for one in second.subgraphs} <= {"reserved", "unsatisfied"}
    assert filecmp.cmp(second.om_file, run.place / "first.om", shallow=False)


def test_look_up_takes_the_scopes_of_the_bank_and_measures_none(run: Run) -> None:
    first = run.tune()
    second = run.tune(lookup_only=True)
    assert run.measured == 0
    assert second.used_ids == first.used_ids


def test_record_that_names_other_nodes_is_stale_with_the_reason(run: Run) -> None:
    run.tune()

    def shuffle(group: dict[str, Any]) -> None:
        group["ubPass"] = {name: [0, 2] for name in list(group["ubPass"])[:1]}

    run.edit_records(shuffle)
    second = run.tune(lookup_only=True)
    reasons = [one.reason for one in second.subgraphs]
    assert any("kernel computes nodes [0, 2] any more" in reason for reason in reasons)
    assert second.used_ids == frozenset()


@pytest.mark.slow
def test_scope_whose_kernel_the_bank_has_lost_is_stale_and_tuned_again(run: Run) -> None:
    first = run.tune()
    for file in (run.place / "bank").rglob("*.json"):
        if "graph" not in file.parts:
            file.unlink()
    looked_up = run.tune(lookup_only=True)
    reasons = [one.reason for one in looked_up.subgraphs]
    assert any("the bank has no record of its" in reason for reason in reasons)
    assert run.tune().used_ids == first.used_ids


def test_kernels_that_lose_together_are_not_recorded(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def loses(baseline: ModelPart, tuned: ModelPart) -> float:
        return 0.8 if baseline.model.name == "piece.onnx" else 1.0

    run.script = loses
    result = run.tune()
    assert result.used_ids == frozenset()
    assert {one.outcome.value for one in result.subgraphs} == {"unsatisfied"}
    won = [text for text in run.progress.texts("operator") if "better than the default" in text]
    assert won and all("kernel by itself, 2.00x, add: " in text for text in won)
    emit(report_of(result), as_json=False, no_color=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"as it is, also with {plural(len(won), 'kernel')} that won by themselves" in shown
    run.tune()
    assert run.measured == 0  # that is believed


def test_kernels_that_win_alone_and_lose_in_the_model_are_left_out(run: Run) -> None:
    def loses(baseline: ModelPart, tuned: ModelPart) -> float:
        gain = _by_kernels(baseline, tuned)
        return gain if baseline.model.name == "piece.onnx" else 1 / gain

    run.script = loses
    result = run.tune()
    assert any(one.strategy is not None for one in result.subgraphs)
    assert (result.validation.kept, result.used_ids, result.speedup) == ((), frozenset(), 1.0)
    assert read_manifest(result.om_file).kernels == ()


def test_when_no_subgraph_can_be_run_nothing_is_believed(run: Run) -> None:
    def broken(baseline: ModelPart, tuned: ModelPart) -> Any:
        is_piece = baseline.model.name == "piece.onnx"
        return RunError("worker", "no space left on device") if is_piece else 1.0

    run.script = broken
    first = run.tune()
    assert any("not decided, none of" in one.reason for one in first.subgraphs)
    run.script = _by_kernels
    assert run.tune().used_ids


@pytest.mark.slow
def test_without_a_faster_kernel_the_model_stays_as_it_is(run: Run) -> None:
    run.candidate = lambda schedule: 0.5
    result = run.tune()
    assert result.speedup == 1.0
    assert {one.reason for one in result.subgraphs} == {"not in the bank; nothing to try"}
    run.tune()
    assert run.measured == 0


def test_what_a_limit_has_left_is_searched_by_the_next_run(run: Run) -> None:
    assert run.tune(tuning_time_limit_s=0.0).used_ids == frozenset()
    assert run.tune().used_ids


@pytest.mark.slow
def test_kernels_there_was_no_time_to_measure_together_are_left_to_the_judge(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps once two kernels were measured: the rest of the search is cut off."""

    def clock() -> float:
        return 99.0 if len(run.runner.asked("measure_candidates")) > 1 else 0.0

    over = Stopwatch(clock=clock, start=0.0, limit_s=50.0)
    with monkeypatch.context() as limited:
        limited.setattr("aoe.runs.subgraphs.fusion_groups.searching_time", lambda *_: over)
        result = run.tune()
    (used,) = (one for one in result.subgraphs if one.strategy is not None)
    assert used.is_untried and "its kernels have won alone" in used.reason
    assert result.validation.kept and result.speedup > 1
    assert result.used_ids == {used.subgraph.graph_id}
    assert read_manifest(result.om_file).subgraphs == ()  # the bank says nothing about it
    assert not list((run.place / "bank").glob("graph/*/*_l2cache.json"))
    assert run.tune().used_ids == {used.subgraph.graph_id}


@pytest.mark.slow
def test_largest_kernels_come_first_and_their_parts_with_the_time_that_is_left(run: Run) -> None:
    run.tune(tune_optimization_level=OptimizationLevel.O1)
    operations = [
        len(call.arguments["workload"]["operations"])
        for call in run.runner.asked("measure_candidates")
    ]
    assert set(operations[:6]) == {7, 8, 1}  # two trials each: a chain, chain and product, product
    assert len(operations) > 6


def test_kernel_that_more_time_has_changed_is_told_once() -> None:
    progress = RecordingProgress()
    on_event, tuned = kernel_teller(progress), make_tuned("n")
    for outcome in (RepoOutcome.UNSATISFIED, RepoOutcome.ADD):
        on_event(replace(tuned, outcome=outcome))
    assert len(progress.texts("operator")) == 1
    assert any("add: " in text and "after more trials" in text for text in progress.texts("detail"))


def test_kernels_are_left_to_operator_tuning_where_it_follows(run: Run) -> None:
    result = run.tune(job_types=(JobType.SGAT, JobType.OPAT))
    assert result.subgraphs == ()
    assert any("left to operator tuning" in text for text in run.progress.texts("step"))


@pytest.mark.slow
def test_result_file_lists_subgraphs_of_both_graphs(run: Run) -> None:
    result = run.tune()
    (file,) = (run.place / "out").glob("aoe_result_sgat_*.json")
    section = json.loads(file.read_text())[1]["SGAT"]
    added = section["repo_modified_subgraphs"]["add_repo_subgraphs"]
    assert {row["repo_key"] for row in added} >= result.used_ids


@pytest.mark.slow
def test_model_with_kernels_for_its_scopes_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(_network(), tmp_path / "net.onnx")
    result = aoe.tune(
        tmp_path / "net.onnx",
        job_type="sgat",
        bank=tmp_path / "bank",
        output=tmp_path / "out",
        trials=1,
        accept_busy=True,
    )
    feed = {"x": np.random.default_rng(3).standard_normal(_EXTENTS).astype(np.float32) * 0.1}
    (found,) = aoe.load(result.get(SgatResult).om_file).run(None, feed)
    session = Cpu().open_session(
        _network().SerializeToString(), session_options(threads=1, optimize=True)
    )
    (expected,) = session.run(None, feed)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
@pytest.mark.parametrize("strict", [pytest.param(False, marks=pytest.mark.slow), True])
def test_strict_float32_holds_for_kernels_of_scopes_too(run: Run, strict: bool) -> None:
    onnx.save(conv_net(channels=32, extent=24), run.place / "net.onnx")
    run.tune(precision=parse_precision(strict=strict))
    calls = [call.arguments for call in run.runner.asked("measure_candidates")]
    families = {workload_from_json(one["workload"]).op_type for one in calls}
    algorithms = {
        schedule_from_json(schedule).algorithm for one in calls for schedule in one["schedules"]
    }
    assert calls
    assert ("lrn" in families) is not strict
    assert any("winograd" in algorithm for algorithm in algorithms) is not strict


@pytest.mark.slow
def test_mode_that_would_lower_kernels_is_told_to_lower_none(
    run: Run,
) -> None:
    rounded = InstructionSet(cpu_features=("avx512_bf16",))
    run.runs.target = lambda target: replace(target, bf16_dot=rounded)
    run.tune(precision=PrecisionSettings(mode=PrecisionMode.MIXED_BFLOAT16))
    assert any("kernels in float32 only" in text for text in run.progress.texts("warn"))
    run.tune()
    assert not any("float32" in text for text in run.progress.texts("warn"))
