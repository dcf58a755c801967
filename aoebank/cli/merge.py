"""`aoebank merge`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoebank.cli.options import AsJson, default_root, finish
from aoebank.errors import UsageError
from aoebank.ops.merge.policy import Incumbent, Policy, Times

if TYPE_CHECKING:
    from aoebank.ops.merge.policy import MergeRules
    from aoebank.ops.merge.run import MergeRequest
    from aoebank.storage.sides.side import Side


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
    as_json: AsJson = False,
) -> int:
    """Merge banks record by record, with a base or without."""
    from aoebank.ops.merge.policy import MergeRules, parse_noise, parse_override
    from aoebank.ops.merge.settle import is_conflict_file

    if apply is not None and is_conflict_file(apply):
        _demand_alone(sides, output, base, decisions)
        return _settle(context, apply, dry_run=dry_run, as_json=as_json)
    if untimed is Policy.KEEP_BEST:
        raise UsageError("without times there is no best", where="--untimed", got=untimed)
    rules = MergeRules(
        policy=policy,
        untimed=untimed,
        noise_ratio=parse_noise(noise),
        times=times,
        incumbent=incumbent,
        overrides=tuple(map(parse_override, override or ())),
        may_differ_in_soc=allow_other_soc,
        may_be_unrelated=allow_unrelated,
    )
    request = _request(
        sides or [],
        base,
        output,
        rules,
        drop_worse_than,
        apply,
        says_all=dry_run or as_json or decisions is not None,
        writes=not dry_run,
    )
    return _merge(context, request, decisions, dry_run=dry_run, as_json=as_json)


def _request(
    texts: list[str],
    base: str | None,
    output: str | None,
    rules: MergeRules,
    built_in: Path | None,
    apply: Path | None,
    *,
    says_all: bool,
    writes: bool,
) -> MergeRequest:
    from datetime import UTC, datetime

    from aoebank.ops.merge.destination import find_destination
    from aoebank.ops.merge.exclusions import find_exclusions
    from aoebank.ops.merge.run import MergeRequest
    from aoebank.ops.merge.saved import SavedVerdicts, load_verdicts
    from aoebank.storage.sides.open_side import open_side

    if len(texts) < 2:
        raise UsageError(
            "needs two sides or more",
            where="merge",
            got=f"{len(texts)}",
            hint="aoebank merge A B -o DST",
        )
    if writes and output is None:
        raise UsageError(
            "does not say where the result goes",
            where="merge",
            hint=f"-o DST, -o {texts[0]} for in place, or --dry-run",
        )
    cwd = Path()  # so that messages name paths as they were typed

    def side(text: str, beside: str) -> Side:
        return open_side(text, beside=beside, cwd=cwd, default_root=default_root)

    sides = tuple(
        side(text, texts[1] if number == 0 else texts[0]) for number, text in enumerate(texts)
    )
    destination = find_destination(output, sides, cwd=cwd) if output is not None else None
    return MergeRequest(
        sides=sides,
        base=side(base, texts[0]) if base is not None else None,
        rules=rules,
        destination=destination if writes else None,
        says_all=says_all,
        exclusions=find_exclusions(
            sides,
            output=Path(output) if output else None,
            built_in=built_in,
            today=datetime.now(UTC).date(),
        ),
        verdicts=load_verdicts(apply) if apply is not None else SavedVerdicts(),
    )


def _merge(
    context: typer.Context,
    request: MergeRequest,
    decisions: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    from aoebank.ops.merge.run import merge
    from aoebank.ops.merge.saved import serialize_decisions
    from aoebank.report.merge.run import MergeReport
    from aoebank.storage.writing.atomic import update_file

    result = merge(request)
    if decisions is not None:
        data = serialize_decisions(result.steps, base=result.base, ours=result.sides[0])
        update_file(decisions, lambda _: data)
    return finish(context, MergeReport(result=result, is_dry_run=dry_run), as_json=as_json)


def _settle(context: typer.Context, path: Path, *, dry_run: bool, as_json: bool) -> int:
    from datetime import UTC, datetime

    from aoebank.ops.merge.settle import settle
    from aoebank.report.merge.run import SettlementReport

    settlement = settle(path, today=datetime.now(UTC).date(), is_dry_run=dry_run)
    report = SettlementReport(settlement=settlement, is_dry_run=dry_run)
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
