"""`aoe inspect`: what is in a tuned model, or what a result file of gradient tuning says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoe.cli.command_options import OPTIONS
from aoe.cli.options import given_inputs
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoe.settings import environment
from aoebank import say

if TYPE_CHECKING:
    from aoe.om.file import Head, Manifest
    from aoe.profiling.comparing import ComparedProfiles
    from aoe.results.gradients import GdatReport
    from aoebank import Report


def inspect(
    file: Annotated[
        Path,
        Option(is_argument=True, help="An .om, or an aoe_result_gdat_<timestamp>_pid<N>.json."),
    ],
    *,
    html: Annotated[Path | None, replace(OPTIONS["html"], metavar=None)] = None,
    times: Annotated[
        bool, Option(help="Run an .om here, untuned and tuned: where does time go now?")
    ] = False,
    input_files: list[str] | None,
    input_sets: Path | None,
    custom_ops_library: list[Path] | None,
    require_signature: Path | None,
    dry_run: Annotated[bool, Option(help="With --html: write nothing, say what would be.")] = False,
) -> Report:
    """Show what is in a tuned model, or the timeline before and after gradient tuning.

    Raises:
        OptionError: an option is of the other kind of file, or the page would overwrite the file.
        AoeError: the file cannot be read, or nobody trusted has signed it.
    """
    if file.suffix == ".om":
        _check_page(file, html, "the tuned model")
        head, signer = _read(file, require_signature)
        compared = None
        if times:
            from aoe.profiling.run import compare_tuned

            compared = compare_tuned(
                file,
                environment(),
                inputs=given_inputs(input_files, input_sets),
                operators=tuple(custom_ops_library or ()),
                trusted=require_signature,
                on_event=lambda text: say(f"warning: {text}"),
            )
        return _inspected_model(file, head, signer, html, compared, dry_run=dry_run)
    if times or require_signature is not None:
        option = "--times" if times else "--require_signature"
        raise OptionError(option, "is of tuned models", got=file, expected="an .om")
    from aoe.report.timelines import TimelineReport
    from aoe.results.gradients import load_gdat_report

    _check_page(file, html, "the result file")
    report = load_gdat_report(file)
    if html is not None:
        _write_page(report, html, dry_run=dry_run)
    written = () if html is None else (html,)
    return TimelineReport(file=file, report=report, written=written, is_dry_run=dry_run)


def _read(file: Path, trusted: Path | None) -> tuple[Head, str]:
    """Return the head of a tuned model and who signed it, empty if that was not asked."""
    from aoe.om.file import read_head, read_signed

    return (read_head(file), "") if trusted is None else read_signed(file, trusted)


def _check_page(file: Path, html: Path | None, what: str) -> None:
    if html is not None and html.resolve() == file.resolve():
        raise OptionError("--html", f"would overwrite {what}", got=html)


def _inspected_model(
    file: Path,
    head: Head,
    signer: str,
    html: Path | None,
    compared: ComparedProfiles | None,
    *,
    dry_run: bool,
) -> Report:
    from aoe.report.tuned_model import TunedModelReport

    if html is not None:
        _write_graphs(file, head.manifest, html, compared, dry_run=dry_run)
    return TunedModelReport(
        file=file,
        manifest=head.manifest,
        written=() if html is None else (html,),
        compared=compared,
        is_dry_run=dry_run,
        is_signed=head.signature is not None,
        signer=signer,
    )


def _write_graphs(
    file: Path,
    manifest: Manifest,
    html: Path,
    compared: ComparedProfiles | None,
    *,
    dry_run: bool,
) -> None:
    from aoe.om.cases import case_manifest
    from aoe.om.graphs import graphs_of
    from aoe.report.graphs import render_graphs
    from aoe.results.files import write_text

    shown = case_manifest(manifest, 0) if manifest.cases else manifest
    page = render_graphs(shown, *graphs_of(file, manifest), compared)
    if not dry_run:
        write_text(html, page)


def _write_page(report: GdatReport, html: Path, *, dry_run: bool) -> None:
    from aoe.report.pages import render_timelines
    from aoe.results.files import write_text

    page = render_timelines(report)
    if not dry_run:
        write_text(html, page)
