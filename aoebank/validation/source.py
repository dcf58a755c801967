"""Sources of the files of a check: the disk, a revision or a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.model.quarantine import Quarantine
from aoebank.storage.bank import Bank, load_file, read_file
from aoebank.storage.binary_caches import binary_cache_of
from aoebank.storage.quarantine import (
    find_quarantine_root,
    load_quarantine,
    parse_quarantine,
    quarantine_path,
)
from aoebank.storage.sides.side import StoredSide
from aoebank.storage.tree import FileKind, TreeEntry, classify, iter_tree


class DiskFiles:
    """Files on disk."""

    def iter_entries(self, paths: Iterable[Path], missing: list[Path]) -> Iterator[TreeEntry]:
        """Yield each entry of paths and trees once; paths that are not there go to `missing`."""
        seen: set[Path] = set()
        for path in paths:
            try:
                is_tree, exists = path.is_dir(), path.exists()
            except PermissionError:  # of a folder above: who knows what is there
                is_tree, exists = False, True
            except (OSError, ValueError):  # a loop of links, a name too long, a NUL in it
                is_tree, exists = False, False
            if not exists:
                missing.append(path)
                continue
            for entry in iter_tree(path) if is_tree else (classify(path),):
                if entry.path not in seen:
                    seen.add(entry.path)
                    yield entry

    def is_stored(self, path: Path) -> bool:
        """True if a file is on no disk, so that nothing of this machine is beside it."""
        return False

    def load(self, path: Path) -> ParsedFile:
        """Read and parse a bank file, broken or not."""
        return load_file(path)

    def read(self, path: Path) -> bytes | None:
        """Return the bytes of a file, None if there is none.

        Raises:
            BankPathError: it cannot be read.
        """
        return read_file(path)

    def find_quarantine_root(self, folder: Path) -> Path | None:
        """Return the root of the bank at or above a folder that has a quarantine."""
        return find_quarantine_root(folder)

    def load_quarantine(self, root: Path) -> Quarantine:
        """Read the quarantine of a bank.

        Raises:
            BankFormatError: a line is no entry.
            BankPathError: the file cannot be read.
        """
        return load_quarantine(root)

    def iter_banks(self, root: Path) -> Iterator[str]:
        """Yield the bank files below a root."""
        for entry in Bank(root).iter_entries():
            if entry.kind is FileKind.BANK:  # what cannot be read is told where it is checked
                yield entry.path.relative_to(root).as_posix()


class StoredFiles(DiskFiles):
    """Files of stored sides, called as `Path(side.place, name)`, and files on disk beside them."""

    def __init__(self, sides: Sequence[StoredSide]) -> None:
        self._sides = {Path(side.place): side for side in sides}
        self._files = {
            Path(place, name): (side, name)
            for place, side in self._sides.items()
            for name in (*side.contents, *side.closed)
        }

    def iter_entries(self, paths: Iterable[Path], missing: list[Path]) -> Iterator[TreeEntry]:
        """Yield the bank files of sides and what stands beside them; of paths as on disk."""
        for path in paths:
            side = self._sides.get(path)
            yield from super().iter_entries([path], missing) if side is None else _entries(side)

    def is_stored(self, path: Path) -> bool:
        """True if a side has the file."""
        return path in self._files

    def load(self, path: Path) -> ParsedFile:
        """Read and parse a bank file of a side, or one on disk."""
        side, name = self._files.get(path, (None, ""))
        parsed = side.load(name) if side is not None else None
        return super().load(path) if parsed is None else parsed

    def read(self, path: Path) -> bytes | None:
        """Return the bytes of a file of a side, or of one on disk."""
        side, name = self._files.get(path, (None, ""))
        return super().read(path) if side is None else side.read_bytes(name)

    def find_quarantine_root(self, folder: Path) -> Path | None:
        """Return the root of the side a folder is in, if that has a quarantine."""
        place = self._place_of(folder)
        if place is None:
            return super().find_quarantine_root(folder)
        return place if quarantine_path(place) in self._files else None

    def load_quarantine(self, root: Path) -> Quarantine:
        """Read the quarantine of a side, or of a bank on disk."""
        if root not in self._sides:
            return super().load_quarantine(root)
        path = quarantine_path(root)
        return parse_quarantine(self.read(path) or b"", path)

    def iter_banks(self, root: Path) -> Iterator[str]:
        """Yield the bank files of a side, or below a root on disk."""
        side = self._sides.get(root)
        yield from super().iter_banks(root) if side is None else side.listing()[0]

    def _place_of(self, folder: Path) -> Path | None:
        return next((place for place in (folder, *folder.parents) if place in self._sides), None)


def _entries(side: StoredSide) -> Iterator[TreeEntry]:
    names, closed = side.listing()
    for name in names:
        yield TreeEntry(path=Path(side.place, name), kind=FileKind.BANK)
    unlisted = {error.path for error in closed}
    for name, reason in side.closed.items():
        if (path := Path(side.place, name)) in unlisted:
            yield TreeEntry(path=path, kind=FileKind.UNREADABLE, reason=reason)
    if not side.is_tree:
        return
    files = {*side.contents, *side.closed}
    for name in names:
        side_car, twin = f"{name}{SUFFIX}", binary_cache_of(Path(name))
        if side_car in files:
            yield TreeEntry(path=Path(side.place, side_car), kind=FileKind.SIDE_CAR)
        if twin is not None and twin.as_posix() in files:
            yield TreeEntry(path=Path(side.place, twin), kind=FileKind.UNKNOWN)
