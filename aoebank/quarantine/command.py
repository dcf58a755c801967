"""`aoebank quarantine list`: the root stands above the entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.parameters.context import bank_root
from aoebank.quarantine.report import QuarantineListReport


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> QuarantineListReport:
    """Return the report on what is in quarantine."""
    root = bank_root(given["root"])
    return QuarantineListReport(root=root, entries=call(root=root))
