"""Check banks as a revision or a snapshot has them: in a scratch folder, told by their names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoebank.errors import HistoryError, UsageError
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.release import Release
from aoebank.model.finding import Finding
from aoebank.storage.binary_caches import binary_cache_of
from aoebank.storage.quarantine import FILE, FOLDER
from aoebank.storage.sides.open import is_stored, open_side
from aoebank.storage.sides.side import StoredSide
from aoebank.storage.writing.atomic import write_scratch
from aoebank.validation.baseline import GIT, Known, known_of
from aoebank.validation.run import ValidateResult
from aoebank.validation.schema import find_revision_release

Check = Callable[[list[Path], Release | None], ValidateResult]


def check_stored(
    texts: Sequence[str], check: Check, *, default_root: Callable[[], Path]
) -> ValidateResult:
    """Return the result of a check of paths, revisions and snapshots alike.

    Args:
        texts: Paths, `git:REV[:PATH]` or `snapshot:REF[:ROOT]`.
        check: Checks paths as a release reads them; None: as their fields tell.
        default_root: Gives the bank of a `snapshot:REF` without a root.

    Raises:
        HistoryError: there is no such revision or snapshot.
    """
    with tempfile.TemporaryDirectory(prefix="aoebank-stored-") as scratch:
        top = Path(scratch).resolve()
        asked, places = [], {}
        for number, text in enumerate(texts):
            if not is_stored(text):
                asked.append(Path(text))
                continue
            side = open_side(text, cwd=Path(), default_root=default_root)
            assert isinstance(side, StoredSide)
            folder = top / str(number)
            asked.append(_extract(side, folder))
            places[folder] = side.place
        return _renamed(check(asked, _find_release(texts)), places)


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
        result = check_stored(before, check, default_root=default_root)
    except HistoryError as error:
        error.hint = error.hint or "name a revision that has these banks"
        raise
    sides = [open_side(text, cwd=Path(), default_root=default_root) for text in (*texts, *before)]
    names = [side.place for side in sides if isinstance(side, StoredSide)]
    now, then = names[: len(texts)], names[len(texts) :]
    pairs = dict(zip(map(Path, then), now, strict=True))
    return known_of(baseline, _renamed(result, pairs).findings)


def _extract(side: StoredSide, folder: Path) -> Path:
    """Write the banks of a side and what stands beside them; return what to check."""
    names, _ = side.listing()
    beside = {f"{name}{SUFFIX}" for name in names} | {f"{FOLDER}/{FILE}"}
    beside |= {
        binary_cache.as_posix()
        for name in names
        if (binary_cache := binary_cache_of(Path(name))) is not None
    }
    folder.mkdir()
    for name in sorted({*names} | (beside & side.contents.keys()) | side.closed.keys()):
        is_closed = name in side.closed  # the check tells
        write_scratch(folder / name, None if is_closed else side.read(side.contents[name]))
    return folder if side.is_tree else folder / names[0]


def _renamed(result: ValidateResult, places: dict[Path, str]) -> ValidateResult:
    """Return a result with folders called otherwise, in every text."""
    return replace(
        result,
        findings=tuple(_renamed_finding(finding, places) for finding in result.findings),
        checked=tuple(_renamed_path(path, places) for path in result.checked),
    )


def _renamed_finding(finding: Finding, places: dict[Path, str]) -> Finding:
    location = replace(finding.location, path=_renamed_path(finding.location.path, places))
    words = (finding.message, finding.got, finding.expected, finding.hint)
    message, got, expected, hint = (_renamed_text(word, places) for word in words)
    return replace(
        finding,
        location=location,
        message=message or "",
        got=got,
        expected=expected,
        hint=hint or "",
    )


def _renamed_path(path: Path, places: dict[Path, str]) -> Path:
    for folder, place in places.items():
        if path.is_relative_to(folder):
            return Path(place, path.relative_to(folder))
    return path


def _renamed_text(text: str | None, places: dict[Path, str]) -> str | None:
    for folder, place in _longest_first(places):
        text = text and text.replace(str(folder), place)
    return text


def _longest_first(places: dict[Path, str]) -> Iterator[tuple[Path, str]]:
    yield from sorted(places.items(), key=lambda pair: -len(str(pair[0])))
