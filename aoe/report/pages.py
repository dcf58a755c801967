"""HTML pages of profiles, of advice and of gradient tuning; each is a file in `templates`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.report import charts
from aoe.report.advice import (
    SUMMARY,
    by_gain,
    causes_text,
    verdict_text,
    what_text,
)
from aoe.report.profiles import OPERATORS, here, lost_share, names_text, peak_text
from aoe.report.quantities import figure, interval_text, time_text, title_of, versions_text
from aoe.report.timelines import cost_text, judged_lines
from aoe.report.tuned_model import threads_text
from aoe.workload import KERNEL_DOMAIN
from aoebank import page_environment, plural, size_text

if TYPE_CHECKING:
    from jinja2 import Environment

    from aoe.advice.folder import FolderAdvice
    from aoe.advice.run import ModelAdvice
    from aoe.profiling.comparing import ComparedProfiles
    from aoe.profiling.figures import OperatorProfile, ProfiledModel
    from aoe.results.gradients import GdatReport


def render_profile(profile: ProfiledModel) -> str:
    """Return the page of one profile."""
    return page("profile.html", profile=profile, links=_links(profile))


def render_comparison(compared: ComparedProfiles) -> str:
    """Return the page of two profiles; the graph and the table of operators are of the second."""
    return page("comparison.html", compared=compared, links=_links(compared.after))


def render_advice(advice: ModelAdvice) -> str:
    """Return the page of advice on one model."""
    return page("advice.html", advice=advice)


def render_folder_advice(found: FolderAdvice) -> str:
    """Return the page of a directory: the summary, then a part for each model that opens."""
    failures = [f"{one.path.name}: {one.error}" for one in found.models if one.error is not None]
    return page("folder_advice.html", found=found, failures=failures)


def render_timelines(report: GdatReport) -> str:
    """Return the page of gradient tuning, with both timelines on one scale."""
    groupings = [grouping for grouping in (report.before, report.after) if grouping is not None]
    end_us = max((grouping.timeline.end_us for grouping in groupings), default=0.0) * 1.02
    judged = [*judged_lines(report)]
    return page("timelines.html", report=report, axis=charts.time_scale(end_us), judged=judged)


def page(template: str, **values: object) -> str:
    """Return a page.

    Args:
        template: Its file in `templates`.
        values: What it shows.
    """
    return _pages().get_template(template).render(values)


@cache
def _pages() -> Environment:
    functions = (
        *(plural, size_text, interval_text, time_text, title_of, versions_text, threads_text),
        *(figure, first_type, here, lost_share, names_text, peak_text),
        *(by_gain, causes_text, cost_text, low_links, verdict_text, what_text),
        *(charts.heat, charts.intensity, charts.network, charts.points, charts.roofline),
        *(charts.speedup_scale, charts.end_of, charts.node_edges, charts.node_type),
    )
    return page_environment(
        *functions,
        folder=Path(__file__).with_name("templates"),
        BOX_WIDTH=charts.BOX_WIDTH,
        BOX_HEIGHT=charts.BOX_HEIGHT,
        KERNEL_DOMAIN=KERNEL_DOMAIN,
        OPERATORS=OPERATORS,
        SUMMARY=SUMMARY,
    )


def _links(profile: ProfiledModel) -> dict[str, str]:
    """Return the link to the row of each operator, by its name."""
    return {operator.name: f"#op-{at}" for at, operator in enumerate(profile.operators)}


def low_links(advice: ModelAdvice, prefix: str) -> dict[str, str]:
    """Return the link to the row of each low performer, by the name of its operator."""
    return {one.operator.name: f"#{prefix}op-{at}" for at, one in enumerate(advice.low)}


def first_type(operator: OperatorProfile) -> str:
    """Return the type of the first node of an operator, and the number of further ones."""
    if not operator.op_types:
        return operator.op_type.rpartition(":")[2]
    more = len(operator.op_types) - 1
    return f"{operator.op_types[0]} +{more}" if more else operator.op_types[0]
