"""`aoebank git`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from aoebank.cli.loading import HelpfulGroup
from aoebank.cli.options import AsJson, finish
from aoebank.report.output import write_text


class VerdictFormat(StrEnum):
    """How to write what is wrong with merges."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


group = typer.Typer(
    cls=HelpfulGroup,
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
    hook: Annotated[
        bool,
        typer.Option("--hook", help="Also stop commits while conflicts are open: pre-commit hook."),
    ] = False,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Register the merge and diff drivers, and write .gitattributes."""
    from aoebank.api.git import git_install
    from aoebank.report.git.install import InstallReport

    plan = git_install(is_global=is_global, command=command, hook=hook, dry_run=dry_run)
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
    from aoebank.api.git import git_uninstall
    from aoebank.report.git.install import InstallReport

    plan = git_uninstall(is_global=is_global, dry_run=dry_run)
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
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Only conflict files: tracked, or left open.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Tell whether git will merge the banks of this work tree record by record."""
    from aoebank.api.git import git_check
    from aoebank.report.git.install import CheckReport

    result = git_check(committed=committed, conflicts=conflicts)
    return finish(
        context, CheckReport(result=result, are_conflicts_only=conflicts), as_json=as_json
    )


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
    from aoebank.api.git import git_verify_merge
    from aoebank.report.git.verify import VerifyMergeReport

    verdicts = git_verify_merge(
        *(revisions or ()),
        policy=policy,
        untimed=untimed,
        noise=noise,
        override=override or (),
        allow_choice=allow_choice,
    )
    report = VerifyMergeReport(verdicts=verdicts)
    if output is VerdictFormat.GITHUB and not as_json:
        write_text("".join(f"{line}\n" for line in report.annotations()))
        return report.exit_code
    return finish(context, report, as_json=as_json or output is VerdictFormat.JSON)
