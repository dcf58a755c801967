"""`aoe doctor`: whether a run would go well here, and what to do if not."""

from __future__ import annotations

from pathlib import Path

import typer

from aoe.cli.elsewhere import warnings_of
from aoe.cli.options import ConfigOption, DeviceOption, JsonFlag, finish, given_configuration
from aoe.settings import environment


def command(
    context: typer.Context,
    config: ConfigOption = None,
    device: DeviceOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show every setting and where it comes from; check machine, tools and places."""
    from aoe.report.doctor import DoctorReport
    from aoe.runs.doctor.run import examine

    found = given_configuration(context, config)
    env = environment()
    examination = examine(found, env=env, cwd=Path.cwd(), warnings=warnings_of(env))
    report = DoctorReport(examination=examination)
    finish(report, as_json=as_json)
    raise typer.Exit(report.exit_code)
