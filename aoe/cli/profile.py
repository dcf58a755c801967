"""`aoe profile`: where the time of a model goes, and what became of it between two profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aoe.cli.options import profile_settings
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoebank import say

if TYPE_CHECKING:
    from aoe.profiling.figures import ProfiledModel
    from aoebank import Report


def profile(
    model: Annotated[Path | None, Option(is_argument=True, help="A model file, or an .om.")] = None,
    *,
    compare: Annotated[
        tuple[Path, Path] | None,
        Option(
            metavar="A B",
            help="Instead of a model: two profiles written with --json, before and after.",
        ),
    ] = None,
    options: Mapping[str, Any],
    runs: Annotated[
        int, Option(least=1, metavar="N", help="Runs for each number of threads.")
    ] = 10,
    fewer_threads: Annotated[
        bool,
        Option(
            flags=("--threads_that_pay/--one_thread_count",),
            help="Run it with fewer threads, too, to see which number pays.",
        ),
    ] = True,
    warm: Annotated[
        bool, Option(help="Time the slowest operators alone, too, operands in the caches.")
    ] = False,
    fusion: Annotated[
        bool, Option(help="Say where AOE's classes of fusions apply, and what stopped them.")
    ] = False,
    trace: Annotated[
        Path | None, Option(metavar="FILE", help="Write one run for ui.perfetto.dev.")
    ] = None,
    dry_run: Annotated[
        bool, Option(help="With --trace or a FILE: write nothing, say what would be.")
    ] = False,
    seed: int,
) -> Report:
    """Show where the time of a model goes, operator by operator, and how much is lost."""
    _check(model, compare, trace)
    if compare is not None:
        return _compared(compare, dry_run=dry_run)
    assert model is not None
    from aoe.profiling.run import profile_file
    from aoe.report.profiles import ProfileReport

    settings = profile_settings(
        model, {**options, "seed": seed}, runs=runs, sweeps=fewer_threads, warm=warm, fusion=fusion
    )
    found = profile_file(settings, lambda text: say(f"warning: {text}"))
    if trace is not None and not dry_run:
        _write_trace(found, trace)
    written = () if trace is None else (trace,)
    return ProfileReport(profile=found, written=written, is_dry_run=dry_run)


def _check(model: Path | None, compare: tuple[Path, Path] | None, trace: Path | None) -> None:
    """Refuse what cannot be meant.

    Raises:
        OptionError: neither a model nor profiles, or both.
    """
    if model is None and compare is None:
        raise OptionError(
            "aoe profile", "no model given", hint="aoe profile net.onnx, or --compare A.json B.json"
        )
    if model is not None and compare is not None:
        raise OptionError("--compare", "given together with a model", got=model)
    if compare is not None and trace is not None:
        raise OptionError("--trace", "is of one profile, not of two", got=trace)


def _compared(files: tuple[Path, Path], *, dry_run: bool) -> Report:
    from aoe.profiling.comparing import compare_profiles
    from aoe.profiling.document import read_profile
    from aoe.report.profiles import ProfileComparisonReport

    before, after = (read_profile(file) for file in files)
    return ProfileComparisonReport(compared=compare_profiles(before, after), is_dry_run=dry_run)


def _write_trace(profile: ProfiledModel, file: Path) -> None:
    """Write a run as a trace.

    Raises:
        OutputError: the file cannot be written.
    """
    from aoe.report.profiles import trace_document
    from aoe.results.files import write_json

    write_json(file, trace_document(profile))
