"""Findings that were there before: of a git revision, or of a document written earlier.

A finding is known by its file, the record it is in, and what it says, not by its line, so that
records may move. Of equal ones as many are known as there were. Below are checks of banks that a
revision or a snapshot has; the same banks in another revision are their baseline.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, HistoryError, UsageError
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import find_format
from aoebank.formats.release import Release
from aoebank.model.finding import Finding
from aoebank.storage.git.long_lived import ObjectReader
from aoebank.storage.git.program import find_work_tree, get_commit, read_blobs
from aoebank.storage.quarantine import FILE as QUARANTINE
from aoebank.storage.sides.git import list_files
from aoebank.storage.sides.open import is_stored, open_side
from aoebank.storage.sides.side import StoredSide
from aoebank.storage.writing.atomic import write_scratch
from aoebank.validation.built_in import BuiltInBank
from aoebank.validation.run import ValidateResult, validate
from aoebank.validation.schema import find_revision_release
from aoebank.validation.source import DiskFiles, StoredFiles

GIT = "git:"
SCHEMA = "aoebank.validate/1"
_LINE = re.compile(r"\bline \d+")
_NUMBER = re.compile(r"/\d+(?=/|$)")
_Identity = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Findings of before, counted by what they say; `label` names where they are from."""

    label: str
    identities: Counter[_Identity]


def find_new(result: ValidateResult, known: Known) -> ValidateResult:
    """Return a result without the findings that are known; `known` counts those."""
    left = known.identities.copy()
    new = []
    for finding in result.findings:
        name = _identity(finding)
        if left[name] > 0:
            left[name] -= 1
        else:
            new.append(finding)
    return replace(result, findings=tuple(new), known=len(result.findings) - len(new))


def known_of(label: str, findings: Iterable[Finding]) -> Known:
    """Return findings as known ones."""
    return Known(label=label, identities=Counter(map(_identity, findings)))


def open_document(path: Path) -> Known:
    """Return the findings of what `aoebank validate --json` wrote.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it is no such document.
    """
    return Known(label=str(path), identities=Counter(_of_document(path)))


def open_baseline(
    text: str,
    *,
    paths: Sequence[Path],
    result: ValidateResult,
    built_in: BuiltInBank,
    today: date | None,
) -> Known:
    """Return the findings of a baseline.

    Args:
        text: `git:REV`, or a file with what `aoebank validate --json` wrote.
        paths: What was checked.
        result: What was found there now; files it has nothing about are not read from git.

    Raises:
        HistoryError: no work tree, or no such revision.
        BankNotFoundError: there is no such file.
        BankFormatError: it is no such document.
    """
    if text.startswith(GIT):
        revision = text.removeprefix(GIT)
        findings = _of_revision(revision, paths, result, built_in=built_in, today=today)
    else:
        return open_document(Path(text))
    return Known(label=text, identities=Counter(findings))


def _of_document(path: Path) -> Iterator[_Identity]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BankNotFoundError("no such baseline", path=path, expected="git:REV or a file") from (
            error
        )
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError
        raise _no_document(path) from error
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise _no_document(path)
    names = ("code", "key", "message", "got", "expected", "pointer")
    for members in document.get("findings", ()):
        if not isinstance(members, Mapping) or "path" not in members:
            raise _no_document(path)
        yield _name(Path(str(members["path"])), *(str(members.get(name, "")) for name in names))


def _no_document(path: Path) -> BankFormatError:
    return BankFormatError(
        "not a document of findings",
        path=path,
        expected=f"a JSON document with the schema {SCHEMA}",
        hint="aoebank validate PATH --json > FILE",
    )


def _of_revision(
    revision: str,
    paths: Sequence[Path],
    result: ValidateResult,
    *,
    built_in: BuiltInBank,
    today: date | None,
) -> list[_Identity]:
    """Check the same paths as a revision has them, in a temporary folder."""
    told = {_place_of(finding.location.path) for finding in result.findings}
    found: list[_Identity] = []
    with tempfile.TemporaryDirectory(prefix="aoebank-baseline-") as folder:
        root = Path(folder).resolve()
        for path in paths:
            _extract(revision, path, told, root)
        asked = [place for path in paths if (place := _inside(root, path)).exists()]
        before = validate(asked, built_in=built_in, today=today, reader=result.reader)
        for finding in before.findings:
            place = finding.location.path
            if place.is_relative_to(root):
                file = Path("/") / place.relative_to(root)
                found.append(_identity(finding, file))
    return found


def _extract(revision: str, path: Path, told: set[Path], root: Path) -> None:
    top = find_work_tree(path if path.exists() else path.parent)
    commit = get_commit(revision, cwd=top or path.absolute().parent)
    assert top is not None  # there is a commit
    wanted = {}
    below = _place_of(path)
    for name, blob in list_files(commit, "", ObjectReader(top)).blobs.items():
        place = top.resolve() / name
        is_near = place.is_relative_to(below) or place.name == QUARANTINE
        if is_near and (place in told or _is_bank_like(place)):
            wanted[place] = blob
    for place, data in zip(wanted, read_blobs(wanted.values(), cwd=top), strict=True):
        write_scratch(_inside(root, place), data)


def _is_bank_like(path: Path) -> bool:
    known = find_format(path)
    return known is not None or path.name.endswith((SUFFIX, ".bin")) or path.name == QUARANTINE


def _inside(root: Path, path: Path) -> Path:
    return root / _place_of(path).relative_to("/")


def _place_of(path: Path) -> Path:
    """Return a path without links above it; a link to a file is a file of its own."""
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def _identity(finding: Finding, path: Path | None = None) -> _Identity:
    file = path or finding.location.path
    return _name(
        file,
        finding.code,
        finding.key,
        finding.message,
        finding.got or "",
        finding.expected or "",
        finding.location.pointer,
    )


def _name(path: Path, *words: str) -> _Identity:
    *texts, pointer = words
    lines = (_LINE.sub("line", text) for text in texts)  # of another record, which may move
    return (str(_place_of(path)), *lines, _NUMBER.sub("/0", pointer))


# ---- banks as a revision or a snapshot has them ----

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
