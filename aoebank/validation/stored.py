"""Check banks as a revision or a snapshot has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aoebank.errors import HistoryError, UsageError
from aoebank.formats.release import Release
from aoebank.storage.sides.open import is_stored, open_side
from aoebank.storage.sides.side import StoredSide
from aoebank.validation.baseline import GIT, Known, known_of
from aoebank.validation.run import ValidateResult
from aoebank.validation.schema import find_revision_release
from aoebank.validation.source import DiskFiles, StoredFiles

Check = Callable[[list[Path], Release | None, DiskFiles], ValidateResult]


def check_stored(
    texts: Sequence[str], check: Check, *, default_root: Callable[[], Path]
) -> ValidateResult:
    """Return the result of a check of paths, revisions and snapshots alike.

    Args:
        texts: Paths, `git:REV[:PATH]` or `snapshot:REF[:ROOT]`.
        check: Checks paths as a release reads them, from where they are read; None: as their
            fields tell.
        default_root: Gives the bank of a `snapshot:REF` without a root.

    Raises:
        HistoryError: there is no such revision or snapshot.
    """
    sides = [_open(text, default_root) for text in texts]
    asked = [
        Path(text) if side is None else Path(side.place)
        for text, side in zip(texts, sides, strict=True)
    ]
    files = StoredFiles([side for side in sides if side is not None])
    return check(asked, _find_release(texts), files)


def _open(text: str, default_root: Callable[[], Path]) -> StoredSide | None:
    """Return the stored side a text means, None for a path."""
    if not is_stored(text):
        return None
    side = open_side(text, cwd=Path(), default_root=default_root)
    assert isinstance(side, StoredSide)
    return side


def _find_release(texts: Sequence[str]) -> Release | None:
    """Return the release of the headers of the one revision that is checked, if it has any."""
    revisions = {text.split(":")[1] if text.startswith(GIT) else "" for text in texts}
    revision = revisions.pop() if len(revisions) == 1 else ""
    return find_revision_release(revision, cwd=Path()) if revision else None


def open_stored_baseline(
    baseline: str, texts: Sequence[str], check: Check, *, default_root: Callable[[], Path]
) -> Known:
    """Return the findings another revision has in the same places.

    Raises:
        UsageError: the places are none of git.
        HistoryError: there is no such revision.
    """
    before = []
    for text in texts:
        kind, _, rest = text.partition(":")
        if not baseline.startswith(GIT) or f"{kind}:" != GIT:
            raise UsageError(
                "paths and stored banks have no baseline in common",
                where="--baseline",
                got=f"{baseline} for {text}",
                expected="git:REV for git:REV[:PATH], or a file of findings",
            )
        path = rest.partition(":")[2]
        before.append(f"{baseline}:{path}" if path else baseline)
    try:
        old = [open_side(text, cwd=Path(), default_root=default_root) for text in before]
    except HistoryError as error:
        error.hint = error.hint or "name a revision that has these banks"
        raise
    now = [open_side(text, cwd=Path(), default_root=default_root) for text in texts]
    pairs = zip(old, now, strict=True)
    # what is found there is told of the files that are checked, so that it is the same finding
    sides = [
        replace(side, place=own.place)
        for side, own in pairs
        if isinstance(side, StoredSide) and isinstance(own, StoredSide)
    ]
    asked = [Path(side.place) for side in sides]
    result = check(asked, _find_release(before), StoredFiles(sides))
    return known_of(baseline, result.findings)
