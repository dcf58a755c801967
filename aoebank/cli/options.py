"""Options all commands share: JSON, colours, tracebacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from aoebank.report.output import ColorMode, Report, emit

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Write exactly one JSON document.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the options before the command decided."""

    color: ColorMode = ColorMode.AUTO
    debug: bool = False


def finish(context: typer.Context, report: Report, *, as_json: bool) -> int:
    """Write a report the way this call asked for; return the exit code."""
    from aoebank.storage.readers.environment import current_environment

    session = context.find_object(Session) or Session()
    no_color = bool(current_environment().get("NO_COLOR"))
    return emit(report, as_json=as_json, color=session.color, no_color=no_color)
