"""`aoebank unpack`: one folder, written either way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.errors import UsageError
from aoebank.shipping.report import UnpackReport


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> UnpackReport:
    """Return the report on an unpacked bank.

    Raises:
        UsageError: the folder is given twice.
    """
    root, output = given["root"], given["output"]
    if root is not None and output is not None:
        raise UsageError("given twice: DIR and --output", where="unpack", got=f"{root}, {output}")
    return UnpackReport(result=call(root=root if output is None else output))
