"""What a tuning tells its user: the same figures as text and as a document."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import MEMORY
from support.engine.families import chain_workload
from support.engine.gradients import make_gdat_report
from support.engine.tuning import make_opat_result, make_operator, make_tuned

from aoe.bank.records.gradient import GradientConditions
from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation
from aoe.graph.regions import Refusal
from aoe.measurement import Clock, CpuUse, MachineLoad
from aoe.measurement.memory import ModelMemory
from aoe.profiling.figures import OperatorProfile
from aoe.report.tuning import GradientTuningReport, OperatorTuningReport, write_operators
from aoe.report.whole_model import bank_line
from aoe.results.files import NOT_TRIED_OUT, ONLY_LOOKED_UP, RepoOutcome
from aoe.runs.gradients.result import GdatResult, TunedGradients
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import TuneResult
from aoe.tasks.operators.operator import TunedOperator
from aoe.validation.candidates import Drop
from aoe.workload import Precision
from aoebank import Report, Text, emit
from aoebank.report.output import ColorMode


def _told(report: Report, capsys: pytest.CaptureFixture[str]) -> str:
    emit(report, as_json=False, no_color=True)
    return capsys.readouterr().out


def _document(report: Report, capsys: pytest.CaptureFixture[str]) -> Any:
    emit(report, as_json=True, indent=None)
    return json.loads(capsys.readouterr().out)


def test_operators_are_a_table_and_the_model_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = make_opat_result(make_tuned("conv[1]"), make_tuned("conv2", 16))
    text = _told(OperatorTuningReport(result=result), capsys)
    first, second = (
        next(line for line in text.splitlines() if name in line) for name in ("conv[1]", "conv2")
    )
    assert "2.00x" in first and "add" in first and "yes" in first
    assert "no" in second
    assert "whole model: 1.000 ms -> 0.667 ms, 1.500x" in text
    assert f"tuned model: {result.om_file}" in text
    last = "net_20260101 process finished. Performance improved by 50.00%"
    assert text.splitlines()[-1] == last
    assert "operators, times for one place in the model:" in text
    recalled = replace(result, profile=replace(result.profile, is_recalled=True))
    text = _told(OperatorTuningReport(result=recalled), capsys)
    assert (
        "operators, times for one place in the model (measured by an earlier run: shares):" in text
    )


def test_headline_of_a_wide_interval_is_its_lower_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = make_opat_result(make_tuned("conv1"))
    wide = replace(result.validation.estimate, median=145.47, low=43.0, high=485.0)
    result = replace(result, validation=replace(result.validation, estimate=wide))
    last = _told(OperatorTuningReport(result=result), capsys).splitlines()[-1]
    assert last.endswith("improved by 4200.00% or more (95 % interval 43.000 to 485.000)")


def test_model_with_nothing_to_tune_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    result = replace(make_opat_result(), refusals=())
    text = _told(OperatorTuningReport(result=result), capsys)
    assert "nothing in this model is tunable: ONNX Runtime computes it as before" in text
    assert text.endswith("finished. Performance not improved: nothing in this model is tunable\n")


def test_first_reason_and_the_range_end_a_run_with_nothing_to_tune(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusals = (
        Refusal(node="pool", op_type="MaxPool", reason="extents do not follow; others neither"),
        Refusal(node="conv", op_type="Conv", reason="its weights are computed"),
    )
    result = replace(make_opat_result(), refusals=refusals)
    text = _told(OperatorTuningReport(result=result), capsys)
    assert text.endswith("nothing in this model is tunable: pool: extents do not follow\n")
    text = _told(OperatorTuningReport(result=replace(result, shape_range="x:1~8,3")), capsys)
    assert text.endswith(
        "nothing in this model is tunable for a range of shapes (x:1~8,3): pool: extents do not "
        "follow\n"
    )


@pytest.mark.parametrize(
    ("op_type", "words"),
    [
        ("If", "75% of the time in If, whose branches and bodies are not tuned"),
        ("TopK", "75% of the time in TopK\n"),
    ],
)
def test_model_with_nothing_to_tune_says_where_its_time_goes(
    op_type: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tuple(
        OperatorProfile(
            name=kind, op_names=(kind,), op_type=kind, op_types=(kind,), median_us=us, min_us=us
        )
        for kind, us in ((op_type, 30.0), ("Equal", 10.0))
    )
    result = replace(make_opat_result(), figures=(figures, figures), refusals=())
    text = _told(OperatorTuningReport(result=result), capsys)
    assert words in text
    assert words.rstrip() in text.splitlines()[-1]  # no other reason is known


def test_operators_that_were_only_looked_up_are_no_proof_of_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missed = replace(
        make_tuned("conv1"), schedule=None, reason=f"not in the bank, and {ONLY_LOOKED_UP}"
    )
    result = make_opat_result(missed)
    result = replace(result, validation=replace(result.validation, kept=()))
    last = _told(OperatorTuningReport(result=result), capsys).splitlines()[-1]
    assert last.endswith("1 of 1 operators are not in the bank, and were only looked up")


def test_answer_of_a_range_is_in_the_bank(capsys: pytest.CaptureFixture[str]) -> None:
    covered = replace(
        make_tuned("conv1", searched=False),
        reason=f"in the bank for a range that holds it, and {ONLY_LOOKED_UP}",
    )
    result = make_opat_result(covered)
    result = replace(result, validation=replace(result.validation, kept=()))
    last = _told(OperatorTuningReport(result=result), capsys).splitlines()[-1]
    assert last.endswith("the whole model is not proven faster with the kernels that win alone")


@pytest.mark.parametrize(
    ("has_timed", "words"),
    [(False, "computes something else with it"), (True, "not proven faster with the kernels that")],
)
def test_kernels_that_were_never_timed_in_the_model_are_not_called_slow(
    has_timed: bool, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = make_opat_result(make_tuned("conv1"), make_tuned("conv2"))
    drops = {
        "conv1": Drop(reason="the model computes something else with it"),
        "conv2": Drop(
            reason="slow" if has_timed else "too large",
            estimate=result.validation.estimate if has_timed else None,
        ),
    }
    result = replace(result, validation=replace(result.validation, kept=(), drops=drops))
    last = _told(OperatorTuningReport(result=result), capsys).splitlines()[-1]
    assert words in last


def test_kernels_of_the_bank_that_were_not_measured_are_no_missing_gain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = make_opat_result(make_tuned("conv1", searched=False))
    unmeasured = replace(result.validation.estimate, pairs=0)
    result = replace(result, validation=replace(result.validation, estimate=unmeasured))
    last = _told(OperatorTuningReport(result=result), capsys).splitlines()[-1]
    assert last == "net_20260101 process finished. From the bank: 1 kernel, not measured"


def test_operators_without_a_measurement_are_counted_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = f"{NOT_TRIED_OUT}: no answer from the worker (got over 80.0 s)"
    lost = replace(make_tuned("conv1"), schedule=None, speedup=None, reason=reason)
    result = make_opat_result(lost)
    result = replace(result, validation=replace(result.validation, kept=()))
    lines = _told(OperatorTuningReport(result=result), capsys).splitlines()
    assert f"conv1: {reason}; the next run tries again" in lines
    assert lines[-1].endswith(f"1 of 1 operators are {NOT_TRIED_OUT}")
    assert result.summary()["undecided_ops"] == 1


def test_gain_of_a_busy_machine_says_so_in_the_last_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = make_opat_result(make_tuned("conv1"))
    use = CpuUse(wall_s=1.0, cpu_s=1.0, waited_s=1.0)
    comparison = result.validation.comparison
    busy = replace(
        comparison.measurement, load=MachineLoad(use=use, threads=2, least_quiet=0.0, tries=1)
    )
    comparison = replace(comparison, measurement=busy)
    result = replace(result, validation=replace(result.validation, comparison=comparison))
    lines = _told(OperatorTuningReport(result=result), capsys).splitlines()
    assert any(line.startswith("do not believe these figures") for line in lines)
    assert lines[-1].endswith("Performance improved by 50.00%, measured on a busy machine")


def test_model_that_keeps_nothing_is_unchanged_not_a_ratio(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = make_opat_result(make_tuned("conv1"))
    result = replace(result, validation=replace(result.validation, kept=()))
    text = _told(OperatorTuningReport(result=result), capsys)
    assert "whole model: unchanged, no kernel is kept (1.000 ms, " in text
    assert "1.500x" not in text
    figures = result.summary()
    assert figures["unchanged"]
    assert figures["tuned_ms"] == figures["baseline_ms"] == 1.0
    assert {figures[name] for name in ("speedup", "speedup_low", "speedup_high")} == {1.0}
    assert figures["improvement_percent"] == 0


def _dropping(drops: dict[str, Drop]) -> OpatResult:
    result = make_opat_result(make_tuned("conv1"))
    return replace(result, validation=replace(result.validation, kept=(), drops=drops))


def test_parts_that_went_for_one_reason_are_one_line_that_names_a_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow, wrong = Drop(reason="slows the model down"), Drop(reason="computes something else")
    drops = {f"conv{n}": slow for n in range(4)} | {"lrn": wrong}
    lines = _told(OperatorTuningReport(result=_dropping(drops)), capsys).splitlines()
    assert "dropped conv0, conv1, conv2, conv3: slows the model down" in lines
    assert "dropped lrn: computes something else" in lines
    assert not any("same command" in line for line in lines)
    many = _dropping(drops | {"conv4": slow})
    lines = _told(OperatorTuningReport(result=many), capsys).splitlines()
    assert "dropped conv0, conv1, conv2 and 2 more: slows the model down" in lines


def test_undecided_model_says_what_decides_it(capsys: pytest.CaptureFixture[str]) -> None:
    result = _dropping({"conv1": Drop(reason="not decided, no time", is_final=False)})
    lines = _told(OperatorTuningReport(result=result), capsys).splitlines()
    at = lines.index("dropped conv1: not decided, no time")
    assert lines[at + 1].endswith("the same command again goes on from there")


def _with_memory(memory: ModelMemory) -> OpatResult:
    result = make_opat_result(make_tuned("conv1"))
    comparison = replace(result.validation.comparison, memory=memory)
    return replace(result, validation=replace(result.validation, comparison=comparison))


def test_memory_of_a_session_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = _with_memory(MEMORY)
    lines = _told(OperatorTuningReport(result=result), capsys).splitlines()
    told = "memory of a session: 100.0 MiB -> 105.0 MiB (peak 120.0 MiB -> 126.0 MiB)"
    assert told in lines
    assert result.summary()["memory"] == {
        "untuned": {"session_bytes": 100 << 20, "peak_bytes": 120 << 20},
        "tuned": {"session_bytes": 105 << 20, "peak_bytes": 126 << 20},
    }


def _on_a_busy_machine(clock: Clock, disagreement: str = "") -> OpatResult:
    result = make_opat_result(make_tuned("conv1"))
    comparison = result.validation.comparison
    load = MachineLoad(use=CpuUse(wall_s=2.0, cpu_s=1.0, waited_s=1.0))
    figures = replace(comparison.measurement, load=load, clock=clock, disagreement=disagreement)
    comparison = replace(comparison, measurement=figures)
    return replace(result, validation=replace(result.validation, comparison=comparison))


def test_headline_and_last_line_say_that_cpu_time_has_decided(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = _on_a_busy_machine(Clock.CPU)
    lines = _told(OperatorTuningReport(result=result), capsys).splitlines()
    (headline,) = (line for line in lines if line.startswith("whole model:"))
    assert "threads, by CPU time: the machine was busy, against" in headline
    assert lines[-1].endswith("improved by 50.00%, by CPU time: the machine was busy")
    assert not any(line.startswith("do not believe") for line in lines)
    assert result.summary()["machine"]["clock"] == "cpu"


def test_figures_no_clock_decides_say_what_both_read(capsys: pytest.CaptureFixture[str]) -> None:
    why = "1.30x by CPU time, 1.00x by wall time: the tuned side waits longer for a core"
    text = _told(OperatorTuningReport(result=_on_a_busy_machine(Clock.WALL, why)), capsys)
    (line,) = (line for line in text.splitlines() if line.startswith("do not believe"))
    assert line.endswith(f"0.00 s stolen; {why}")


def test_memory_without_a_peak_is_a_line_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    memory = replace(MEMORY, tuned=replace(MEMORY.tuned, peak_bytes=None))
    lines = _told(OperatorTuningReport(result=_with_memory(memory)), capsys).splitlines()
    assert "memory of a session: 100.0 MiB -> 105.0 MiB" in lines


def test_memory_nobody_knows_or_that_did_not_change_is_no_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = make_opat_result(make_tuned("conv1"))
    assert "memory" not in _told(OperatorTuningReport(result=unknown), capsys)
    assert unknown.summary()["memory"] is None
    result = _with_memory(MEMORY)
    unchanged = replace(result, validation=replace(result.validation, kept=()))
    assert "memory" not in _told(OperatorTuningReport(result=unchanged), capsys)
    figures = unchanged.summary()["memory"]
    assert figures["tuned"] == figures["untuned"]


def test_document_has_the_summary_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    result = make_opat_result(make_tuned("conv1"))
    document = _document(OperatorTuningReport(result=result), capsys)
    assert document["schema"] == "aoe.tune/1"
    assert document["om"] == str(result.om_file)
    assert document["summary"] == result.summary()


def _gradients(*, kept: bool, stored_speedup: float | None = None) -> TunedGradients:
    report = make_gdat_report()
    return TunedGradients(
        result=GdatResult(
            outcome=RepoOutcome.ADD if kept else RepoOutcome.RESERVED,
            reason="optimum" if kept else "in the bank",
            segmentation=Segmentation(ends=(3, 8)) if kept else None,
            estimate=report.estimate if kept else None,
            report=report,
            steps=120,
            stored_speedup=stored_speedup,
            stored_conditions=GradientConditions(
                cost=AllReduceCost(latency_us=400, us_per_byte=0.008),
                world_size=2,
                backend="gloo",
                cpu_model="Example CPU",
                date="2026-11-21",
            ),
        ),
        bank_file=Path("bank.json"),
        result_file=Path("result.json"),
        exit_code=3,
    )


def test_gradients_are_told_with_their_interval(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _told(GradientTuningReport(result=_gradients(kept=True)), capsys).splitlines()
    assert lines[0] == "add: optimum; 2 segments"
    assert lines[1].startswith("training step: 1.250x (95 % interval 1.200 to 1.300, 40 pairs")
    assert [line.split(":")[0] for line in lines[2:4]] == ["before", "after"]
    assert lines[4].startswith("judged by the median step of 40 fresh pairs, lower end 1.200x")
    assert not any("tail grew" in line or "busy" in line for line in lines)
    assert lines[-1] == "net_20260301 process finished. Performance improved by 25.00%"


def test_tail_that_grew_and_a_busy_machine_are_told_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned = _gradients(kept=True)
    report = tuned.result.report
    assert report.before is not None and report.after is not None
    shorter = replace(report.before.timeline, backward_end_us=2800.0)
    for before, after, why in (
        (report.after, report.before, "larger ones, take"),
        (
            report.after,
            replace(report.before, timeline=shorter),
            "backward ends 400.0 us earlier, with less communication beside it",
        ),
    ):
        swapped = replace(report, before=before, after=after, busy="it got 40%")
        found = replace(tuned, result=replace(tuned.result, report=swapped))
        told = _told(GradientTuningReport(result=found), capsys)
        assert "the tail grew by 1." in told and why in told
        assert "the machine was busy: it got 40%" in told


def test_known_grouping_is_told_with_where_it_was_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned = _gradients(kept=False, stored_speedup=1.1)
    lines = _told(GradientTuningReport(result=tuned), capsys).splitlines()
    assert lines[0] == "reserved: in the bank; DDP's own buckets"
    assert lines[-1].endswith(
        "process finished. From the bank: 10.00% measured with all-reduce at 1 Gbit/s and 400 us, "
        "2 processes, gloo, Example CPU, 2026-11-21"
    )
    assert "improved" not in "".join(lines)


def test_exit_code_is_that_of_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    report = GradientTuningReport(result=_gradients(kept=True))
    assert report.exit_code == 3
    document = _document(report, capsys)
    assert (document["schema"], document["script_exit_code"]) == ("aoe.gdat/1", 3)
    assert (document["segments"], document["steps"]) == ([3, 8], 120)


def test_bank_that_was_not_made_is_not_shown_as_one(tmp_path: Path) -> None:
    assert bank_line(tmp_path / "gone") == f"bank: {tmp_path / 'gone'} (no record yet)"
    assert bank_line(tmp_path) == f"bank: {tmp_path}"


_CHAIN = ("Exp", "Softplus", "HardSigmoid", "LeakyRelu")
_ALL = ["operator", "computes", "places", "share", "before us", "after us", "speed-up", "bank"]


def _tuned(name: str, **changes: Precision) -> TunedOperator:
    workload = replace(chain_workload(_CHAIN), **changes)
    return replace(make_tuned(name), operator=make_operator(workload, op_names=(name,)))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _drawn(width: int, *tuned: TunedOperator) -> list[str]:
    with contextlib.redirect_stdout(_Terminal()) as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        write_operators(Text(ColorMode.NEVER, no_color=True), make_opat_result(*tuned))
    return terminal.getvalue().splitlines()[1:]


def _headings(lines: list[str]) -> list[str]:
    return re.split("  +", lines[0].strip())


def test_wide_terminal_has_every_column() -> None:
    lines = _drawn(140, _tuned("/net/conv1"))
    assert _headings(lines) == [*_ALL, "in model"]
    assert any("Exp + Softplus + HardSigmoid + LeakyRelu" in line for line in lines)


def test_least_important_columns_go_first() -> None:
    name = "/model/layers.0/attention/"
    dropped = {
        tuple(sorted(set(_ALL) - set(_headings(_drawn(width, _tuned(name))))))
        for width in range(52, 141)
    }
    in_order = ["places", "bank", "computes", "share", "before us", "after us"]
    assert dropped <= {tuple(sorted(in_order[:count])) for count in range(len(in_order) + 1)}
    assert len(dropped) > 4


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_word_is_broken_and_no_line_too_long(width: int) -> None:
    tuned = [_tuned(f"/model/layers.{number}/act/Mul") for number in range(3)]
    lines = _drawn(width, *tuned)
    assert max(map(len, lines)) <= width
    known = {*_CHAIN, *(item.operator.op_name for item in tuned), *" ".join(_ALL).split()}
    if "share" in _headings(lines):
        assert lines.pop().startswith("shares overlap (150% in all)")
    known |= {
        "LeakyRelu:",
        "1x8x32x32",
        "float32",
        "+",
        "in",
        "model",
        "2.00x",
        "yes",
        "no",
        "add",
        "1",
        "100.0",
        "50.0",
        "50.0%",
    }
    assert {word for line in lines for word in line.split()} <= known


def test_name_longer_than_the_terminal_is_folded_not_lost() -> None:
    name = "".join(f"/layer{number}" for number in range(12))
    lines = _drawn(80, _tuned(name))
    assert _headings(lines) == ["operator", "speed-up", "in model"]
    assert "".join(line.split()[0] for line in lines[1:]) == name


def test_precision_is_a_column_where_there_are_several_and_never_goes() -> None:
    lower = _tuned("/model/layers.0/attention/Softmax", precision=Precision.BFLOAT16)
    headings = _headings(_drawn(60, _tuned("conv1"), lower))
    assert "precision" in headings
    assert "places" not in headings


def test_shares_of_rows_that_overlap_are_said_to() -> None:
    one = _drawn(140, _tuned("conv"))
    two = _drawn(140, _tuned("conv"), _tuned("fused"), _tuned("relu"))
    assert not any("overlap" in line for line in one)
    assert two[-1].startswith("shares overlap (150% in all)")


def test_rows_that_are_left_out_are_counted() -> None:
    lines = _drawn(140, *(_tuned(f"conv{number}") for number in range(33)))
    assert any("3 more in summary.json" in line for line in lines)


def test_result_of_a_run_is_shown_as_the_command_prints_it() -> None:
    result = TuneResult(modes=(make_opat_result(make_tuned("conv1")),))
    assert "Aoe process finished" in repr(result) and "object at" not in repr(result)
    assert result._repr_html_().startswith("<div>")
    rows = result.to_records()
    assert rows and {row["job_type"] for row in rows} == {"opat"}
    assert {"op_name", "speedup", "outcome"} <= rows[0].keys()
    json.dumps(rows)


def test_rows_of_a_training_are_its_groupings() -> None:
    tuned = _gradients(kept=True)
    shown = repr(TuneResult(modes=(tuned,)))
    assert repr(tuned) in shown and "training step: 1.250x" in shown
    assert [row["name"] for row in tuned.to_records()] == [
        candidate.name for candidate in tuned.result.report.candidates
    ]
