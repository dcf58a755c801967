"""`aoebank merge-driver`: silent where git expects silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.git.driver_report import DriverReport


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> DriverReport | int:
    """Return the report on a merge, or the exit code where there is nothing to tell."""
    report = DriverReport(outcome=call(verbose=given["as_json"]))
    if report.is_silent and not given["as_json"]:  # git starts us for every file: rich costs time
        return report.exit_code
    return report
