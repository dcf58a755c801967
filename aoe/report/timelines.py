"""Timelines as text: two lanes of characters, one scale for before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.report.quantities import SHORTEST_US, interval_text, speedup_text, time_text
from aoe.report.written import ReportWithFiles
from aoebank import plural, size_text

if TYPE_CHECKING:
    from aoe.gradients.timeline import Timeline
    from aoe.results.gradients import GdatReport, GroupingReport
    from aoebank import Text

_PLAIN_WIDTH = 100
_LABEL = "  communication  "
_MOST_ROWS = 24
_SHADES = "█▓"
_BACKWARD = "░"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineReport(ReportWithFiles):
    """The result of a gradient tuning, drawn, and the page that is written with it."""

    file: Path
    report: GdatReport
    schema: str = "aoe.inspect/1"

    def document(self) -> Mapping[str, object]:
        from aoe.results.gradients import gdat_report_to_json

        _, section = gdat_report_to_json(self.report)
        return {
            "file": str(self.file),
            "html": self.page,
            "tuning_name": self.report.tuning_name,
            "result": section["GDAT"],
        }

    def write(self, text: Text) -> None:
        """Draw the timelines as wide as the terminal; plain when piped."""
        _draw(self.report, text)
        self.write_files(text)


def _draw(report: GdatReport, text: Text) -> None:
    for line in _head(report):
        _write_line(text, line)
    groupings = _groupings(report)
    scale_us = max((grouping.timeline.end_us for _, grouping in groupings), default=0.0)
    for title, grouping in groupings:
        _write_grouping(text, title, grouping, scale_us)
    if report.candidates:
        text.line()
        _write_candidates(text, report)


def lanes(timeline: Timeline, scale_us: float, columns: int) -> tuple[str, str, str]:
    """Return the lanes of backward and communication, and the line that marks the tail.

    Args:
        timeline: What to draw.
        scale_us: Time at the right end.
        columns: Characters from left to right.
    """
    per_column = scale_us / columns if scale_us > SHORTEST_US else 1.0

    def column(time_us: float) -> int:
        return round(min(columns, time_us / per_column))

    backward = _BACKWARD * column(timeline.backward_end_us)
    cells = [" "] * columns
    for number, segment in enumerate(timeline.segments):
        start, end = column(segment.start_us), column(segment.end_us)
        for place in range(min(start, columns - 1), max(end, start + 1)):
            if place < columns:
                cells[place] = _SHADES[number % 2]
    start, end = column(timeline.backward_end_us), column(timeline.end_us)
    mark = f"tail {time_text(timeline.tail_us)}"
    line = "└" + "─" * (end - start - 2) + "┘" if end - start >= 2 else "│"
    fits_right = start + len(line) + 1 + len(mark) <= columns
    tail = " " * start + f"{line} {mark}" if fits_right else f"{mark} ".rjust(start) + line
    return backward, "".join(cells).rstrip(), tail if timeline.tail_us > 0 else ""


def _head(report: GdatReport) -> Iterator[str]:
    yield (
        f"{report.tuning_name}: {report.gradients} gradients, {size_text(report.total_bytes)}, "
        f"{report.world_size} workers over {report.backend}; {report.result.value}"
    )
    yield f"all-reduce: {cost_text(report)}"
    if report.estimate is not None:
        interval = (
            f"interval {interval_text(report.estimate)}, {plural(report.estimate.pairs, 'pair')}"
        )
        yield f"step: {speedup_text(report.estimate)} as fast ({interval})"
    yield from judged_lines(report)


def judged_lines(report: GdatReport) -> Iterator[str]:
    """Yield what decided that a grouping is used, and why its tail may be longer all the same."""
    if report.estimate is not None:
        yield (
            f"judged by the median step of {plural(report.estimate.pairs, 'fresh pair')}, "
            f"lower end {report.estimate.low:.3f}x; tails decide nothing"
        )
        if report.before is not None and report.after is not None:
            yield from _longer_tail(report.before, report.after)
    if report.busy:
        yield f"the machine was busy: {report.busy}"


def _longer_tail(before: GroupingReport, after: GroupingReport) -> Iterator[str]:
    from aoe.results.gradients import TimelineSource

    then, now = before.timeline, after.timeline
    grown_us = now.tail_us - then.tail_us
    earlier_us = then.backward_end_us - now.backward_end_us
    less_us = then.communication_us - now.communication_us
    if grown_us <= 0:
        return
    if earlier_us > 0:
        why = f"backward ends {time_text(earlier_us)} earlier, with less communication beside it"
    elif less_us > 0 and len(now.segments) < len(then.segments):
        # fewer latencies, and fewer times that backward is disturbed; the last one waits longer
        why = (
            f"{plural(len(now.segments), 'all-reduce')} in place of {len(then.segments)}, larger "
            f"ones, take {time_text(less_us)} less in all, and the last one ends later"
        )
    elif after.source is before.source is TimelineSource.MEASURED:
        why = (
            "tails are of a few steps, other ones than those judged; why it is faster is undecided"
        )
    else:
        why = (
            "a simulation does not know what communication takes from backward; why it is faster "
            "is undecided"
        )
    yield f"the tail grew by {time_text(grown_us)}: {why}"


def cost_text(report: GdatReport) -> str:
    """Return the fitted cost of an all-reduce in words."""
    from aoe.gradients.cost import AllReduceCost, TableCost

    cost = report.cost
    if isinstance(cost, AllReduceCost):
        rate = f"{1e-3 / cost.us_per_byte:.3g} GB/s" if cost.us_per_byte else "no time per byte"
        fit = f", median misfit {cost.misfit:.1%}" if cost.residuals else ""
        return f"{time_text(cost.latency_us)} + {rate}{fit}"
    if isinstance(cost, TableCost):
        first, last = size_text(cost.sizes_bytes[0]), size_text(cost.sizes_bytes[-1])
        return f"table of {len(cost.sizes_bytes)} sizes from {first} to {last}"
    return "not measured"


def _groupings(report: GdatReport) -> list[tuple[str, GroupingReport]]:
    both = (("before", report.before), ("after", report.after))
    return [(title, grouping) for title, grouping in both if grouping is not None]


def _write_line(text: Text, line: str) -> None:
    """Write one line, in what the encoding of the output has."""
    text.line(encodable(line, text.encoding))


def encodable(text: str, encoding: str) -> str:
    """Return the text in the characters of an encoding; blocks become `.`, `#` and `=`."""
    if encoding.lower().replace("-", "").startswith("utf"):
        return text
    plain = text.translate(str.maketrans("░█▓└┘─│", ".#=++-|"))
    return plain.encode(encoding, "replace").decode(encoding)


def _write_grouping(text: Text, title: str, grouping: GroupingReport, scale_us: float) -> None:
    timeline = grouping.timeline
    step = f", step {time_text(grouping.step_us)}" if grouping.step_us else ""
    text.line()
    _write_line(text, f"{title}: {grouping.name} ({grouping.source.value})")
    _write_line(
        text,
        f"  {plural(len(timeline.segments), 'all-reduce')}, {timeline.overlap_ratio:.1%} of "
        f"{time_text(timeline.communication_us)} hidden, tail {time_text(timeline.tail_us)}{step}",
    )
    width = text.width or _PLAIN_WIDTH
    drawn = lanes(timeline, scale_us, max(20, width - len(_LABEL) - 1))
    for label, lane in zip(("  backward", _LABEL, ""), drawn, strict=True):
        if lane:
            _write_line(text, f"{label:<{len(_LABEL)}}{lane}"[:width])
    _write_segments(text, timeline)


def _write_segments(text: Text, timeline: Timeline) -> None:
    text.columns(
        enumerate(timeline.segments, start=1),
        ("all-reduce", "r", lambda one: str(one[0])),
        ("gradients", "r", lambda one: str(one[1].gradients)),
        ("size", "r", lambda one: size_text(one[1].bytes)),
        ("ready", "r", lambda one: time_text(one[1].ready_us)),
        ("start", "r", lambda one: time_text(one[1].start_us)),
        ("end", "r", lambda one: time_text(one[1].end_us)),
        ("waits", "r", lambda one: time_text(max(0.0, one[1].start_us - one[1].ready_us))),
        most=_MOST_ROWS,
        rest="in the result file",
    )


def _write_candidates(text: Text, report: GdatReport) -> None:
    text.columns(
        report.candidates,
        ("measured", "n", lambda one: encodable(one.name, text.encoding)),
        ("all-reduces", "r", lambda one: str(one.segments)),
        ("predicted", "r", lambda one: _predicted(one.predicted_us)),
        ("speed-up", "r", lambda one: speedup_text(one.estimate)),
        ("interval", "r", lambda one: interval_text(one.estimate)),
    )


def _predicted(time_us: float | None) -> str:
    return time_text(time_us) if time_us is not None else "-"
