"""`aoebank log`: versions, or the check of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.history.api import verify_history
from aoebank.history.log_report import LogReport, VerifyReport


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> LogReport | VerifyReport:
    """Return the report on the versions of a bank, or on the check of its snapshots."""
    if given["verify"]:
        return VerifyReport(result=verify_history(given["root"]))
    return LogReport(result=call())
