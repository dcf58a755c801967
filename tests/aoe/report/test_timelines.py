"""Timelines of gradients, as a drawing of a page and as characters of a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import make_gdat_report

from aoe.gradients.timeline import SegmentTime, Timeline
from aoe.report.pages import render_timelines
from aoe.report.quantities import time_text
from aoe.report.timelines import encodable, judged_lines, lanes
from aoe.results.gradients import TimelineSource

TIMES = st.floats(0, 1e15)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    pairs = [sorted(pair) for pair in draw(st.lists(st.tuples(TIMES, TIMES), max_size=12))]
    segments = tuple(
        SegmentTime(
            gradients=1,
            bytes=draw(st.integers(0, 2**62)),
            ready_us=draw(TIMES),
            start_us=start,
            end_us=end,
        )
        for start, end in pairs
    )
    return Timeline(segments=segments, backward_end_us=draw(TIMES))


@given(timelines(), st.floats(0.1, 10))
def test_any_timeline_can_be_drawn(timeline: Timeline, factor: float) -> None:
    scale_us = timeline.end_us * factor
    assert len(lanes(timeline, scale_us, 60)[1]) <= 60
    report = make_gdat_report()
    assert report.before is not None
    page = render_timelines(replace(report, before=replace(report.before, timeline=timeline)))
    svg = page.partition('<svg class="timeline"')[2].partition("</svg>")[0]
    assert "nan" not in svg and "inf" not in svg
    assert svg.count("<line") <= 16
    bars = re.findall(r'x="(-?[\d.e+]+)" y="[\d.]+"\s+width="(-?[\d.e+]+)"', svg)
    assert len(bars) == 1 + (timeline.tail_us > 0) + len(timeline.segments)
    for x, width in bars:
        assert float(width) >= 0
        assert 0 <= float(x) <= 1060


def test_lanes_have_one_scale_and_mark_the_tail() -> None:
    segments = (
        SegmentTime(gradients=1, bytes=1, ready_us=20, start_us=20, end_us=60),
        SegmentTime(gradients=1, bytes=1, ready_us=60, start_us=60, end_us=100),
    )
    drawn = lanes(Timeline(segments=segments, backward_end_us=80), 100, 40)
    assert drawn[0] == "░" * 32
    assert drawn[1] == " " * 8 + "█" * 16 + "▓" * 16
    assert drawn[2].endswith("└──────┘")
    assert drawn[2].strip().startswith("tail 20.0 us")


def test_short_segments_stay_visible() -> None:
    segments = (SegmentTime(gradients=1, bytes=1, ready_us=0, start_us=0, end_us=0.001),)
    assert lanes(Timeline(segments=segments, backward_end_us=100), 100, 40)[1] == "█"


def test_encoding_without_blocks_gets_characters_it_has() -> None:
    assert encodable("░█▓ └──┘ net│", "utf-8") == "░█▓ └──┘ net│"
    assert encodable("░█▓ └──┘ ü", "ascii") == ".#= +--+ ?"
    assert encodable("ü█", "iso-8859-1") == "ü#"


def test_page_shows_both_timelines_and_their_tails() -> None:
    report = make_gdat_report()
    page = render_timelines(report)
    assert page.count("<svg") == 2
    assert report.before is not None and report.after is not None
    for grouping in (report.before, report.after):
        assert f"tail {time_text(grouping.timeline.tail_us)}" in page
    assert "1.250x" in page


@pytest.mark.parametrize(
    ("segments", "communication", "expected"),
    [
        ((2, 1), 0.5, "1 all-reduce in place of 2, larger ones, take"),
        ((2, 2), 1.0, "why it is faster is undecided"),
    ],
)
def test_gain_whose_tail_grew_is_explained_or_undecided(
    segments: tuple[int, int], communication: float, expected: str
) -> None:
    report = make_gdat_report()
    assert report.before is not None and report.after is not None
    before = _timeline(segments[0], 100.0, 1000.0)
    after = _timeline(segments[1], 100.0 * segments[0] * communication / segments[1], 1050.0)
    told = judged_lines(
        replace(
            report,
            before=replace(report.before, timeline=before, source=TimelineSource.MEASURED),
            after=replace(report.after, timeline=after, source=TimelineSource.MEASURED),
        )
    )
    assert any("the tail grew by" in line and expected in line for line in told)


def _timeline(count: int, each_us: float, last_us: float) -> Timeline:
    """Return a timeline of some all-reduces behind each other, the last of which ends then."""
    starts = [last_us - each_us * (count - number) for number in range(count)]
    return Timeline(
        backward_end_us=900.0,
        segments=tuple(
            SegmentTime(
                gradients=1, bytes=4, ready_us=start, start_us=start, end_us=start + each_us
            )
            for start in starts
        ),
    )
