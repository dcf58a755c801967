"""A profile, or two of them, as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aoe.profiling.comparing import ComparedProfiles
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.report.profiling.charts import compared_bars, kind_bars
from aoe.report.profiling.comparison import names_text
from aoe.report.profiling.parts import (
    names_cell,
    network_section,
    page_footer,
    roofline_section,
    skip_link,
    subtitle,
)
from aoe.report.profiling.text import figure, here, result_text
from aoe.report.quantities import time_text
from aoebank import Markup, element, html_page, pages


def render_profile(profile: ProfiledModel) -> str:
    """Return the page of one profile."""
    links = _links(profile)
    return html_page(
        f"{profile.model}: profile",
        skip_link("to the table of operators", "#operators"),
        pages.page_header(profile.model, subtitle(profile)),
        _tiles(profile),
        pages.section("Time by kind of operator", kind_bars(profile.kinds())),
        roofline_section(profile, links),
        network_section(profile, links),
        _operators(profile),
        *_threads(profile),
        *_fusion(profile.fusion),
        page_footer(profile),
    )


def render_comparison(compared: ComparedProfiles) -> str:
    """Return the page of two profiles; the graph and the table of operators are of the second."""
    before, after = compared.before, compared.after
    links = _links(after)
    return html_page(
        f"{before.model} and {after.model}: profiles",
        skip_link("to the table of operators", "#operators"),
        pages.page_header(f"{before.model} \u2192 {after.model}", subtitle(after)),
        _compared_tiles(compared),
        *_doubts(compared),
        pages.section("Time by kind of operator", compared_bars(compared.kinds())),
        roofline_section(after, links, before.operators),
        _changes(compared),
        network_section(after, links),
        _operators(after),
        page_footer(after),
    )


def _links(profile: ProfiledModel) -> dict[str, str]:
    return {operator.name: f"#op-{at}" for at, operator in enumerate(profile.operators)}


# ---- tiles ----


def _tiles(profile: ProfiledModel) -> Markup:
    share = profile.lost_us / (profile.operators_us or 1.0)
    found = [
        (time_text(profile.model_us), "a run (median)", ""),
        (time_text(profile.model_min_us), "shortest run", ""),
        (time_text(profile.lost_us), f"lost, {share:.0%} of the operators", "bad"),
        (str(len(profile.operators)), "operators", ""),
        (f"{profile.peak.flops_per_us / 1e3:.0f} GF/s", "the machine at its best", ""),
    ]
    if profile.best_threads is not None:
        found.append((str(profile.best_threads), "threads are fastest", "note"))
    return pages.tiles(found)


def _compared_tiles(compared: ComparedProfiles) -> Markup:
    before, after = compared.before, compared.after
    good = "good" if (compared.speedup or 0) > 1 else "bad"
    found = (
        (time_text(before.model_us), "a run before", ""),
        (time_text(after.model_us), "a run after", ""),
        (f"{figure(compared.speedup, '.2f')}x", "as fast", good),
        (time_text(before.lost_us), "lost before", ""),
        (time_text(after.lost_us), "lost after", ""),
        (f"{len(before.operators)} \u2192 {len(after.operators)}", "operators", ""),
    )
    return pages.tiles(found)


def _doubts(compared: ComparedProfiles) -> Iterator[Markup]:
    if compared.doubts:
        yield pages.section("Not to be compared", pages.listing(compared.doubts), class_="problems")


# ---- tables ----


def _operators(profile: ProfiledModel) -> Markup:
    places = {operator.name: at for at, operator in enumerate(profile.operators)}
    heads = (
        "operator",
        "computes",
        "result",
        "us",
        "lost us",
        "of peak",
        "GF/s",
        "GB/s",
        "bound by",
        "warm us",
        "threads",
    )
    rows = (
        pages.row(*_operator_cells(operator), id=f"op-{places[operator.name]}")
        for operator in profile.by_lost_time()
    )
    rows_of = pages.table(heads, rows, range(3, 8), "operators")
    return element("div", pages.section("Operators by lost time", rows_of), id="operators")


def _operator_cells(operator: OperatorProfile) -> Iterator[str | Markup]:
    yield names_cell(operator)
    yield operator.kind
    yield result_text(operator)
    yield pages.number_cell(operator.median_us, ".1f")
    yield pages.number_cell(operator.lost_us, ".1f")
    share = operator.peak_share
    yield pages.number_cell(None if share is None else 100 * share, ".0f", " %")
    yield pages.number_cell(operator.gflops_per_s, ".1f")
    yield pages.number_cell(operator.gbytes_per_s, ".1f")
    yield operator.bound.value if operator.work is not None else "-"
    yield pages.number_cell(operator.warm_us, ".1f")
    yield pages.number_cell(operator.best_threads, "d")


def _changes(compared: ComparedProfiles) -> Markup:
    rows = (
        pages.row(
            element("td", names_text(one), class_="names"),
            one.kind,
            pages.number_cell(one.before_us if one.before else None, ".1f"),
            pages.number_cell(one.after_us if one.after else None, ".1f"),
            pages.number_cell(one.speedup, ".2f", "x"),
        )
        for one in compared.operators
    )
    heads = ("nodes", "compute", "before us", "after us", "speed-up")
    rows_of = pages.table(heads, rows, range(2, 5), "changes")
    return pages.section("What has changed", rows_of)


def _threads(profile: ProfiledModel) -> Iterator[Markup]:
    if profile.best_threads is None:
        return
    best = [operator.best_threads for operator in profile.operators]
    rows = (
        pages.row(
            element("td", str(threads)),
            pages.number_cell(us, ".1f"),
            pages.number_cell(float(best.count(threads)), ".0f"),
        )
        for threads, us in sorted(profile.model_us_by_threads.items())
    )
    heads = ("threads", "us a run", "operators that are fastest with them")
    yield pages.section("Threads that pay", pages.table(heads, rows, range(1, 3), "threads"))


def _fusion(fusion: Sequence[FusionLimit] | None) -> Iterator[Markup]:
    if fusion is None:
        return
    rows = (
        pages.row(
            element("td", one.fusion_class),
            element("td", ", ".join(one.op_names), class_="names"),
            one.stop.value,
            f"{one.stopped_at} ({one.stopped_type})" if one.stopped_at else "-",
            pages.number_cell(float(one.without_limits), ".0f"),
            here(one),
        )
        for one in sorted(fusion, key=lambda one: not one.stop.is_limit)
    )
    heads = ("class", "nodes", "ended by", "at", "nodes with O1", "here")
    rows_of = pages.table(heads, rows, range(4, 5), "fusions")
    yield pages.section("AOE's fusion limits", rows_of)
