"""`aoebank validate`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aoebank.cli.options import AsJson, BuiltIn, finish
from aoebank.errors import UsageError
from aoebank.model.codes import FixClass, Severity
from aoebank.report.output import OutputFormat, say, write_error, write_text

if TYPE_CHECKING:
    from aoebank.report.validate.run import ValidateReport


def command(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Bank files or trees, git:REV[:PATH] or snapshot:REF[:ROOT]."
        ),
    ],
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How to write the findings.")
    ] = OutputFormat.TEXT,
    fail_on: Annotated[
        Severity, typer.Option("--fail-on", help="Exit with 1 for findings this bad or worse.")
    ] = Severity.ERROR,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for any finding: --fail-on note.")
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="CODE",
            show_default=False,
            help="Report only these codes, or codes that start like this.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="CODE",
            show_default=False,
            help="Leave these out; of --select and --ignore the longer one decides.",
        ),
    ] = None,
    built_in: BuiltIn = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="git:REV|FILE",
            show_default=False,
            help="Only findings that this revision, or this --json document, does not have.",
        ),
    ] = None,
    reader: Annotated[
        str,
        typer.Option(
            "--reader",
            metavar="NAME|git:REV|FILE",
            show_default=False,
            help="Release that reads the runtime banks; by default headers or fields tell.",
        ),
    ] = "",
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Mend what is broken for a reader, and show the difference; "
            "--fix=order,text: only these classes.",
        ),
    ] = False,
    fix_class: Annotated[
        list[FixClass] | None,
        typer.Option(
            "--fix-class",
            show_default=False,
            help="As --fix=CLASS; by default bom, crlf and blank, and what --select names.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix: show the difference, write nothing.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Count findings by code, do not list them.")
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="List notes too; else they are only counted.")
    ] = False,
    has_each: Annotated[
        bool, typer.Option("--each", help="List each finding; else equal ones are told once.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check bank files and trees; tell everything that is wrong in one run."""
    from aoebank.api import checking
    from aoebank.report.validate.run import ValidateReport

    output = _check_options(output, as_json=as_json, fix=fix, dry_run=dry_run, classes=fix_class)
    codes, without = select or (), ignore or ()
    fixes = None
    if fix:
        fixes = checking.fix(
            paths, select=codes, ignore=without, fix_class=fix_class or (), dry_run=dry_run
        )
    report = ValidateReport(
        result=checking.validate(
            paths,
            select=codes,
            ignore=without,
            built_in=built_in,
            baseline=baseline,
            reader=reader,
        ),
        fail_on=Severity.NOTE if strict else fail_on,
        fixes=fixes,
        is_dry_run=dry_run,
        has_statistics=statistics,
        has_notes=notes or bool(codes),
        has_each=has_each,
    )
    if output in (OutputFormat.TEXT, OutputFormat.JSON):
        return finish(context, report, as_json=output is OutputFormat.JSON)
    return _write_for_programs(report, output)


def _check_options(
    output: OutputFormat,
    *,
    as_json: bool,
    fix: bool,
    dry_run: bool,
    classes: list[FixClass] | None,
) -> OutputFormat:
    """Return the output format, or raise because options contradict each other."""
    if as_json and output not in (OutputFormat.TEXT, OutputFormat.JSON):
        raise UsageError("two formats asked for", where="--json", got=f"--format {output} too")
    if not fix and (dry_run or classes):
        option = "--dry-run" if dry_run else "--fix-class"
        raise UsageError("has no meaning without --fix", where=option, hint="add --fix")
    return OutputFormat.JSON if as_json else output


def _write_for_programs(report: ValidateReport, output: OutputFormat) -> int:
    """Write the document alone to standard output, what was mended to standard error."""
    from aoebank.report.validate.fixes import diff_lines
    from aoebank.report.validate.run import render

    for outcome in report.fixes or ():
        for line in diff_lines(outcome.fix):
            say(line)
    write_text(render(report, output))
    if report.error is not None:
        write_error(report.error)
    return report.exit_code
