"""Contents of a bank tree: bank files, side-cars, left-overs, strangers."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoebank.errors import BankFormatError, BankPathError, BankPermissionError, shell_word
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, bank_folders, find_format, may_be_bank
from aoebank.formats.text.checks import is_blank, is_stub
from aoebank.storage.binary_caches import bank_of_binary_cache
from aoebank.storage.writing.atomic import NOWHERE_HINT, TEMPORARY_SUFFIX

BACKUP_SUFFIX = ".json.aoe"  # CANN's backup during a flush; one that stays is a dead flush
CONFLICT_SUFFIX = ".conflicts"  # what a merge left for a person to decide

NO_FILE = "no regular file"
NOWHERE = "link to nowhere"
_TARGET = re.compile(r"ascend\d|x86-64|aarch64|graph$", re.IGNORECASE)  # folders of a bank
_DENIED = "permission denied"
_HINTS = {NO_FILE: "move it out of the bank", NOWHERE: NOWHERE_HINT}


class FileKind(StrEnum):
    """Kind of a file in a bank tree."""

    BANK = "bank"
    SIDE_CAR = "side_car"
    LEFT_OVER = "left_over"
    LINK = "link"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One file of a tree."""

    path: Path
    kind: FileKind
    # Why it cannot be read, for `FileKind.UNREADABLE`; where it leads, for a `FileKind.LINK`.
    reason: str = ""
    # Format of a bank file. By its name alone, one that cannot be read has it too.
    format: str | None = None

    @property
    def may_hold_records(self) -> bool:
        """True for what cannot be read, but a pipe or a link to nowhere of a name without meaning.

        A file called like a bank is one, whether it can be read or not: its reader tells.
        """
        is_nothing = self.reason in (NO_FILE, NOWHERE)
        return self.kind is FileKind.UNREADABLE and not (is_nothing and is_stranger(self.path))


def iter_tree(root: Path) -> Iterator[TreeEntry]:
    """Yield every file below `root`, sorted; hidden ones are passed over.

    A folder is walked once, and links come last: one to a folder above itself, or to a folder
    that was walked before, is an entry of its own and not followed.
    """
    seen: dict[tuple[int, int], str] = {}
    closed: list[OSError] = []
    links = deque([root])
    while links:
        yield from _walk(links.popleft(), seen, links, closed)
    for error in closed:
        reason = str(error.strerror or error).lower()
        yield TreeEntry(path=Path(error.filename), kind=FileKind.UNREADABLE, reason=reason)


def _walk(
    top: Path, seen: dict[tuple[int, int], str], links: deque[Path], closed: list[OSError]
) -> Iterator[TreeEntry]:
    """Yield the files below a folder, links to folders left for later."""
    for folder, folders, names in os.walk(top, onerror=closed.append):
        try:
            status = Path(folder).stat()
        except OSError as gone:  # or closed to us, since it was listed
            gone.filename = folder
            closed.append(gone)
            folders.clear()
            continue
        before = seen.setdefault((status.st_dev, status.st_ino), folder)
        if before != folder:
            folders.clear()
            yield TreeEntry(path=Path(folder), kind=FileKind.LINK, reason=f"leads to {before}")
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for link in (path for path in map(Path(folder).joinpath, folders) if path.is_symlink()):
            if leads_back(link):
                yield TreeEntry(path=link, kind=FileKind.LINK, reason=f"leads to {link.resolve()}")
            else:
                links.append(link)
        for name in sorted(names):
            if not name.startswith(".") or name.endswith(TEMPORARY_SUFFIX):
                yield classify(Path(folder, name), is_named=False)


def iter_folders_above(path: Path) -> Iterator[Path]:
    """Yield a path and the folders above it, the nearest first.

    As far as a relative path goes it is kept, so that messages name files as people do. What stands
    before `..` in it is no folder above.
    """
    for folder in (path, *path.parents):
        yield folder
        if folder.name == "..":
            path = Path(os.path.realpath(folder))
            break
    yield from path.absolute().parents


def find_closed(entry: TreeEntry) -> BankPathError | None:
    """Return the error of a file or folder that cannot be read and may hold records.

    Passed over without a word, its records would count as not there.
    """
    return cannot_be_read(entry.path, entry.reason) if entry.may_hold_records else None


def cannot_be_read(path: Path, reason: str) -> BankPathError:
    """Return the error of a file or folder that cannot be read.

    Args:
        reason: `NO_FILE`, `NOWHERE`, or what the system says.
    """
    problem = f"cannot be read: {reason}"
    if reason == _DENIED:
        return BankPermissionError(problem, path=path, hint=f"chmod u+rX {shell_word(path)}")
    return BankPathError(problem, path=path, hint=_HINTS.get(reason, ""))


def is_stranger(path: Path) -> bool:
    """True if a name is neither that of JSON nor of a folder that holds banks.

    DVC leaves a link to nowhere in the place of a folder too.
    """
    is_folder = path.name in bank_folders() or bool(_TARGET.match(path.name))
    return not may_be_bank(path) and not is_folder


def leads_back(link: Path) -> bool:
    """True if a link points to the folder it is in, or to one above that."""
    return link.parent.resolve().is_relative_to(link.resolve())


def classify(path: Path, *, is_named: bool = True) -> TreeEntry:
    """Return the kind of a file, by its name or else by its first bytes.

    Args:
        is_named: Whether a person named this very file; of others only JSON is looked into.
    """
    if path.name.endswith((BACKUP_SUFFIX, TEMPORARY_SUFFIX)):
        return TreeEntry(path=path, kind=FileKind.LEFT_OVER)
    if path.name.endswith(SUFFIX):
        return TreeEntry(path=path, kind=FileKind.SIDE_CAR)
    known = find_format(path)
    try:
        if known is None and not path.is_file():  # a pipe would make us wait for ever
            reason = NO_FILE if path.exists() else NOWHERE
            return TreeEntry(path=path, kind=FileKind.UNREADABLE, reason=reason)
        if known is None and (is_named or may_be_bank(path)):
            known = find_format(path, _head(path))
    except OSError as error:
        reason = str(error.strerror or error).lower()
        return TreeEntry(path=path, kind=FileKind.UNREADABLE, reason=reason)
    if known is None:
        return TreeEntry(path=path, kind=FileKind.UNKNOWN)
    return TreeEntry(path=path, kind=FileKind.BANK, format=known.name)


def demand_bank_file(path: Path, shown: Path | None = None) -> None:
    """Raise `BankFormatError` for a file a person named that is of no format.

    A file without content may become a bank file, and is none of these.

    Args:
        path: A file; of a folder nothing is demanded.
        shown: How the person wrote it.
    """
    if path.is_dir() or classify(path).kind is not FileKind.UNKNOWN:
        return
    head = _head(path)
    is_empty = is_blank(head) or is_stub(head) or head.strip() == b"[]"
    if is_empty or head.startswith(b"<<<<<<< "):  # what a merge left: its own error tells
        return
    from aoebank.formats.optuna.study import STUDY, is_study  # it loads sqlite3

    if is_study(path):
        raise BankFormatError(
            STUDY,
            path=shown or path,
            hint=f"aoebank convert {shell_word(shown or path)} -o DIR makes T4 results of it",
        )
    raise BankFormatError(
        "is no bank file", path=shown or path, expected="a file of a format of docs/formats.md"
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES)


def banks_beside(name: str) -> Iterator[str]:
    """Yield the bank files a side-car, a conflict file or a binary cache is of, by its name."""
    for suffix in (SUFFIX, CONFLICT_SUFFIX):
        if name.endswith(suffix):
            yield name.removesuffix(suffix)
    bank = bank_of_binary_cache(name)
    if bank is not None:
        yield bank
