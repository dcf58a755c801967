"""`aoe doctor`: whether a run would go well here, and what to do if not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from aoe.cli.cann import warnings_of
from aoe.cli.options import given_configuration
from aoe.settings import environment

if TYPE_CHECKING:
    from aoebank import Report


def doctor(context: typer.Context, config: Path | None, device: str | None) -> Report:
    """Show every setting and where it comes from; check machine, tools and places."""
    from aoe.report.doctor import DoctorReport
    from aoe.runs.doctor.run import examine

    found = given_configuration(context, config)
    env = environment()
    return DoctorReport(
        examination=examine(found, env=env, cwd=Path.cwd(), warnings=warnings_of(env))
    )
