"""Pages as a browser shows them, wide and on a telephone: nothing overlaps, is cut or is blank."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from support.browser import measured
from support.engine.profiles import PEAK, make_operator_profile, make_profile

from aoe.profiling.comparing import compare_profiles
from aoe.profiling.figures import ProfiledModel
from aoe.profiling.peak import BandwidthLevel, MachinePeak, NodeWork
from aoe.report.charts import roofline
from aoe.report.pages import render_comparison, render_profile

_MOST_ROW = 60  # pixels: two lines and their distance from the next row


def _profile(peak: MachinePeak = PEAK, *, seed: int = 1) -> ProfiledModel:
    rng = random.Random(seed)
    operators = [
        make_operator_profile(
            f"op{number}/with/a/long/name",
            median_us=10 ** rng.uniform(0.5, 3),
            work=NodeWork(
                flops=int(10 ** rng.uniform(3, 6)),
                weight_bytes=0,
                activation_bytes=int(10 ** rng.uniform(2, 6)),
            ),
        )
        for number in range(30)
    ]
    return replace(make_profile(*operators), peak=peak)


def _peak(*rates: float) -> MachinePeak:
    levels = [
        BandwidthLevel(name=name, working_bytes=1 << (18 + 2 * number), bytes_per_us=rate)
        for number, (name, rate) in enumerate(zip(("l2", "l3", "memory"), rates, strict=False))
    ]
    return replace(PEAK, levels=tuple(levels))


LIKE_LEVELS = _peak(44e3, 41e3, 39e3)


def _is_over(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    across = one["left"] < other["right"] - 1 and other["left"] < one["right"] - 1
    return across and one["top"] < other["bottom"] - 2 and other["top"] < one["bottom"] - 2


def _overlaps(labels: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    pairs = combinations(labels, 2)
    return [(one["text"], other["text"]) for one, other in pairs if _is_over(one, other)]


def _cut(plot: Mapping[str, Any]) -> list[Mapping[str, float]]:
    frame = plot["frame"]
    return [
        point
        for point in plot["points"]
        if point["left"] < frame["left"]
        or point["right"] > frame["right"]
        or point["top"] < frame["top"]
        or point["bottom"] > frame["bottom"]
    ]


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_of_profiles_fit(width: int, tmp_path: Path) -> None:
    profile = _profile(LIKE_LEVELS)
    pages = [render_profile(profile), render_comparison(compare_profiles(profile, profile))]
    for page in pages:
        found = measured(page, tmp_path, width=width)
        assert found["wanted"] == found["width"] == width
        assert len(found["points"]) == 1 and len(found["points"][0]["points"]) >= 30
        assert not [cut for plot in found["points"] for cut in _cut(plot)]
        assert not [pair for labels in found["labels"] for pair in _overlaps(labels)]
        assert max(found["rows"]) <= _MOST_ROW


@pytest.mark.parametrize("seed", range(25))
def test_labels_of_roofs_have_room_of_their_own(seed: int) -> None:
    rng = random.Random(seed)
    rates = sorted((10 ** rng.uniform(1, 5.5) for _ in range(3)), reverse=True)
    drawn = roofline(_peak(*rates), _profile(seed=seed).operators)
    labels = [drawn.top_label, *(roof.label for roof in drawn.roofs)]
    assert not [pair for pair in combinations(labels, 2) if pair[0].overlaps(pair[1])]
    assert all(label.is_inside for label in labels[1:])


def test_every_table_has_a_caption() -> None:
    page = render_profile(_profile())
    assert page.count("<table>") == page.count("<caption>") > 0
