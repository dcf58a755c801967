"""`aoebank validate`: options that belong together, and what is mended first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.errors import UsageError
from aoebank.model.codes import Severity
from aoebank.report.output import say
from aoebank.validation.api import fix
from aoebank.validation.report.fixes import diff_lines
from aoebank.validation.report.run import ValidateReport


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> ValidateReport:
    """Return the report on a validation, with what was mended before it.

    Raises:
        UsageError: an option has no meaning without `--fix`.
    """
    if not given["fix"] and (given["dry_run"] or given["fix_class"]):
        option = "--dry-run" if given["dry_run"] else "--fix-class"
        raise UsageError("has no meaning without --fix", where=option, hint="add --fix")
    fixes = None
    if given["fix"]:
        same = {name: given[name] for name in ("select", "ignore", "fix_class", "dry_run")}
        fixes = fix(given["paths"], **same)
    report = ValidateReport(
        result=call(),
        fail_on=Severity.NOTE if given["strict"] else given["fail_on"],
        fixes=fixes,
        is_dry_run=given["dry_run"],
        has_statistics=given["statistics"],
        has_notes=given["notes"] or bool(given["select"]),
        has_each=given["has_each"],
    )
    if given["output"] not in ("text", "json"):  # standard output is for a program's document
        for outcome in fixes or ():
            for line in diff_lines(outcome.fix):
                say(line)
    return report
