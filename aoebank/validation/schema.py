"""Releases as readers of runtime banks: taken from headers at a git revision, or found by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankFormatError, HistoryError, UsageError
from aoebank.formats.release import Release
from aoebank.formats.releases import (
    SCHEMA,
    SUFFIX,
    TilingHeader,
    known_releases,
    make_release,
    parse_header,
    parse_release,
    serialize_release,
)
from aoebank.report.output import Report, Text
from aoebank.storage.git.program import (
    find_work_tree,
    get_commit,
    iter_blobs,
    read_blobs,
    run_git,
)


def import_release(revision: str, *, cwd: Path, name: str = "") -> Release:
    """Return the release a git revision of ops-nn is, from its `*_tuning_tiling.h` headers.

    Args:
        revision: A commit, a branch or a tag.
        cwd: Anywhere in the work tree.
        name: Of the release; `git:REV` by default.

    Raises:
        HistoryError: no work tree, no such revision, or no header in it.
        BankFormatError: a header is not written as they all are.
    """
    commit = get_commit(revision, cwd=cwd)
    top = find_work_tree(cwd) or cwd
    blobs = [blob for blob in iter_blobs(commit, cwd=top) if blob.path.endswith(SUFFIX)]
    if not blobs:
        raise HistoryError(
            "no tiling headers in this revision",
            where=f"{GIT}{revision}",
            expected=f"files named *{SUFFIX}",
            hint="name a revision of the source repository of the operators",
        )
    texts = read_blobs([blob.name for blob in blobs], cwd=top)
    headers = [_parse(Path(blob.path), data) for blob, data in zip(blobs, texts, strict=True)]
    try:
        return make_release(
            name or f"{GIT}{revision}", f"ops-nn {revision}, commit {commit}", headers
        )
    except ValueError as error:
        raise HistoryError(str(error), where=f"{GIT}{revision}") from error


def find_own_release(paths: Iterable[Path]) -> Release | None:
    """Return the release that the tiling headers in the work tree of banks describe.

    None without such headers, for banks of several work trees, and where headers are not as
    known: then the fields of the records have to tell.
    """
    folders = {path.parent for path in paths}
    tops = {find_work_tree(folder) for folder in folders}
    top = tops.pop() if len(tops) == 1 else None
    if top is None:
        return None
    names = run_git(["ls-files", "-z", "--", f":(top)*{SUFFIX}"], cwd=top).split(b"\0")
    files = [top / os.fsdecode(name) for name in names if name]
    try:
        headers = [_parse(path, path.read_bytes()) for path in files if path.is_file()]
        source = f"{len(headers)} tiling headers below {top}"
        return make_release(f"work tree {top.name}", source, headers) if headers else None
    except (BankFormatError, OSError, ValueError):
        return None


def find_revision_release(revision: str, *, cwd: Path) -> Release | None:
    """Return the release that the tiling headers of a revision describe, None without such."""
    with suppress(HistoryError, BankFormatError):
        return import_release(revision, cwd=cwd)
    return None


def get_release(text: str, *, cwd: Path) -> Release:
    """Return the release asked for.

    Args:
        text: The name of a known one (`cann-9.1.0`, `9.1.0`, `newest`), `git:REV`, or a file that
            `aoebank schema import` wrote.

    Raises:
        UsageError: there is no release of this name.
        HistoryError: there is no such revision, or no header in it.
        BankFormatError: the file is no such document.
    """
    if text.startswith(GIT):
        return import_release(text.removeprefix(GIT), cwd=cwd)
    known = {reader.name: reader for reader in known_releases()}
    for name in (text, PREFIX + text.removeprefix("v")):
        if name in known:
            return known[name]
    path = cwd / text
    if path.is_file():
        return _load(path)
    raise UsageError(
        "unknown release",
        where="--reader",
        got=text,
        expected=", ".join(known),
        hint="git:REV takes the headers of a revision",
    )


def _parse(path: Path, data: bytes) -> TilingHeader:
    try:
        return parse_header(data.decode("utf-8", errors="replace"))
    except ValueError as error:
        raise BankFormatError(f"not a tiling header as known: {error}", path=path) from error


def _load(path: Path) -> Release:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        return parse_release(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BankFormatError(
            "not a document of a release", path=path, expected=f"schema {SCHEMA}"
        ) from error


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesReport(Report):
    """The releases known by name, the newest first."""

    releases: Sequence[Release]
    schema: str = "aoebank.schema-list/1"

    def document(self) -> Mapping[str, object]:
        return {
            "releases": [
                {"name": release.name, "source": release.source, "operators": [*release.tilings]}
                for release in self.releases
            ]
        }

    def write(self, text: Text) -> None:
        rows = [(release.name, release.source) for release in self.releases]
        text.table(("release", "source"), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport(Report):
    """One release as its document, which is a data file as it stands."""

    release: Release
    schema: str = SCHEMA

    def document(self) -> Mapping[str, object]:
        document: dict[str, object] = json.loads(serialize_release(self.release))
        document.pop("schema")
        return document

    def write(self, text: Text) -> None:
        for line in serialize_release(self.release).splitlines():
            text.line(line)


GIT = "git:"
PREFIX = "cann-"
