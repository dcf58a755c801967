"""`aoebank diff`"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.errors import UsageError
from aoebank.report.output import write_error, write_text

if TYPE_CHECKING:
    from aoebank.report.diff.run import DiffReport


class DiffFormat(StrEnum):
    """How to write a difference."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


_SIDE = "a path, git:REV, git:REV:PATH, snapshot:REF or snapshot:REF:ROOT"


def command(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="[A]", help=f"Old side: {_SIDE}.")] = "git:HEAD",
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]", show_default=False, help="New side, likewise; default: where you are."
        ),
    ] = None,
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            metavar="RATIO",
            help="Times this close are the same; a wider recorded spread counts.",
        ),
    ] = "3%",
    fail_on_regression: Annotated[
        str | None,
        typer.Option(
            "--fail-on-regression",
            metavar="RATIO",
            show_default=False,
            help="Exit with 1 only for records slower by more than this.",
        ),
    ] = None,
    soc: Annotated[
        list[str] | None,
        typer.Option("--soc", metavar="GLOB", show_default=False, help="Only these targets."),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="GLOB", show_default=False, help="Only these op_types."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="GLOB",
            show_default=False,
            help="Only these keys, or keys that start like this.",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            show_default=False,
            help="JSON object: how often each key is used.",
        ),
    ] = None,
    no_renames: Annotated[
        bool, typer.Option("--no-renames", help="Do not look for files with another name in B.")
    ] = False,
    stat: Annotated[
        bool, typer.Option("--stat", help="Only the figures per soc_version and op_type.")
    ] = False,
    has_all: Annotated[
        bool, typer.Option("--all", help="List each record; else equal edits are told once.")
    ] = False,
    skip_broken: Annotated[
        bool,
        typer.Option("--skip-broken", help="A file that cannot be compared is told and no error."),
    ] = False,
    output: Annotated[
        DiffFormat, typer.Option("--format", help="How to write the difference.")
    ] = DiffFormat.TEXT,
    as_json: AsJson = False,
) -> int:
    """Compare two bank files or trees, record by record."""
    from aoebank.api.comparing import diff
    from aoebank.api.invocation_context import make_ratio
    from aoebank.report.diff.run import DiffReport

    if b is None and not a.startswith(("git:", "snapshot:")):
        raise UsageError("Missing argument 'B'.", hint="aoebank diff --help")
    output = _check_format(output, as_json=as_json)
    limit = fail_on_regression
    fail_on = None if limit is None else make_ratio(limit, "--fail-on-regression")
    result = diff(
        a,
        b or ".",
        noise=noise,
        soc=soc or (),
        op=op or (),
        key=key or (),
        weights=weights,
        no_renames=no_renames,
        fields=not stat,
    )
    report = DiffReport(
        result=result,
        is_stat=stat,
        has_all=has_all,
        fail_on_ratio=fail_on,
        skips_broken=skip_broken,
    )
    if output in (DiffFormat.TEXT, DiffFormat.JSON):
        return finish(context, report, as_json=output is DiffFormat.JSON)
    return _write_page(report, output)


def _check_format(output: DiffFormat, *, as_json: bool) -> DiffFormat:
    """Return the format, or raise because two are asked for."""
    if as_json and output not in (DiffFormat.TEXT, DiffFormat.JSON):
        raise UsageError("two formats asked for", where="--json", got=f"--format {output} too")
    return DiffFormat.JSON if as_json else output


def _write_page(report: DiffReport, output: DiffFormat) -> int:
    """Write a page for a browser or a pull request, errors to standard error too."""
    if output is DiffFormat.HTML:
        from aoebank.report.diff.page import diff_html as render
    else:
        from aoebank.report.diff.markdown import diff_markdown as render
    write_text(render(report))
    if report.error is not None:
        write_error(report.error)
    return report.exit_code
