"""`aoebank merge`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.errors import UsageError
from aoebank.model.timing import Times
from aoebank.ops.merge.decisions import Incumbent, Policy


def command(
    context: typer.Context,
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B...",
            show_default=False,
            help="Files or trees: PATH, git:REV[:PATH], snapshot:REF[:ROOT]. A is ours; the "
            "others come into it one after the other.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DST",
            show_default=False,
            help="Where the result goes: a new path, or one of the sides.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--base",
            metavar="BASE",
            show_default=False,
            help="What all sides started from; makes it a three-way merge.",
        ),
    ] = None,
    policy: Annotated[
        Policy, typer.Option("--policy", help="Who wins where both changed a key.")
    ] = Policy.KEEP_BEST,
    untimed: Annotated[
        Policy,
        typer.Option("--untimed", help="Instead of keep-best where there are no two times."),
    ] = Policy.FAIL,
    noise: Annotated[
        str, typer.Option("--noise", metavar="SHARE", help="A gap up to this counts as none.")
    ] = "3%",
    times: Annotated[
        Times,
        typer.Option(
            "--times",
            help="Compare times of the same known machine (strict), of "
            "that or of machines nobody knows (alike), or any.",
        ),
    ] = Times.ALIKE,
    incumbent: Annotated[
        Incumbent,
        typer.Option("--incumbent", help="Who wins inside the noise without a base."),
    ] = Incumbent.OURS,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="PATTERN:POLICY",
            show_default=False,
            help="A policy for some: soc=, op= or key= and a shell pattern, as in "
            "op=MatMulV3:theirs. Repeatable; the last that fits counts.",
        ),
    ] = None,
    no_containment: Annotated[
        bool,
        typer.Option(
            "--no-containment",
            help="A conflict also where one side's edit contains the other's.",
        ),
    ] = False,
    no_renames: Annotated[
        bool,
        typer.Option("--no-renames", help="Take a moved file for a removed and an added one."),
    ] = False,
    drop_worse_than: Annotated[
        Path | None,
        typer.Option(
            "--drop-worse-than",
            metavar="DIR",
            show_default=False,
            help="Leave out records slower than those of this built-in bank.",
        ),
    ] = None,
    allow_other_soc: Annotated[
        bool, typer.Option("--allow-other-soc", help="Merge banks of different targets.")
    ] = False,
    allow_unrelated: Annotated[
        bool, typer.Option("--allow-unrelated", help="Take a base that shares no record.")
    ] = False,
    skip_broken: Annotated[
        bool,
        typer.Option("--skip-broken", help="Leave broken files of a tree as A has them."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the decisions, write nothing.")
    ] = False,
    decisions: Annotated[
        Path | None,
        typer.Option(
            "--decisions",
            metavar="FILE",
            show_default=False,
            help="Save all decisions, to edit them and --apply them.",
        ),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            "--apply",
            metavar="FILE",
            show_default=False,
            help="Apply edited decisions; a conflict file needs no sides.",
        ),
    ] = None,
    all_open: Annotated[
        str | None,
        typer.Option(
            "--all",
            metavar="ours|theirs",
            show_default=False,
            help="With --apply: this side for every conflict nobody decided.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Name every file that was written.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Merge banks record by record, with a base or without."""
    from aoebank.api.merging import merge, settle
    from aoebank.ops.merge.settle import is_conflict_file
    from aoebank.report.merge.run import MergeReport, SettlementReport

    if apply is not None and is_conflict_file(apply):
        _demand_alone(sides, output, base, decisions)
        settled = settle(apply, all_open=all_open, dry_run=dry_run)
        settlement = SettlementReport(settlement=settled, is_dry_run=dry_run)
        return finish(context, settlement, as_json=as_json)
    result = merge(
        *(sides or ()),
        output=output,
        base=base,
        policy=policy,
        untimed=untimed,
        noise=noise,
        times=times,
        incumbent=incumbent,
        override=override or (),
        no_containment=no_containment,
        no_renames=no_renames,
        drop_worse_than=drop_worse_than,
        allow_other_soc=allow_other_soc,
        allow_unrelated=allow_unrelated,
        skip_broken=skip_broken,
        dry_run=dry_run,
        decisions=decisions,
        apply=apply,
        all_open=all_open,
        verbose=as_json,
    )
    report = MergeReport(result=result, is_dry_run=dry_run, is_verbose=verbose)
    return finish(context, report, as_json=as_json)


def _demand_alone(
    sides: list[str] | None, output: str | None, base: str | None, decisions: Path | None
) -> None:
    if sides or output or base or decisions:
        raise UsageError(
            "a conflict file is applied to the bank beside it",
            where="--apply",
            hint="name no sides, base or output",
        )
