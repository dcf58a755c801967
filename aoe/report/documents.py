"""The page of a report, by its kind; a report without a page of its own is shown as its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoe.om.cases import case_manifest
from aoe.om.graphs import graphs_of
from aoe.report.advice import AdviceReport, FolderAdviceReport
from aoe.report.graphs import render_graphs
from aoe.report.pages import (
    render_advice,
    render_comparison,
    render_folder_advice,
    render_profile,
    render_timelines,
)
from aoe.report.profiles import ProfileComparisonReport, ProfileReport
from aoe.report.timelines import TimelineReport
from aoe.report.tuned_model import TunedModelReport
from aoebank import html_answer

if TYPE_CHECKING:
    from aoebank import Report


def render_report(report: Report) -> str:
    """Return the page of a report, which is its text where it has no page of its own."""
    match report:
        case ProfileReport():
            return render_profile(report.profile)
        case ProfileComparisonReport():
            return render_comparison(report.compared)
        case AdviceReport():
            return render_advice(report.advice)
        case FolderAdviceReport():
            return render_folder_advice(report.advice)
        case TimelineReport():
            return render_timelines(report.report)
        case TunedModelReport():
            manifest = report.manifest
            shown = case_manifest(manifest, 0) if manifest.cases else manifest
            return render_graphs(shown, *graphs_of(report.file, manifest), report.compared)
    return html_answer(report)
