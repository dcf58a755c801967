"""`aoe watch`: runs while they work, on a terminal; one look at them anywhere else."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoebank import asked_documents, make_console

if TYPE_CHECKING:
    from aoe.report.watched import WatchReport
    from aoe.runs.watching import RunWatch
    from aoebank import Report

_EVERY_S = 1.0
_LOWEST_PRIORITY = 19


def watch(
    output: Annotated[
        Path | None,
        Option(
            is_argument=True,
            help="The --output of a run, a finished one too; default is the run on this machine "
            "that began last.",
        ),
    ] = None,
    *,
    every: Annotated[
        bool, Option(flags=("--all",), help="All runs of yours that go on on this machine.")
    ] = False,
) -> Report | int:
    """Show runs until they end, or as they are now where nobody watches.

    Raises:
        OptionError: a folder and all runs are asked for.
        ResultFileError: no run has written there.
    """
    from aoe.runs.watching import RunWatch

    if every and output is not None:
        raise OptionError("--all", "given together with a folder", got=output)
    watched = RunWatch(output, every=every)
    report = _look(watched)
    if not asked_documents().is_text_alone or report.is_over or not sys.stdout.isatty():
        return report
    return _follow(watched, report)


def _look(watched: RunWatch) -> WatchReport:
    from aoe.report.watched import WatchReport

    return WatchReport(runs=watched.runs(), now=datetime.now(UTC))


def _follow(watched: RunWatch, report: WatchReport) -> int:
    """Draw runs again and again until they end; return the exit code.

    Whoever watches takes no time from what is measured.
    """
    from rich.live import Live

    os.nice(_LOWEST_PRIORITY)
    console = make_console()

    with Live(console=console, auto_refresh=False) as live:
        while True:
            width, height = console.size
            live.update(report.screen(width, height), refresh=True)
            if report.is_over:
                return report.exit_code
            time.sleep(_EVERY_S)
            report = _look(watched)
