"""Advice on a model, or on a directory of them, as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aoe.advice.causes import LowPerformer
from aoe.advice.folder import FolderAdvice
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.report.advice.charts import draw_interval
from aoe.report.advice.folder import SUMMARY_COLUMNS, summary_row
from aoe.report.advice.text import by_gain, causes_text, verdict_text
from aoe.report.profiling.charts import kind_bars
from aoe.report.profiling.parts import (
    names_cell,
    network_section,
    page_footer,
    roofline_section,
    skip_link,
    subtitle,
)
from aoe.report.quantities import time_text
from aoebank import Markup, element, html_page, pages

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
    rows = (pages.row(*_action_cells(one, widest)) for one in shown)
    heads = ("action", "speed-up", "verdict", "95 % interval", "drawn", "about us", "what")
    return pages.section(title, *notes, pages.table(heads, rows, range(1, 2), "actions"))


def _action_cells(one: TriedAction, widest: float) -> Iterator[str | Markup]:
    estimate = one.estimate
    yield one.action
    yield pages.number_cell(None if estimate is None else estimate.median, ".3f", "x")
    yield element("td", verdict_text(one), class_=_CLASSES[one.verdict] or False)
    between = "-" if estimate is None else f"{estimate.low:.3f} to {estimate.high:.3f}"
    yield element("td", between, class_="interval-words")
    yield element("td", "" if estimate is None else draw_interval(estimate, widest, one.verdict))
    yield pages.number_cell(one.room_us, ".1f")
    yield element("td", f"{one.what} ({one.reason})" if one.reason else one.what, class_="words")


def _low(advice: ModelAdvice, prefix: str) -> Markup:
    if not advice.low:
        return pages.section("Low performers", element("p", "No operator loses 1 % of the time."))
    rows = (
        pages.row(*_low_cells(one), id=f"{prefix}op-{number}")
        for number, one in enumerate(advice.low)
    )
    heads = ("operator", "computes", "us", "lost us", "of peak", "cause")
    return pages.section("Low performers", pages.table(heads, rows, range(2, 5), "low performers"))


def _low_cells(one: LowPerformer) -> Iterator[str | Markup]:
    operator = one.operator
    share = operator.peak_share
    yield names_cell(operator)
    yield operator.kind
    yield pages.number_cell(operator.median_us, ".1f")
    yield pages.number_cell(operator.lost_us, ".1f")
    yield pages.number_cell(None if share is None else 100 * share, ".0f", " %")
    yield element("td", causes_text(one) or "none that is known", class_="words")


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
        found_causes = (
            pages.row(
                element("td", one.cause),
                pages.number_cell(one.models, "d"),
                pages.number_cell(one.operators, "d"),
                pages.number_cell(one.room_us, ".1f"),
            )
            for one in causes
        )
        names = ("cause", "models", "operators", "lost us")
        yield pages.section("Causes", pages.table(names, found_causes, range(1, 4), "causes"))
    if actions:
        found_actions = (
            pages.row(
                element("td", one.action),
                pages.number_cell(one.tried, "d"),
                pages.number_cell(len(one.gains), "d"),
                pages.number_cell(one.best if one.gains else None, ".3f", "x"),
                "needs retraining" if one.needs_retraining else "",
                element("td", ", ".join(one.gains), class_="names"),
            )
            for one in actions
        )
        heads = ("action", "tried on", "gains on", "best", "retraining", "gains on these")
        yield pages.section("Actions", pages.table(heads, found_actions, range(1, 4), "actions"))


def _opened(number: int, path: Path, advice: ModelAdvice) -> Markup:
    profile = advice.profile
    words = f"{path.name}: {time_text(profile.model_us)} a run, {len(advice.low)} low performers"
    parts = _model(advice, prefix=f"model-{number}-")
    return element("details", element("summary", words), *parts, id=f"model-{number}", open="")
