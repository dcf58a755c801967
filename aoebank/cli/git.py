"""`aoebank git`"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.storage.readers.environment import current_environment

if TYPE_CHECKING:
    from aoebank.ops.merge.policy import MergeRules


class VerdictFormat(StrEnum):
    """How to write what is wrong with merges."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


group = typer.Typer(
    help="Let git merge and show banks record by record, and check merges it made.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Global: TypeAlias = Annotated[
    bool, typer.Option("--global", help="For all repositories of this user, not for this one.")
]
_DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written, write nothing.")
]


@group.command("install")
def install(
    context: typer.Context,
    is_global: _Global = False,
    command: Annotated[
        str,
        typer.Option(
            "--command", metavar="TEXT", help="How git starts aoebank, where it is not on its PATH."
        ),
    ] = "aoebank",
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Register the merge and diff drivers, and write .gitattributes."""
    from aoebank.ops.git.install import apply_plan, plan_install
    from aoebank.report.git.install import InstallReport
    from aoebank.storage.git.config import Scope

    scope = Scope.GLOBAL if is_global else Scope.LOCAL
    plan = plan_install(scope, cwd=Path.cwd(), env=current_environment(), command=command)
    if not dry_run:
        apply_plan(plan)
    report = InstallReport(plan=plan, is_dry_run=dry_run)
    return finish(context, report, as_json=as_json)


@group.command("uninstall")
def uninstall(
    context: typer.Context,
    is_global: _Global = False,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Take the drivers and our lines of .gitattributes out again."""
    from aoebank.ops.git.install import apply_plan, plan_uninstall
    from aoebank.report.git.install import InstallReport
    from aoebank.storage.git.config import Scope

    scope = Scope.GLOBAL if is_global else Scope.LOCAL
    plan = plan_uninstall(scope, cwd=Path.cwd(), env=current_environment())
    if not dry_run:
        apply_plan(plan)
    report = InstallReport(plan=plan, is_dry_run=dry_run, verb="uninstall")
    return finish(context, report, as_json=as_json)


@group.command("check")
def check(
    context: typer.Context,
    committed: Annotated[
        bool,
        typer.Option(
            "--committed", help="Only what is committed, not the settings of this clone: for CI."
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Tell whether git will merge the banks of this work tree record by record."""
    from aoebank.ops.git.check import check_git
    from aoebank.report.git.install import CheckReport

    result = check_git(Path.cwd(), is_committed_only=committed)
    return finish(context, CheckReport(result=result), as_json=as_json)


@group.command("verify-merge")
def verify_merge(
    context: typer.Context,
    revisions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REV|RANGE]...",
            show_default=False,
            help="Merge commits, or ranges of them such as main..HEAD; default HEAD.",
        ),
    ] = None,
    output: Annotated[
        VerdictFormat, typer.Option("--format", help="How to write what is wrong.")
    ] = VerdictFormat.TEXT,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="POLICY",
            show_default=False,
            help="As for aoebank merge; default: aoebank.merge.policy of git config.",
        ),
    ] = "",
    untimed: Annotated[
        str,
        typer.Option(
            "--untimed",
            metavar="POLICY",
            show_default=False,
            help="For records without comparable times.",
        ),
    ] = "",
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            metavar="SHARE",
            show_default=False,
            help="Gap between two times that says nothing, such as 3%.",
        ),
    ] = "",
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="PATTERN:POLICY",
            show_default=False,
            help="Policy of some records, such as op=MatMulV3:theirs; repeat it.",
        ),
    ] = None,
    allow_choice: Annotated[
        bool,
        typer.Option(
            "--allow-choice",
            help="A key both sides changed may have either "
            "side's record, whatever the policy says.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Merge the banks of merge commits again and compare with what was committed."""
    from aoebank.ops.git.verify import verify_merges
    from aoebank.report.git.verify import VerifyMergeReport

    rules = _rules(policy, untimed, noise, override or [])
    verdicts = verify_merges(
        revisions or ["HEAD"], cwd=Path.cwd(), rules=rules, may_choose=allow_choice
    )
    report = VerifyMergeReport(verdicts=verdicts)
    if output is VerdictFormat.GITHUB and not as_json:
        print("\n".join(report.annotations()))
        return report.exit_code
    return finish(context, report, as_json=as_json or output is VerdictFormat.JSON)


def _rules(policy: str, untimed: str, noise: str, overrides: list[str]) -> MergeRules:
    """Return the rules of git's settings, with what this call says instead."""
    from dataclasses import replace

    from aoebank.ops.git.rules import parse_policy, parse_untimed, read_rules
    from aoebank.ops.merge.policy import parse_noise, parse_override

    rules = read_rules(Path.cwd())
    return replace(
        rules,
        policy=parse_policy(policy) if policy else rules.policy,
        untimed=parse_untimed(untimed) if untimed else rules.untimed,
        noise_ratio=parse_noise(noise) if noise else rules.noise_ratio,
        overrides=tuple(map(parse_override, overrides)) or rules.overrides,
    )
