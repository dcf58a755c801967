"""A result of gradient tuning as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from aoe.report.quantities import time_text
from aoe.report.timelines.drawing import draw_timeline
from aoe.report.timelines.style import STYLE
from aoe.report.timelines.text import cost_text
from aoe.results.files import TuningResult
from aoe.results.gradients import GdatReport, GroupingReport
from aoebank import size_text

_MOST_OPEN_ROWS = 12


def render_page(report: GdatReport) -> str:
    """Return the page: figures, both timelines on one scale, every number in tables."""
    groupings = [grouping for grouping in (report.before, report.after) if grouping is not None]
    scale_us = max((grouping.timeline.end_us for grouping in groupings), default=0.0) * 1.02
    body = [
        f"<h1>{escape(report.tuning_name)}</h1>",
        f"<p>{escape(_subtitle(report))}</p>",
        *_cards(report),
        *_grouping("Before", report.before, scale_us),
        *_grouping("After", report.after, scale_us),
        *_candidates(report),
        f"<footer>{escape(_footer(report))}</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.tuning_name)}: gradient tuning</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _subtitle(report: GdatReport) -> str:
    return (
        f"Gradient tuning: {report.gradients} gradients, {size_text(report.total_bytes)}, "
        f"{report.world_size} workers over {report.backend}; {report.result.value}"
    )


def _cards(report: GdatReport) -> Iterator[str]:
    before, after = report.before, report.after
    yield '<div class="cards">'
    if report.estimate is not None:
        estimate = report.estimate
        note = f"{estimate.low:.3f} to {estimate.high:.3f}, {estimate.pairs} pairs"
        yield _card("Step, times as fast", f"{estimate.median:.3f}x", note, estimate.low > 1)
    if before is not None and after is not None:
        was, now = before.timeline, after.timeline
        yield _card(
            "Tail after backward",
            _change(time_text(was.tail_us), time_text(now.tail_us)),
            ", ".join(dict.fromkeys((before.source.value, after.source.value))),
            now.tail_us < was.tail_us,
        )
        yield _card(
            "Communication hidden",
            _change(f"{was.overlap_ratio:.1%}", f"{now.overlap_ratio:.1%}"),
            "behind backward",
            now.overlap_ratio > was.overlap_ratio,
        )
        yield _card(
            "All-reduces", _change(str(len(was.segments)), str(len(now.segments))), "per step"
        )
    value, _, note = cost_text(report).partition(" + ")
    yield _card("One all-reduce", escape(value), f"+ {note}" if note else "of any size")
    yield "</div>"


def _change(before: str, after: str) -> str:
    return f"<small>{escape(before)} &rarr;</small> {escape(after)}"


def _card(label: str, value: str, note: str, good: bool = False) -> str:
    kind = "value good" if good else "value"
    return (
        f'<div class="card"><div class="label">{escape(label)}</div>'
        f'<div class="{kind}">{value}</div><div class="note">{escape(note)}</div></div>'
    )


def _grouping(title: str, grouping: GroupingReport | None, scale_us: float) -> Iterator[str]:
    if grouping is None:
        return
    timeline = grouping.timeline
    step = f", step {time_text(grouping.step_us)}" if grouping.step_us else ""
    facts = (
        f"{grouping.source.value}: {len(timeline.segments)} all-reduces, "
        f"{time_text(timeline.communication_us)} of communication, "
        f"{timeline.overlap_ratio:.1%} of it hidden, tail {time_text(timeline.tail_us)}{step}"
    )
    yield f"<section><h2>{escape(f'{title}: {grouping.name}')}</h2><p>{escape(facts)}</p>"
    yield f'<div class="scroll">{draw_timeline(timeline, scale_us)}</div>'
    rows = [
        (
            str(number),
            str(segment.gradients),
            size_text(segment.bytes),
            time_text(segment.ready_us),
            time_text(segment.start_us),
            time_text(segment.end_us),
            time_text(segment.end_us - segment.start_us),
            time_text(max(0.0, segment.start_us - segment.ready_us)),
        )
        for number, segment in enumerate(timeline.segments, start=1)
    ]
    heads = ("all-reduce", "gradients", "size", "ready", "start", "end", "takes", "waits")
    shown = " open" if len(rows) <= _MOST_OPEN_ROWS else ""
    yield f"<details{shown}><summary>{len(rows)} all-reduces</summary>"
    yield from _table(heads, rows)
    yield "</details></section>"


def _candidates(report: GdatReport) -> Iterator[str]:
    if not report.candidates:
        return
    rows = []
    for candidate in report.candidates:
        estimate, predicted_us = candidate.estimate, candidate.predicted_us
        rows.append(
            (
                candidate.name,
                str(candidate.segments),
                time_text(predicted_us) if predicted_us is not None else "-",
                f"{estimate.median:.3f}x" if estimate else "-",
                f"{estimate.low:.3f} to {estimate.high:.3f}" if estimate else "-",
                str(estimate.pairs) if estimate else "-",
            )
        )
    yield "<section><h2>Measured groupings</h2><p>Steps in pairs with the default grouping</p>"
    yield from _table(
        ("grouping", "all-reduces", "predicted end", "speed-up", "interval", "pairs"), rows
    )
    yield "</section>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr></thead><tbody>"
    for first, *rest in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        yield f'<tr><td class="name">{escape(first)}</td>{cells}</tr>'
    yield "</tbody></table></div>"


def _footer(report: GdatReport) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in sorted(report.versions.items()))
    tuned = report.result.value
    if report.result is not TuningResult.INCOMPLETE:
        tuned = f"tuned in {time_text(report.tuning_time_s * 1e6)}"
    parts = [f"model {report.modelhash}", tuned]
    return "; ".join([*parts, *([versions] if versions else [])])
