"""`aoe inspect`: what is in a tuned model, or what a result file of gradient tuning says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoe.cli.options import (
    InputFiles,
    InputSets,
    JsonFlag,
    OperatorsOption,
    SignatureOption,
    finish,
    given_inputs,
)
from aoe.errors import OptionError
from aoe.settings import environment
from aoebank import say

if TYPE_CHECKING:
    from aoe.om.file import Head, Manifest
    from aoe.profiling.comparing import ComparedProfiles
    from aoe.results.gradients import GdatReport


def command(
    file: Annotated[
        Path, typer.Argument(help="An .om, or an aoe_result_gdat_<timestamp>_pid<N>.json.")
    ],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained HTML page here.")
    ] = None,
    times: Annotated[
        bool,
        typer.Option("--times", help="Run an .om here, untuned and tuned: where does time go now?"),
    ] = False,
    inputs: InputFiles = None,
    input_sets: InputSets = None,
    custom_ops_library: OperatorsOption = None,
    require_signature: SignatureOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --html: write nothing, say what would be.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what is in a tuned model, or the timeline before and after gradient tuning.

    The page shows the graph, or the timeline, before and after tuning. Nothing in a tuned model is
    run, unless --times asks for it.
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
                inputs=given_inputs(inputs, input_sets),
                operators=tuple(custom_ops_library or ()),
                trusted=require_signature,
                tell=lambda text: say(f"warning: {text}"),
            )
        _inspect_model(file, head, signer, html, compared, dry_run=dry_run, as_json=as_json)
        return
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
    timelines = TimelineReport(file=file, report=report, written=written, is_dry_run=dry_run)
    finish(timelines, as_json=as_json)


def _read(file: Path, trusted: Path | None) -> tuple[Head, str]:
    """Return the head of a tuned model and who signed it, empty if that was not asked."""
    from aoe.om.file import read_head, read_signed

    return (read_head(file), "") if trusted is None else read_signed(file, trusted)


def _check_page(file: Path, html: Path | None, what: str) -> None:
    if html is not None and html.resolve() == file.resolve():
        raise OptionError("--html", f"would overwrite {what}", got=html)


def _inspect_model(
    file: Path,
    head: Head,
    signer: str,
    html: Path | None,
    compared: ComparedProfiles | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from aoe.report.tuned_model import TunedModelReport

    if html is not None:
        _write_graphs(file, head.manifest, html, compared, dry_run=dry_run)
    report = TunedModelReport(
        file=file,
        manifest=head.manifest,
        written=() if html is None else (html,),
        compared=compared,
        is_dry_run=dry_run,
        is_signed=head.signature is not None,
        signer=signer,
    )
    finish(report, as_json=as_json)


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
