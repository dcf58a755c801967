"""Advice on a model, or on a directory of them, as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aoe.advice.causes import LowPerformer
from aoe.advice.folder import FolderAdvice
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.measurement import SpeedupEstimate
from aoe.report.advice.text import (
    SUMMARY_COLUMNS,
    by_gain,
    causes_text,
    summary_row,
    verdict_text,
    what_text,
)
from aoe.report.charts import kind_bars
from aoe.report.profiling.page import (
    names_cell,
    network_section,
    page_footer,
    peak_cell,
    roofline_section,
    skip_link,
    subtitle,
)
from aoe.report.quantities import interval_text, time_text
from aoebank import Markup, element, html_page, pages

_WIDTH, _HEIGHT = 160.0, 18.0
_MARGIN = 6.0
_LEAST_WIDEST, _MOST_WIDEST = 0.02, 1.0
"""So that noise does not fill the drawing, and one wild interval does not shrink the others."""
_CLASSES = {
    TrialVerdict.GAIN: "good",
    TrialVerdict.FAILED: "bad",
    TrialVerdict.NO_GAIN: "",
    TrialVerdict.BUSY: "",
}


def render_advice(advice: ModelAdvice) -> str:
    """Return the page of one model."""
    profile = advice.profile
    return html_page(
        f"{profile.model}: advice",
        skip_link("to the actions", "#actions"),
        pages.page_header(profile.model, subtitle(profile)),
        *_model(advice),
        page_footer(profile),
    )


def render_folder_advice(found: FolderAdvice) -> str:
    """Return the page of a directory: the summary, then a part for each model that opens."""
    advised = found.advised
    footers = [page_footer(advice.profile) for _, advice in advised[:1]]
    words = f"{len(advised)} of {len(found.models)} models profiled"
    if advised:
        words += f"; {subtitle(advised[0][1].profile)}"
    return html_page(
        f"{found.folder}: advice",
        skip_link("to the models", "#models"),
        pages.page_header(str(found.folder), words),
        *_failures(found),
        element("div", _summary(found), id="models"),
        *_common(found),
        *(_opened(number, path, advice) for number, (path, advice) in enumerate(advised)),
        *footers,
    )


# ---- one model ----


def _model(advice: ModelAdvice, prefix: str = "") -> Iterator[Markup]:
    """Yield the parts of a model; ids of their rows begin with a prefix."""
    profile = advice.profile
    links = {one.operator.name: f"#{prefix}op-{number}" for number, one in enumerate(advice.low)}
    yield _tiles(advice)
    yield element("div", _actions(advice), id=f"{prefix}actions")
    yield _low(advice, prefix)
    yield pages.section("Time by kind of operator", kind_bars(profile.kinds()))
    yield roofline_section(profile, links)
    yield network_section(profile, links)
    yield from _worth_tuning(advice)


def _tiles(advice: ModelAdvice) -> Markup:
    profile = advice.profile
    share = profile.lost_us / (profile.operators_us or 1.0)
    gains = [one for one in advice.tried if one.verdict is TrialVerdict.GAIN]
    best = max((one.estimate.median for one in gains if one.estimate), default=None)
    found = [
        (time_text(profile.model_us), "a run (median)", ""),
        (time_text(profile.lost_us), f"lost, {share:.0%} of the operators", "bad"),
        (str(len(advice.low)), "low performers", ""),
        (str(len(advice.tried)), "actions tried in pairs", ""),
        (str(len(gains)), "shown to gain", "good" if gains else ""),
    ]
    if best is not None:
        found.append((f"{best:.2f}x", "the largest gain", "good"))
    return pages.tiles(found)


def _actions(advice: ModelAdvice) -> Markup:
    title = "Actions, each tried in pairs on a copy"
    if advice.of_untuned:
        title += " of the untuned model inside"
    notes = []
    if advice.not_tried:
        notes.append(element("p", f"Not tried (--most): {', '.join(advice.not_tried)}."))
    if not advice.tried:
        return pages.section(title, element("p", "No action applies."), *notes)
    shown = by_gain(advice.tried)
    estimates = [one.estimate for one in shown if one.estimate is not None]
    widest = max((abs(end - 1) for one in estimates for end in (one.low, one.high)), default=0.0)
    table = pages.columns(
        shown,
        ("action", "", lambda one: one.action),
        ("speed-up", "r", _speedup_cell),
        ("verdict", "", _verdict_cell),
        ("95 % interval", "", _interval_cell),
        ("drawn", "", lambda one: element("td", _drawn(one, widest))),
        ("about us", "", lambda one: pages.number_cell(one.room_us, ".1f")),
        ("what", "", lambda one: element("td", what_text(one), class_="words")),
        name="actions",
    )
    return pages.section(title, *notes, table)


def _speedup_cell(one: TriedAction) -> Markup:
    return pages.number_cell(one.estimate.median if one.estimate else None, ".3f", "x")


def _verdict_cell(one: TriedAction) -> Markup:
    return element("td", verdict_text(one), class_=_CLASSES[one.verdict] or False)


def _interval_cell(one: TriedAction) -> Markup:
    return element("td", interval_text(one.estimate), class_="interval-words")


def _drawn(one: TriedAction, widest: float) -> str | Markup:
    return draw_interval(one.estimate, widest, one.verdict) if one.estimate else ""


def _low(advice: ModelAdvice, prefix: str) -> Markup:
    if not advice.low:
        return pages.section("Low performers", element("p", "No operator loses 1 % of the time."))
    numbers = {one.operator.name: number for number, one in enumerate(advice.low)}
    table = pages.columns(
        advice.low,
        ("operator", "", lambda one: names_cell(one.operator)),
        ("computes", "", lambda one: one.operator.kind),
        ("us", "r", lambda one: pages.number_cell(one.operator.median_us, ".1f")),
        ("lost us", "r", lambda one: pages.number_cell(one.operator.lost_us, ".1f")),
        ("of peak", "r", lambda one: peak_cell(one.operator)),
        ("cause", "", _cause_cell),
        name="low performers",
        ids=lambda one: f"{prefix}op-{numbers[one.operator.name]}",
    )
    return pages.section("Low performers", table)


def _cause_cell(one: LowPerformer) -> Markup:
    return element("td", causes_text(one) or "none that is known", class_="words")


def _worth_tuning(advice: ModelAdvice) -> Iterator[Markup]:
    if advice.worth_tuning:
        words = "Low performers there is a kernel for; --tune_ops_file writes them."
        names = (element("li", name) for name in advice.worth_tuning)
        listed = element("details", element("summary", words), element("ol", *names))
        yield pages.section("Worth tuning", listed)


# ---- a directory ----


def _failures(found: FolderAdvice) -> Iterator[Markup]:
    failed = [
        f"{model.path.name}: {model.error}" for model in found.models if model.error is not None
    ]
    if failed:
        yield pages.section("No advice on", pages.listing(failed), class_="problems")


def _summary(found: FolderAdvice) -> Markup:
    rows = []
    for number, (path, advice) in enumerate(found.advised):
        name, *cells = summary_row(path, advice)
        link = element("a", name, href=f"#model-{number}")
        rows.append(pages.row(element("td", link), *cells))
    return pages.section("Models", pages.table(SUMMARY_COLUMNS, rows, range(0), "models"))


def _common(found: FolderAdvice) -> Iterator[Markup]:
    causes, actions = found.causes(), found.actions()
    if causes:
        table = pages.columns(
            causes,
            ("cause", "", lambda one: element("td", one.cause)),
            ("models", "r", lambda one: pages.number_cell(one.models, "d")),
            ("operators", "r", lambda one: pages.number_cell(one.operators, "d")),
            ("lost us", "r", lambda one: pages.number_cell(one.room_us, ".1f")),
            name="causes",
        )
        yield pages.section("Causes", table)
    if actions:
        table = pages.columns(
            actions,
            ("action", "", lambda one: one.action),
            ("tried on", "r", lambda one: pages.number_cell(one.tried, "d")),
            ("gains on", "r", lambda one: pages.number_cell(len(one.gains), "d")),
            (
                "best",
                "r",
                lambda one: pages.number_cell(one.best if one.gains else None, ".3f", "x"),
            ),
            ("retraining", "", lambda one: "needs retraining" if one.needs_retraining else ""),
            ("gains on these", "", lambda one: element("td", ", ".join(one.gains), class_="names")),
            name="actions",
        )
        yield pages.section("Actions", table)


def _opened(number: int, path: Path, advice: ModelAdvice) -> Markup:
    profile = advice.profile
    words = f"{path.name}: {time_text(profile.model_us)} a run, {len(advice.low)} low performers"
    parts = _model(advice, prefix=f"model-{number}-")
    return element("details", element("summary", words), *parts, id=f"model-{number}", open="")


def draw_interval(estimate: SpeedupEstimate, widest: float, verdict: TrialVerdict) -> Markup:
    """Return the drawing.

    Args:
        estimate: What is drawn.
        widest: How far any end that is drawn beside it lies from 1.
        verdict: A gain is drawn in green.
    """
    reach = min(max(widest, _LEAST_WIDEST), _MOST_WIDEST)

    def x(speedup: float) -> float:
        share = (speedup - 1 + reach) / (2 * reach)
        return _MARGIN + min(max(share, 0.0), 1.0) * (_WIDTH - 2 * _MARGIN)

    middle = _HEIGHT / 2
    words = f"{estimate.median:.3f}, between {estimate.low:.3f} and {estimate.high:.3f}"
    parts = (
        element("line", class_="one", x1=x(1.0), x2=x(1.0), y1=0, y2=_HEIGHT),
        element(
            "line", class_="span", x1=x(estimate.low), x2=x(estimate.high), y1=middle, y2=middle
        ),
        element("circle", cx=x(estimate.median), cy=middle, r=4),
    )
    class_ = "interval good" if verdict is TrialVerdict.GAIN else "interval"
    return pages.drawing(_WIDTH, _HEIGHT, *parts, class_=class_, label=words)
