"""`aoebank diff`: which sides, and when to exit with 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.diffing.report import DiffReport
from aoebank.errors import UsageError
from aoebank.parameters.context import make_ratio


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> DiffReport:
    """Return the report on a comparison.

    Raises:
        UsageError: there is nothing to compare a path with, or a ratio is none.
    """
    if given["b"] is None and not given["a"].startswith(("git:", "snapshot:")):
        raise UsageError("Missing argument 'B'.", hint="aoebank diff --help")
    limit = given["fail_on_regression"]
    fail_on = None if limit is None else make_ratio(limit, "--fail-on-regression")
    return DiffReport(
        result=call(b=given["b"] or ".", fields=not given["stat"]),
        is_stat=given["stat"],
        has_all=given["has_all"],
        fail_on_ratio=fail_on,
        skips_broken=given["skip_broken"],
    )
