"""`aoe inspect`: draw what a result file of gradient tuning says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aoe.cli.options import JsonFlag
from aoe.errors import UsageError

if TYPE_CHECKING:
    from aoe.results.gradients import GdatReport


def inspect(
    file: Annotated[Path, typer.Argument(help="An aoe_result_gdat_<timestamp>_<pid>.json.")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained HTML page here.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --html: write nothing, say what would be.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the timeline of backward and communication, before and after gradient tuning."""
    from aoe.results.gradient_reading import load_gdat_report

    if html is not None and html.resolve() == file.resolve():
        raise UsageError("--html", "would overwrite the result file", got=html)
    report = load_gdat_report(file)
    written = _write_page(report, html, dry_run=dry_run) if html is not None else None
    if as_json:
        typer.echo(json.dumps(_document(file, report, written)))
        return
    from aoe.report.timelines.text import print_report

    print_report(report)
    if html is not None:
        typer.echo(f"{'would write' if dry_run else 'wrote'} {html}")


def _write_page(report: GdatReport, html: Path, *, dry_run: bool) -> Path | None:
    from aoe.report.timelines.page import render_page
    from aoe.results.files import write_text

    page = render_page(report)
    if dry_run:
        return None
    write_text(html, page)
    return html


def _document(file: Path, report: GdatReport, written: Path | None) -> dict[str, Any]:
    from aoe.results.gradients import gdat_report_to_json

    _, section = gdat_report_to_json(report)
    return {
        "schema": "aoe.inspect/1",
        "file": str(file),
        "html": str(written) if written is not None else None,
        "tuning_name": report.tuning_name,
        "result": section["GDAT"],
    }
