"""`aoe inspect`: what is in a tuned model, or what a result file of gradient tuning says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoe.cli.options import given_inputs
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoe.settings import environment
from aoebank import say

if TYPE_CHECKING:
    from aoe.om.file import Head
    from aoe.profiling.comparing import ComparedProfiles
    from aoebank import Report


def inspect(
    file: Annotated[
        Path,
        Option(is_argument=True, help="An .om, or an aoe_result_gdat_<timestamp>_pid<N>.json."),
    ],
    *,
    times: Annotated[
        bool, Option(help="Run an .om here, untuned and tuned: where does time go now?")
    ] = False,
    input_files: list[str] | None,
    input_sets: Path | None,
    custom_ops_library: list[Path] | None,
    require_signature: Path | None,
    dry_run: Annotated[bool, Option(help="With a FILE: write nothing, say what would be.")] = False,
) -> Report:
    """Show what is in a tuned model, or the timeline before and after gradient tuning.

    Raises:
        OptionError: an option is of the other kind of file.
        AoeError: the file cannot be read, or nobody trusted has signed it.
    """
    if file.suffix == ".om":
        head, signer = _read(file, require_signature)
        compared = None
        if times:
            from aoe.profiling.run import compare_tuned

            compared = compare_tuned(
                file,
                environment(),
                inputs=given_inputs(input_files, input_sets),
                operators=tuple(custom_ops_library or ()),
                trusted=require_signature,
                on_event=lambda text: say(f"warning: {text}"),
            )
        return _inspected_model(file, head, signer, compared, dry_run=dry_run)
    if times or require_signature is not None:
        option = "--times" if times else "--require_signature"
        raise OptionError(option, "is of tuned models", got=file, expected="an .om")
    from aoe.report.timelines import TimelineReport
    from aoe.results.gradients import load_gdat_report

    return TimelineReport(file=file, report=load_gdat_report(file), is_dry_run=dry_run)


def _read(file: Path, trusted: Path | None) -> tuple[Head, str]:
    """Return the head of a tuned model and who signed it, empty if that was not asked."""
    from aoe.om.file import read_head, read_signed

    return (read_head(file), "") if trusted is None else read_signed(file, trusted)


def _inspected_model(
    file: Path,
    head: Head,
    signer: str,
    compared: ComparedProfiles | None,
    *,
    dry_run: bool,
) -> Report:
    from aoe.report.tuned_model import TunedModelReport

    return TunedModelReport(
        file=file,
        manifest=head.manifest,
        compared=compared,
        is_dry_run=dry_run,
        is_signed=head.signature is not None,
        signer=signer,
    )
