"""The page of a profile: whole, by itself, and safe whatever a model calls its nodes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine.profiles import make_operator_profile, make_profile
from support.pages import ReadPage

from aoe.advice.run import ModelAdvice
from aoe.graph.fusing import StopReason
from aoe.profiling.comparing import compare_profiles
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.report.charts import heat, network
from aoe.report.pages import render_advice, render_comparison, render_profile
from aoe.report.profiles import ProfileComparisonReport, ProfileReport, trace_document
from aoebank import emit

_HOSTILE = '"><script>alert(1)</script>'


def _profile(name: str = "conv") -> ProfiledModel:
    return make_profile(
        make_operator_profile(name, warm_us=50.0, us_by_threads={1: 120.0, 2: 100.0}),
        make_operator_profile("relu", op_type="Relu", median_us=30.0, reads=(name,)),
        make_operator_profile("any", op_type="If", roofline_us=None, reads=("relu", name)),
        by_threads={1: 240.0, 2: 220.0},
    )


def _both(profile: ProfiledModel) -> list[str]:
    return [render_profile(profile), render_comparison(compare_profiles(profile, profile))]


@pytest.mark.parametrize("number", [0, 1])
def test_page_is_whole_and_its_links_lead_to_rows(number: int) -> None:
    page = ReadPage(_both(_profile())[number])
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {"op-0", "op-1", "op-2", "operators"} <= set(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    # two points of the roofline and three boxes can be reached with the keyboard
    assert sum(link.startswith("#op-") for link in page.links) == 5


def test_page_loads_nothing_and_forbids_it() -> None:
    for text in _both(_profile()):
        ReadPage(text).assert_loads_nothing()


def test_names_of_a_model_stay_text() -> None:
    profile = replace(_profile(_HOSTILE), model=_HOSTILE)
    for text in _both(profile):
        page = ReadPage(text)
        assert page.tags.count("script") == 1
        assert any("alert(1)" in part for part in page.texts)


def test_figures_of_a_busy_machine_are_doubted_on_every_page() -> None:
    busy = replace(_profile(), caveats=("the machine was busy: 40% of the CPU time",))
    for text in (
        *_both(busy),
        render_advice(ModelAdvice(profile=busy, low=(), tried=(), not_tried=())),
    ):
        page = " ".join(ReadPage(text).texts)
        assert "the machine was busy: 40% of the CPU time" in page
    assert "busy" not in " ".join(ReadPage(render_profile(_profile())).texts)


def test_kernel_that_computes_less_is_not_faster_than_the_machine() -> None:
    winograd = make_operator_profile("conv", roofline_us=224.0, median_us=100.0)
    for text in _both(make_profile(winograd)):
        assert "224%" not in text and "&gt;100%" in text


def test_rate_of_a_kind_is_that_of_operators_whose_work_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = make_operator_profile("a", median_us=100.0, roofline_us=40.0)
    other = make_operator_profile("b", median_us=300.0, roofline_us=None)
    unknown = make_operator_profile("c", op_type="If", roofline_us=None)
    emit(ProfileReport(profile=make_profile(known, other, unknown)), as_json=False)
    _, _, kinds = capsys.readouterr().out.partition("kinds, by time:\n")
    rates = {line.split()[0]: line.split()[-1] for line in kinds.splitlines()}
    assert (rates["Conv"], rates["If"]) == (f"{known.gflops_per_s:.1f}", "-")


def test_kinds_that_are_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    operators = (make_operator_profile(f"n{at}", op_type=f"Op{at}") for at in range(30))
    profile = make_profile(*operators)
    compared = compare_profiles(profile, profile)
    for report in (ProfileReport(profile=profile), ProfileComparisonReport(compared=compared)):
        emit(report, as_json=False)
        _, _, kinds = capsys.readouterr().out.partition("kinds, by ")
        assert "5 more with --json" in kinds


def test_page_says_where_time_is_lost() -> None:
    page = " ".join(ReadPage(render_profile(_profile())).texts)
    for words in ("Roofline", "Graph by lost time", "Threads that pay", "1 GF/s", "60.0 us lost"):
        assert words in page


def test_fusion_limits_are_shown_where_they_were_asked_for() -> None:
    limit = FusionLimit(
        fusion_class="conv_elementwise",
        op_names=("conv",),
        op_types=("Conv",),
        through_cache="mean_3",
        stop=StopReason.INPUTS,
        stopped_at="add",
        stopped_type="Add",
        without_limits=2,
        runs_as=1,
        goes_on_here=False,
        median_us=100.0,
    )
    page = render_profile(replace(_profile(), fusion=(limit,)))
    assert "AOE&#39;s fusion limits" in page and "<td>mean_3</td>" in page
    assert "AOE&#39;s fusion limits" not in render_profile(_profile())


def test_comparison_has_both_sides_and_its_doubts() -> None:
    before = _profile()
    after = replace(before, cpu_model="Other CPU", model="net_tune.om")
    page = " ".join(ReadPage(render_comparison(compare_profiles(before, after))).texts)
    assert "net.onnx \u2192 net_tune.om" in page
    assert "measured with different CPUs: Test CPU and Other CPU" in page
    assert "before (hollow)" in page


@pytest.mark.parametrize("slower", [1, 1000])
def test_profile_of_nothing_is_a_page(slower: int) -> None:
    """Of a machine, too, that moves more bytes than it makes operations."""
    profile = make_profile()
    peak = replace(profile.peak, flops_per_us=profile.peak.flops_per_us / slower)
    for text in _both(replace(profile, peak=peak)):
        assert ReadPage(text).open == []


def test_comparison_without_times_has_no_speed_up() -> None:
    profile = _profile()
    timed = ReadPage(render_comparison(compare_profiles(profile, profile))).texts
    untimed = replace(profile, model_us=0.0)
    texts = ReadPage(render_comparison(compare_profiles(untimed, untimed))).texts
    assert "1.00x" in timed and "as fast" in timed
    assert "-x" not in texts and "as fast" not in texts


# ---- the graph ----


@pytest.mark.parametrize(
    ("lost_us", "shade"), [(0.0, "h0"), (1.0, "h1"), (30.0, "h3"), (100.0, "h5")]
)
def test_colour_follows_from_what_is_lost(lost_us: float, shade: str) -> None:
    operator = make_operator_profile(median_us=40.0 + lost_us, roofline_us=40.0)
    assert heat(operator, 100.0) == shade


def test_operator_without_a_roofline_is_cold() -> None:
    assert heat(make_operator_profile(roofline_us=None), 100.0) == "h0"
    assert heat(make_operator_profile(), 0.0) == "h0"


def _corners(operators: list[OperatorProfile]) -> list[tuple[int, int]]:
    return [(x, y) for _, x, y in network(operators).boxes]


def test_boxes_stand_below_what_they_read_and_never_on_each_other() -> None:
    operators = [
        make_operator_profile("a"),
        make_operator_profile("b", reads=("a",)),
        make_operator_profile("c", reads=("a",)),
        make_operator_profile("d", reads=("b", "c", "a")),
    ]
    a, b, c, d = _corners(operators)
    assert a[1] < b[1] == c[1] < d[1]
    assert len({a, b, c, d}) == 4


def test_many_operators_beside_each_other_take_several_rows() -> None:
    operators = [make_operator_profile(f"n{number}") for number in range(30)]
    corners = _corners(operators)
    assert len(set(corners)) == 30
    assert len({y for _, y in corners}) == 3


def test_trace_has_an_event_per_operator_and_one_for_the_user_s_nodes() -> None:
    profile = make_profile(
        make_operator_profile("a_nchwc", op_names=("conv", "relu"), op_types=("Conv", "Relu")),
        make_operator_profile("reorder", op_type="ReorderOutput", op_names=(), median_us=5.0),
    )
    document = json.loads(json.dumps(trace_document(profile), allow_nan=False))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(event["tid"], event["name"]) for event in events] == [
        (1, "conv + relu"),
        (2, "a_nchwc"),
        (2, "reorder"),
    ]
    assert [(event["ts"], event["dur"]) for event in events[1:]] == [(0.0, 100.0), (100.0, 5.0)]
    assert events[1]["cat"] == "Conv + Relu"
    assert events[1]["args"]["outputs"] == ["1x16x8x8"]
    assert events[1]["args"]["lost_us"] == 60.0


def test_lanes_have_names() -> None:
    events = trace_document(make_profile(make_operator_profile()))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"net.onnx", "nodes of the model", "operators, 2 threads"}
