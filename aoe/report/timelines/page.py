"""A result of gradient tuning as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.measurement import SpeedupEstimate
from aoe.report.charts import draw_timeline
from aoe.report.quantities import interval_text, time_text
from aoe.report.timelines.text import cost_text
from aoe.results.files import TuningResult
from aoe.results.gradients import GdatReport, GroupingReport
from aoebank import Markup, element, html_page, pages, size_text

_MOST_OPEN_ROWS = 12


def render_page(report: GdatReport) -> str:
    """Return the page: figures, both timelines on one scale, every number in tables."""
    groupings = [grouping for grouping in (report.before, report.after) if grouping is not None]
    scale_us = max((grouping.timeline.end_us for grouping in groupings), default=0.0) * 1.02
    return html_page(
        f"{report.tuning_name}: gradient tuning",
        pages.page_header(report.tuning_name, _subtitle(report)),
        pages.tiles(_tiles(report)),
        *_grouping("Before", report.before, scale_us),
        *_grouping("After", report.after, scale_us),
        *_candidates(report),
        element("footer", _footer(report)),
    )


def _subtitle(report: GdatReport) -> str:
    return (
        f"Gradient tuning: {report.gradients} gradients, {size_text(report.total_bytes)}, "
        f"{report.world_size} workers over {report.backend}; {report.result.value}"
    )


def _tiles(report: GdatReport) -> Iterator[tuple[str, str, str]]:
    before, after = report.before, report.after
    if report.estimate is not None:
        estimate = report.estimate
        note = f"{estimate.low:.3f} to {estimate.high:.3f}, {estimate.pairs} pairs"
        good = "good" if estimate.low > 1 else ""
        yield f"{estimate.median:.3f}x", f"step, times as fast: {note}", good
    if before is not None and after is not None:
        was, now = before.timeline, after.timeline
        sources = ", ".join(dict.fromkeys((before.source.value, after.source.value)))
        yield (
            f"{time_text(was.tail_us)} \u2192 {time_text(now.tail_us)}",
            f"tail after backward, {sources}",
            "good" if now.tail_us < was.tail_us else "",
        )
        yield (
            f"{was.overlap_ratio:.1%} \u2192 {now.overlap_ratio:.1%}",
            "communication hidden behind backward",
            "good" if now.overlap_ratio > was.overlap_ratio else "",
        )
        yield f"{len(was.segments)} \u2192 {len(now.segments)}", "all-reduces per step", ""
    value, _, note = cost_text(report).partition(" + ")
    yield value, f"one all-reduce, {f'+ {note}' if note else 'of any size'}", ""


def _grouping(title: str, grouping: GroupingReport | None, scale_us: float) -> Iterator[Markup]:
    if grouping is None:
        return
    timeline = grouping.timeline
    step = f", step {time_text(grouping.step_us)}" if grouping.step_us else ""
    facts = (
        f"{grouping.source.value}: {len(timeline.segments)} all-reduces, "
        f"{time_text(timeline.communication_us)} of communication, "
        f"{timeline.overlap_ratio:.1%} of it hidden, tail {time_text(timeline.tail_us)}{step}"
    )
    drawing = Markup(draw_timeline(timeline, scale_us))
    drawn = element("div", drawing, class_="scroll", tabindex="0", role="region", aria_label=title)
    table = pages.columns(
        enumerate(timeline.segments, start=1),
        ("all-reduce", "", lambda one: str(one[0])),
        ("gradients", "r", lambda one: _cell(one[1].gradients, str(one[1].gradients))),
        ("size", "r", lambda one: _cell(one[1].bytes, size_text(one[1].bytes))),
        ("ready", "r", lambda one: _time_cell(one[1].ready_us)),
        ("start", "r", lambda one: _time_cell(one[1].start_us)),
        ("end", "r", lambda one: _time_cell(one[1].end_us)),
        ("takes", "r", lambda one: _time_cell(one[1].end_us - one[1].start_us)),
        ("waits", "r", lambda one: _time_cell(max(0.0, one[1].start_us - one[1].ready_us))),
        name=f"{title}: all-reduces",
    )
    number = len(timeline.segments)
    words = element("summary", f"{number} all-reduces")
    listed = element("details", words, table, open="" if number <= _MOST_OPEN_ROWS else False)
    name = f"{title}: {grouping.name}"
    yield pages.section(name, element("p", facts), drawn, listed)


def _cell(value: float, words: str) -> Markup:
    return element("td", words, class_="right", data_sort=f"{value:.1f}")


def _time_cell(time_us: float | None) -> Markup:
    return pages.number_cell(None, "") if time_us is None else _cell(time_us, time_text(time_us))


def _median_cell(estimate: SpeedupEstimate | None) -> Markup:
    return pages.number_cell(estimate.median if estimate else None, ".3f", "x")


def _pairs_cell(estimate: SpeedupEstimate | None) -> Markup:
    return pages.number_cell(estimate.pairs if estimate else None, "d")


def _candidates(report: GdatReport) -> Iterator[Markup]:
    if not report.candidates:
        return
    table = pages.columns(
        report.candidates,
        ("grouping", "", lambda one: one.name),
        ("all-reduces", "r", lambda one: pages.number_cell(one.segments, "d")),
        ("predicted end", "r", lambda one: _time_cell(one.predicted_us)),
        ("speed-up", "r", lambda one: _median_cell(one.estimate)),
        ("interval", "", lambda one: interval_text(one.estimate)),
        ("pairs", "r", lambda one: _pairs_cell(one.estimate)),
        name="measured groupings",
    )
    about = element("p", "Steps in pairs with the default grouping")
    yield pages.section("Measured groupings", about, table)


def _footer(report: GdatReport) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in sorted(report.versions.items()))
    tuned = report.result.value
    if report.result is not TuningResult.INCOMPLETE:
        tuned = f"tuned in {time_text(report.tuning_time_s * 1e6)}"
    parts = [f"model {report.modelhash}", tuned]
    return "; ".join([*parts, *([versions] if versions else [])])
