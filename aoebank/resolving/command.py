"""`aoebank resolve`: whose readers are meant if nobody said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.model.resolution import Reader
from aoebank.report.output import say
from aoebank.resolving.report import ResolveReport
from aoebank.storage.readers.environment import current_environment
from aoebank.storage.readers.toolkit import find_toolkit

_CANN = ("soc", "writer", "shape", "record", "op_bank_path", "mdl_bank_path", "opp_path")


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> ResolveReport:
    """Return the report on the places of banks."""
    readers = given["reader"]
    if not readers and not any(given[name] for name in _CANN) and not _has_toolkit():
        readers = [Reader.HOST]
    return ResolveReport(result=call(reader=readers), explain=given["explain"])


def _has_toolkit() -> bool:
    """Tell whether CANN's readers can be meant; if not, say so: nobody asked for less."""
    if find_toolkit(current_environment()):
        return True
    say("no CANN toolkit here: this is what aoe would use; --soc or --reader asks CANN's readers")
    return False
