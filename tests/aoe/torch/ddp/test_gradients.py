"""Gradient tuning in real processes: what is recorded, kept, remembered, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.ddp.bucket_sizes import bucket_sizes_bytes  # noqa: E402
from support.ddp.cases import GRADIENTS  # noqa: E402
from support.ddp.processes import Found  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from aoe.errors import EngineNotInstalledError, OptionError  # noqa: E402
from aoe.gradients.segmentation import Segmentation  # noqa: E402
from aoe.gradients.trace import GradientTrace  # noqa: E402
from aoe.results.files import TuningResult  # noqa: E402
from aoe.results.gradients import TimelineSource, load_gdat_report  # noqa: E402
from aoe.tasks.gradients.looking_up import CHECK_STEPS  # noqa: E402
from aoe.torch import apply_gradient_strategy, tune_gradients  # noqa: E402
from aoe.torch.ddp.training import SMALLEST_BYTES, sweep_sizes  # noqa: E402

CASES = GRADIENTS

TUNED = "tune_and_reuse/new/bank"
"""Folder of bank and results of a case; the tuner makes it."""


def bank_lists(folder: Path) -> dict[str, Any]:
    """Return the only record of the only bank below a folder."""
    (file,) = folder.glob("*_gradient_fusion.json")
    (record,) = json.loads(file.read_text())
    return {"hash": record["modelhash"], **record["modelvalue"]}


# ---- recording ----


def test_gradients_are_recorded_in_the_order_of_backward(found: Found) -> None:
    names = found[0]["recorded"]["names"]
    assert [name.split(".")[0] for name in names] == [str(5 - place // 2) for place in range(12)]
    ready = found[0]["recorded"]["ready_us"]
    assert ready == sorted(ready) and ready[0] > 0


def test_all_ranks_record_the_same(found: Found) -> None:
    assert found[0]["recorded"] == found[1]["recorded"]
    assert found[0]["recorded"]["was_looked_at"], found[0]["recorded"]["load"]


def test_recording_leaves_no_hooks(found: Found) -> None:
    assert found[0]["recorded"]["hooks_left"] == 0


def test_all_reduce_is_measured_up_to_all_gradients(found: Found) -> None:
    sizes = [size for size, _ in found[0]["recorded"]["samples"]]
    assert sizes[0] == SMALLEST_BYTES and sizes == sorted(set(sizes))
    assert all(time > 0 for _, time in found[0]["recorded"]["samples"])


def test_real_timeline_has_the_segments_asked_for_one_after_the_other(found: Found) -> None:
    recorded = found[0]["recorded"]
    assert recorded["segments"] == [[2, 2400], [5, 4896], [5, 7104]]
    ends = [0.0]
    for ready, start, end in recorded["times"]:
        assert ready <= start <= end and start >= ends[-1]
        ends.append(end)


@pytest.mark.parametrize("total", [0, 1, 4096, 10**6, 10**8, 10**12])
def test_sweep_is_whole_numbers_from_small_to_everything_within_bounds(total: int) -> None:
    sizes = sweep_sizes(total)
    assert list(sizes) == sorted(set(sizes)) and not any(size % 4 for size in sizes)
    assert sizes[0] == 4096 and len(sizes) >= 2
    assert sizes[-1] == min(max(total, 16384), 256 << 20) // 4 * 4


# ---- DDP's own buckets ----

OWN = {
    "plain": [[3], [2, 1, 0]],
    "unused": [[1, 2, 3], [0]],
    "unused layer": [[1, 2, 3], [0]],
    "static, unused layer": [[3], [1, 0, 2]],
    "shuffled": [[1, 2, 3], [0]],
    "mixed": [[4], [5, 3], [2], [1, 0]],
}


@pytest.mark.parametrize("module", OWN)
def test_default_is_what_ddp_does_by_itself(found: Found, module: str) -> None:
    for rank in found:
        case = rank["own_buckets"][module]
        assert case["real"] == case["own"] == case["own again"] == OWN[module]
        assert case["looked at"] == (
            3 if module in ("plain", "static, unused layer", "mixed") else 0
        )


def test_grouping_by_readiness_is_tried_where_ddp_groups_by_registration(found: Found) -> None:
    cases = found[0]["own_buckets"]
    tried = {name for name, case in cases.items() if case["by readiness is tried"]}
    # in which order gradients of two dtypes become ready is the machine's affair
    assert tried - {"mixed"} == {"unused", "unused layer", "static, unused layer", "shuffled"}
    assert {name: case["ends"] for name, case in cases.items() if case["is default"]} == {
        "plain": [1, 4],
        "unused": [3, 4],
        "unused layer": [3, 4],
    }


# ---- tuning, the bank, the result ----


def test_better_grouping_is_added_used_and_found_again(found: Found, folder: Path) -> None:
    first, second = (found[0]["tune_and_reuse"][name] for name in ("first", "second"))
    assert (first["outcome"], second["outcome"]) == ("add", "reserved")
    assert first["ends"] == second["ends"] and first["ends"][-1] == 12
    lists = bank_lists(folder / TUNED)
    assert len(lists["gradientSize"]) == len(lists["gradientTime"]) == 12
    assert sum(lists["gradientSize"]) == 6 * (24 * 24 + 24) * 4


def test_second_run_only_checks_that_the_record_fits(found: Found) -> None:
    second = found[0]["tune_and_reuse"]["second"]
    assert second["steps"] == CHECK_STEPS + 2  # in the first two DDP may fill its buckets again
    assert second["told"] == []


def test_model_is_left_with_the_grouping_and_a_new_one_gets_it_from_the_bank(found: Found) -> None:
    tuned = found[0]["tune_and_reuse"]
    sizes = [24 * 4, 24 * 24 * 4] * 6
    ends = tuned["first"]["ends"]
    wanted = [sum(sizes[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert tuned["sizes"] == [wanted] * 3


def test_ranks_agree_on_everything_and_hold_the_same_weights(found: Found) -> None:
    for case in ("tune_and_reuse", "tune_unsatisfied", "tune_repeatedly", "other_cluster"):
        one, two = (json.dumps(_without_told(rank[case])) for rank in found)
        assert one == two, case
    assert not found[1]["other_cluster"]["warnings"]


def _without_told(value: Any) -> Any:
    """Return what a rank found without what it told its user: the first one tells for all."""
    if isinstance(value, dict):
        told = ("told", "warnings")
        return {name: _without_told(member) for name, member in value.items() if name not in told}
    return [_without_told(item) for item in value] if isinstance(value, list) else value


def test_result_file_has_times_before_and_after(found: Found, folder: Path) -> None:
    first = found[0]["tune_and_reuse"]["first"]
    report = load_gdat_report(folder / TUNED / first["result"])
    assert report.result is TuningResult.SUCCESSFUL and report.world_size == 2
    assert report.before is not None and report.after is not None and report.estimate is not None
    assert report.before.source is report.after.source is TimelineSource.MEASURED
    assert [segment.gradients for segment in report.after.timeline.segments] == [
        b - a for a, b in zip([0, *first["ends"][:-1]], first["ends"], strict=True)
    ]
    assert report.before.step_us and report.after.step_us and report.cost is not None
    assert any(line.startswith("round 1: ") for line in first["told"]) and report.candidates


def test_one_process_writes_one_result_file_per_run(found: Found, folder: Path) -> None:
    assert len(list((folder / TUNED).glob("aoe_result_gdat_*.json"))) == 2


def test_default_that_stays_writes_no_record_and_is_remembered(found: Found, folder: Path) -> None:
    tuned = found[0]["tune_unsatisfied"]
    assert [tuned[name]["outcome"] for name in ("first", "second")] == ["unsatisfied"] * 2
    assert tuned["first"]["ends"] is None and tuned["first"]["steps"] > 0
    assert tuned["second"]["steps"] == CHECK_STEPS + 2
    assert not list((folder / "tune_unsatisfied").glob("*_gradient_fusion.json"))
    assert tuned["sizes"] == [6 * (16 * 16 + 16) * 4]  # DDP's own: all in one bucket


def test_repeat_tune_updates_or_reserves(found: Found, folder: Path) -> None:
    done = found[0]["tune_repeatedly"]["done"]
    assert [tuning["outcome"] for tuning in done] == ["add", "update", "reserved"]
    assert all(tuning["steps"] > 0 for tuning in done)
    assert any("recording" in told for told in done[1]["told"])
    bank_lists(folder / "tune_repeatedly")  # still one record


def test_times_of_another_cluster_are_used_and_its_grouping_is_not(found: Found) -> None:
    case = found[0]["other_cluster"]
    (warning,) = case["warnings"]
    assert "2 processes by computation" in warning and "measurements for 64" in warning
    assert not any("recording" in told for told in case["told"])
    assert any("measuring all-reduce" in told for told in case["told"])
    assert case["tuned"]["outcome"] == "update"


def test_record_of_another_link_is_computed_anew_and_measured_again(found: Found) -> None:
    case = found[0]["other_link"]
    (warning,) = case["warnings"]
    assert "by computation, all-reduce takes" in warning and "ms in the bank" in warning
    assert any("in the bank, but all-reduce takes" in told for told in case["told"])
    assert any("recording" in told for told in case["told"])
    assert case["outcome"] == "update" and case["stored_speedup"] is None


def test_record_of_another_model_is_not_used(found: Found) -> None:
    case = found[0]["foreign_record"]
    (warning,) = case["warnings"]
    assert "other gradients" in warning and "DDP's own buckets" in warning
    assert any("recording" in told for told in case["told"])
    assert case["outcome"] == "add"


def test_record_without_side_car_is_used_with_a_warning(found: Found) -> None:
    case = found[0]["readable_record"]
    assert ["unknown number" in warning for warning in case["warnings"]] == [True]
    assert sum(case["sizes"]) == 6 * (6 * 6 + 6) * 4


# ---- failures ----


def test_bank_the_first_process_cannot_open_ends_the_run_everywhere(found: Found) -> None:
    first, second = (rank["missing_bank"] for rank in found)
    assert first["error"] == "OutputError"
    assert "missing_bank/file: cannot be created" in first["message"]
    assert "bank=" in first["message"] and "TUNE_BANK_PATH" not in first["message"]
    assert second["error"] == "RunError" and "rank 0: OutputError" in second["message"]


def test_step_without_backward_is_an_error(found: Found) -> None:
    for rank in found:
        assert "no gradient of the model" in rank["no_backward"]["message"]


def test_time_out_of_the_group_is_restored(found: Found) -> None:
    assert found[0]["time_out_restored"] == {
        "before": "0:01:00",
        "during": "0:00:17",
        "after": "0:01:00",
    }


def test_failure_of_one_rank_is_told_by_the_others(found: Found) -> None:
    first, second = (rank["failing_step"] for rank in found)
    assert second == {"error": "ValueError", "message": "no more data"}
    assert first["error"] == "RunError"
    assert "rank 1 failed: ValueError: no more data" in first["message"]


def test_rank_that_hangs_is_a_time_out(found: Found) -> None:
    assert found[0]["hanging_step"]["error"] == "RunTimeoutError"


def test_rank_that_is_gone_is_an_error(found: Found) -> None:
    first = found[0]["dying_step"]
    assert first["error"] == "RunError" and "another process is gone" in first["message"]
    assert "dying_step" not in found[1]


def test_one_process_has_nothing_to_tune(alone: None, tmp_path: Path) -> None:
    ddp = DistributedDataParallel(nn.Linear(4, 4))
    with pytest.raises(OptionError, match="one process reduces nothing"):
        tune_gradients(ddp, lambda: None, bank=tmp_path)


def test_plain_module_cannot_be_tuned() -> None:
    with pytest.raises(OptionError, match="not a DistributedDataParallel module"):
        tune_gradients(nn.Linear(4, 4), lambda: None)


# ---- applying ----


def test_plain_module_is_wrapped_with_its_options(alone: None, tmp_path: Path) -> None:
    ddp = apply_gradient_strategy(nn.Linear(4, 4), bank=tmp_path, gradient_as_bucket_view=True)
    assert isinstance(ddp, DistributedDataParallel) and ddp.gradient_as_bucket_view


def test_options_for_a_wrapped_module_are_refused(alone: None) -> None:
    ddp = DistributedDataParallel(nn.Linear(4, 4))
    with pytest.raises(OptionError, match=r"already.*static_graph"):
        apply_gradient_strategy(ddp, static_graph=True)


def test_given_grouping_is_used_last_parameter_first(alone: None) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    ddp = apply_gradient_strategy(net, Segmentation(ends=(1, 4)))
    assert bucket_sizes_bytes(ddp) == (8, 64 + 32 + 128)


def test_given_order_is_used(alone: None) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    trace = GradientTrace(
        names=("0.weight", "1.bias", "1.weight", "0.bias"),
        sizes_bytes=(128, 8, 64, 32),
        dtypes=("float32",) * 4,
        ready_us=(0.0, 1.0, 2.0, 3.0),
        loops=4,
    )
    ddp = apply_gradient_strategy(net, Segmentation(ends=(1, 4)), trace=trace)
    assert bucket_sizes_bytes(ddp) == (128, 8 + 64 + 32)


@pytest.mark.parametrize("ends", [(1, 3), (5,)])
def test_grouping_of_another_number_of_gradients_is_refused(
    alone: None, ends: tuple[int, ...]
) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    with pytest.raises(OptionError, match="another number of gradients"):
        apply_gradient_strategy(net, Segmentation(ends=ends))


def test_without_a_group_there_is_an_error_that_says_so() -> None:
    with pytest.raises((OptionError, ValueError, RuntimeError), match="process group"):
        apply_gradient_strategy(nn.Linear(4, 4))


def test_import_needs_no_torch_and_use_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import aoe.torch

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineNotInstalledError, match="PyTorch is not installed") as caught:
        getattr(aoe.torch, "tune_gradients")  # noqa: B009 - the look-up is what is tested
    assert "aoebank[torch]" in str(caught.value.hint)


def test_unknown_name_is_an_attribute_error() -> None:
    import aoe.torch

    with pytest.raises(AttributeError, match="no attribute 'tune'"):
        aoe.torch.tune  # noqa: B018
