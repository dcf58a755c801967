"""Versions of a bank: record them, list them, go back to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import UsageError
from aoebank.model.snapshot import HistorySource
from aoebank.parameters.context import (
    AnyPath,
    Names,
    bank_in_use,
    current_author,
    current_day,
    make_filter,
    names,
)
from aoebank.parameters.param import (
    DRY_RUN,
    KEY,
    MOVE_TAG,
    OP,
    ROOT,
    SOC,
    WITH_QUARANTINED,
    Completes,
    Param,
)

if TYPE_CHECKING:
    from aoebank.history.blame import BlameResult
    from aoebank.history.log import LogResult, VerifyResult
    from aoebank.history.restore import RestoreResult, RevertResult
    from aoebank.history.snapshot import SnapshotResult, TagResult

_SOURCE = Param(
    kind=HistorySource,
    flags=("--from",),
    help="Which history; auto takes git's where the bank is committed.",
)


def _version(last: str) -> Param:
    """Return the parameter for a version, with the way to write one of git's."""
    help_ = f"Id, start of one, tag, latest~N, or {last}."
    return Param(
        kind=str,
        metavar="SNAPSHOT",
        is_argument=True,
        help=help_,
        completes=Completes.SNAPSHOT,
    )


def snapshot(
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    message: Annotated[
        str,
        Param(
            kind=str,
            flags=("--message", "-m"),
            metavar="TEXT",
            help="Why; shown by log and blame.",
        ),
    ] = "",
    tag: Annotated[str | None, Param(kind=str, metavar="NAME", help="Name it at once.")] = None,
    soc: Annotated[Names, SOC] = (),
    force: Annotated[bool, MOVE_TAG] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> SnapshotResult:
    """Record the state of a bank in `.aoebank/history.db` beside it.

    Args:
        root: Root of the bank; by default, as everywhere, the one the current directory lies in,
            else the one the environment names.

    Raises:
        BankNotFoundError: there is no such bank, or nothing of these soc_versions in it.
        HistoryError: the tag is taken.
    """
    from aoebank.history.snapshot import preview_snapshot, take_snapshot

    place, patterns = bank_in_use(root), names(soc)
    if dry_run:
        return preview_snapshot(place, soc=patterns)
    author = current_author(place)
    return take_snapshot(place, author, message=message, tag=tag, soc=patterns, force=force)


def tag(
    name: Annotated[
        str | None,
        Param(
            kind=str,
            metavar="[NAME]",
            is_argument=True,
            help="The tag; without it: list.",
            completes=Completes.TAG,
        ),
    ] = None,
    snapshot: Annotated[
        str,
        Param(
            kind=str,
            metavar="[SNAPSHOT]",
            is_argument=True,
            help="Id, start of one, tag or latest~N.",
            completes=Completes.SNAPSHOT,
        ),
    ] = "latest",
    *,
    root: Annotated[AnyPath | None, Param(kind=Path, metavar="ROOT", help=ROOT.help)] = None,
    delete: Annotated[bool, Param(help="Remove the tag.")] = False,
    force: Annotated[bool, MOVE_TAG] = False,
) -> TagResult:
    """Name a snapshot, or return the names there are.

    Raises:
        HistoryError: there is no such snapshot or tag, or the tag is taken.
        UsageError: `delete` or `force` without a name.
    """
    from aoebank.history.snapshot import add_tag, delete_tag, show_tags

    place = bank_in_use(root)
    if name is None:
        if delete or force:
            raise UsageError("needs a NAME", where="--delete" if delete else "--force")
        return show_tags(place)
    if delete:
        return delete_tag(place, name, current_author(place))
    return add_tag(place, name, snapshot, current_author(place), force=force)


def log(
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    key: Annotated[Names, KEY] = (),
    limit: Annotated[
        int | None,
        Param(
            kind=int,
            flags=("--limit", "-n"),
            least=1,
            metavar="N",
            help="At most so many versions.",
        ),
    ] = None,
    source: Annotated[HistorySource | str, _SOURCE] = HistorySource.AUTO,
) -> LogResult:
    """Return the versions of a bank, newest first, with what each changed.

    Args:
        root: Root of the bank; by default the one the current directory lies in, else the one the
            environment names.
    """
    from aoebank.history import log as verb

    wanted = make_filter(soc, op, key)
    return verb.log(bank_in_use(root), wanted=wanted, limit=limit, source=HistorySource(source))


def verify_history(root: AnyPath | None = None) -> VerifyResult:
    """Check that the snapshots of a bank are what was stored, as `aoebank log --verify` does."""
    from aoebank.history import log as verb

    return verb.verify_history(bank_in_use(root))


def blame(
    key: Annotated[
        str,
        Param(
            kind=str,
            metavar="KEY",
            is_argument=True,
            help="A key, or the start of one.",
            completes=Completes.KEY,
        ),
    ],
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    source: Annotated[HistorySource | str, _SOURCE] = HistorySource.AUTO,
) -> BlameResult:
    """Return which version brought a record, who made it, and what was there before."""
    from aoebank.history import blame as verb

    wanted = make_filter(soc, op)
    return verb.blame(bank_in_use(root), key, wanted=wanted, source=HistorySource(source))


def restore(
    version: Annotated[str, _version("git:REV")],
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    key: Annotated[Names, KEY] = (),
    with_quarantined: Annotated[bool, WITH_QUARANTINED] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> RestoreResult:
    """Put a bank, or a part of it, back to how a version has it.

    Raises:
        HistoryError: there is no such version, or it has nothing of what is asked for.
        BankPathError: a file cannot be written, or has a binary twin.
    """
    from aoebank.history.edits import change_bank
    from aoebank.history.restore import RestoreResult, plan_restore

    place, wanted = bank_in_use(root), make_filter(soc, op, key)
    today = None if with_quarantined else current_day()
    plan, kept = change_bank(
        place,
        lambda: plan_restore(place, version, wanted, today=today),
        lambda: current_author(place),
        dry_run=dry_run,
    )
    return RestoreResult(plan=plan, kept=kept)


def revert(
    version: Annotated[str, _version("git:COMMIT")],
    root: Annotated[AnyPath | None, ROOT] = None,
    *,
    soc: Annotated[Names, SOC] = (),
    op: Annotated[Names, OP] = (),
    key: Annotated[Names, KEY] = (),
    with_quarantined: Annotated[bool, WITH_QUARANTINED] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> RevertResult:
    """Take back what one version changed, record by record; later changes stay.

    Raises:
        HistoryError: there is no such version, or none before it.
        BankPathError: a file cannot be written, or has a binary twin.
    """
    from aoebank.history.edits import change_bank
    from aoebank.history.restore import RevertResult, plan_revert

    place, wanted = bank_in_use(root), make_filter(soc, op, key)
    today = None if with_quarantined else current_day()
    plan, kept = change_bank(
        place,
        lambda: plan_revert(place, version, wanted, today=today),
        lambda: current_author(place),
        dry_run=dry_run,
    )
    return RevertResult(plan=plan, kept=kept)
