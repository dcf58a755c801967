"""`aoebank git`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from aoebank.cli.loading import HelpfulGroup
from aoebank.cli.options import AsJson, finish
from aoebank.cli.verbs import add_members
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

add_members(
    group,
    "git",
    install="Register the merge and diff drivers, and write .gitattributes.",
    uninstall="Take the drivers and our lines of .gitattributes out again.",
    check="Tell whether git will merge the banks of this work tree record by record.",
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
