"""Let git merge and show banks record by record, and check merges it made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.parameters.context import AnyPath, Names, current_day, names
from aoebank.parameters.param import Param
from aoebank.storage.readers.environment import current_environment

if TYPE_CHECKING:
    from aoebank.git.check import CheckResult
    from aoebank.git.driver import DriverOutcome
    from aoebank.git.install import InstallPlan
    from aoebank.merging.decisions import MergeRules
    from aoebank.model.merge_verdict import MergeVerdict

_GLOBAL = Param(flags=("--global",), help="For all repositories of this user, not for this one.")
_DRY_RUN = Param(help="Show what would be written, write nothing.")


def git_install(
    *,
    is_global: Annotated[bool, _GLOBAL] = False,
    command: Annotated[
        str,
        Param(
            kind=str,
            metavar="TEXT",
            help="How git starts aoebank, where it is not on its PATH.",
        ),
    ] = "aoebank",
    hook: Annotated[
        bool, Param(help="Also stop commits while conflicts are open: pre-commit hook.")
    ] = False,
    mergetool: Annotated[
        bool, Param(help="Also let `git mergetool -t aoebank` settle conflicts in banks.")
    ] = False,
    formats: Annotated[
        Names,
        Param(
            kind=list[str],
            flags=("--format",),
            metavar="FORMAT",
            help="Only bank files of this format, such as vllm; may be given again.",
        ),
    ] = (),
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> InstallPlan:
    """Register the merge and diff drivers with git, and write `.gitattributes`.

    Raises:
        UsageError: there is no such format.
        HistoryError: this directory is in no git work tree.
        BankPathError: a file cannot be written.
    """
    from aoebank.git.install import apply_plan, plan_install
    from aoebank.storage.git.config import Scope

    scope = Scope.GLOBAL if is_global else Scope.LOCAL
    plan = plan_install(
        scope,
        cwd=Path.cwd(),
        env=current_environment(),
        command=command,
        has_hook=hook,
        has_tool=mergetool,
        formats=names(formats),
    )
    if not dry_run:
        apply_plan(plan)
    return plan


def git_uninstall(
    *,
    is_global: Annotated[bool, _GLOBAL] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> InstallPlan:
    """Take the drivers and our lines of `.gitattributes` out again."""
    from aoebank.git.install import apply_plan, plan_uninstall
    from aoebank.storage.git.config import Scope

    scope = Scope.GLOBAL if is_global else Scope.LOCAL
    plan = plan_uninstall(scope, cwd=Path.cwd(), env=current_environment())
    if not dry_run:
        apply_plan(plan)
    return plan


def git_check(
    *,
    committed: Annotated[
        bool, Param(help="Only what is committed, not the settings of this clone: for CI.")
    ] = False,
    conflicts: Annotated[bool, Param(help="Only conflict files: tracked, or left open.")] = False,
) -> CheckResult:
    """Check that git merges the banks of this work tree record by record.

    Raises:
        HistoryError: this directory is in no git work tree.
    """
    from aoebank.git.check import check_git

    return check_git(Path.cwd(), is_committed_only=committed, are_conflicts_only=conflicts)


def git_verify_merge(
    *revisions: Annotated[
        str,
        Param(
            kind=list[str],
            metavar="[REV|RANGE]...",
            is_argument=True,
            help="Merge commits, or ranges of them such as main..HEAD; default HEAD.",
        ),
    ],
    policy: Annotated[
        str,
        Param(
            kind=str,
            metavar="POLICY",
            help="As for aoebank merge; default: aoebank.merge.policy of git config.",
        ),
    ] = "",
    untimed: Annotated[
        str, Param(kind=str, metavar="POLICY", help="For records without comparable times.")
    ] = "",
    noise: Annotated[
        str,
        Param(
            kind=str,
            metavar="SHARE",
            help="Gap between two times that says nothing, such as 3%.",
        ),
    ] = "",
    override: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="PATTERN:POLICY",
            help="Policy of some records, such as op=MatMulV3:theirs; repeat it.",
        ),
    ] = (),
    allow_choice: Annotated[
        bool,
        Param(
            help="A key both sides changed may have either side's record, whatever the policy says."
        ),
    ] = False,
) -> tuple[MergeVerdict, ...]:
    """Merge the banks of merge commits again and compare with what was committed.

    Raises:
        HistoryError: a revision is unknown, or this directory in no git work tree.
        UsageError: a policy, a noise or an override is none.
    """
    from aoebank.git.verify import verify_merges

    rules = _rules(policy, untimed, noise, names(override))
    return verify_merges(
        list(revisions) or ["HEAD"], cwd=Path.cwd(), rules=rules, may_choose=allow_choice
    )


def _rules(policy: str, untimed: str, noise: str, overrides: tuple[str, ...]) -> MergeRules:
    """Return the rules of git's settings, with what this call says instead."""
    from aoebank.merging.decisions import (
        SECTION,
        parse_override,
        parse_policy,
        parse_untimed,
        rules_of_settings,
    )
    from aoebank.parameters.context import parse_ratio
    from aoebank.storage.git.config import list_settings

    rules = rules_of_settings(list_settings(SECTION, cwd=Path.cwd()))
    return replace(
        rules,
        policy=parse_policy(policy) if policy else rules.policy,
        untimed=parse_untimed(untimed) if untimed else rules.untimed,
        noise_ratio=parse_ratio(noise, option="--noise") if noise else rules.noise_ratio,
        overrides=tuple(map(parse_override, overrides)) or rules.overrides,
    )


def merge_driver(
    base: Annotated[
        AnyPath,
        Param(kind=Path, metavar="%O", is_argument=True, help="Common ancestor; may be empty."),
    ],
    ours: Annotated[
        AnyPath,
        Param(kind=Path, metavar="%A", is_argument=True, help="Our version, and the result."),
    ],
    theirs: Annotated[
        AnyPath, Param(kind=Path, metavar="%B", is_argument=True, help="Their version.")
    ],
    path: Annotated[
        str, Param(kind=str, metavar="%P", is_argument=True, help="Where the file will lie.")
    ],
    *,
    inner: Annotated[bool, Param(help="Merge two ancestors of a merge that has several.")] = False,
    dry_run: Annotated[bool, Param(help="Tell what would be done, write nothing.")] = False,
    verbose: bool = False,
) -> DriverOutcome:
    """Merge one bank file for git; the result takes the place of `ours`.

    Args:
        base: Common ancestor; an empty file where both sides added it.
        path: Where the file will lie, from the top of the work tree.
        verbose: Return clean decisions as values too.

    Raises:
        AoebankError: it cannot be merged; `ours` is untouched then.
    """
    from aoebank.git.driver import DriverCall, DriverFiles, run_merge_driver

    call = DriverCall(
        cwd=Path.cwd(),
        env=current_environment(),
        today=current_day(),
        is_inner=inner,
        is_dry_run=dry_run,
        verbose=verbose,
    )
    files = DriverFiles(base=Path(base), ours=Path(ours), theirs=Path(theirs), path=Path(path))
    return run_merge_driver(files, call)
