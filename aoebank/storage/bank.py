"""A bank: a tree of bank files, read through a cache and written under locks."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoebank.errors import (
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    BankPermissionError,
    shell_word,
)
from aoebank.formats.names import BankName
from aoebank.formats.protocol import Format, ParsedFile, find_error, raise_if_broken
from aoebank.formats.provenance import (
    ProvenanceLog,
    append_line_break,
    parse_provenance,
    provenance_path,
    serialize_provenance,
)
from aoebank.formats.registry import format_of, get_format, parse_name
from aoebank.formats.text.checks import is_blank
from aoebank.model.display import RichDisplay, load_place
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.model.resolution import Tier
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.readers.places import DEFAULT_FOLDER, GRAPH_DEFAULT_FOLDER
from aoebank.storage.tree import (
    BACKUP_SUFFIX,
    NO_FILE,
    NOWHERE,
    FileKind,
    TreeEntry,
    cannot_be_read,
    find_closed,
    iter_tree,
)
from aoebank.storage.writing.atomic import read_settled

Signature = tuple[int, int, int]
"""Time of change, size and inode: what tells that a file is another one."""


@dataclass(slots=True)
class _Known:
    """A side-car as far as it has been read."""

    data: bytes = b""
    entries: list[Provenance] = field(default_factory=list)
    by_key: dict[str, list[Provenance]] = field(default_factory=dict)

    def add(self, entries: Iterable[Provenance]) -> None:
        for entry in entries:
            self.entries.append(entry)
            self.by_key.setdefault(entry.key, []).append(entry)


class SideCars:
    """Reads the side-cars of bank files, again only when they have changed.

    A run asks for each of its operators and appends for each, so what counts is that neither
    reads the lines again that are known: of a side-car that has only grown, the rest is parsed.

    Args:
        read: Returns the bytes of a file, None if there is none.
        signature: Tells whether a file is the one it was, None if there is none.
    """

    def __init__(
        self,
        read: Callable[[Path], bytes | None],
        signature: Callable[[Path], Signature | None],
    ) -> None:
        self._read = read
        self._signature = signature
        self._known: dict[Path, tuple[Signature, _Known]] = {}

    def entries(self, file: Path, key: str | None = None) -> tuple[Provenance, ...]:
        """Return the lines of a side-car, oldest first.

        Args:
            file: The bank file.
            key: Record key; everything if None.
        """
        known = self._current(provenance_path(file))
        return tuple(known.entries if key is None else known.by_key.get(key, ()))

    def _current(self, side_car: Path) -> _Known:
        signature = self._signature(side_car)
        seen = self._known.get(side_car)
        if seen is not None and seen[0] == signature:
            return seen[1]
        data = self._read(side_car) or b""
        known = seen[1] if seen is not None else _Known()
        # a torn last line may have been finished since
        if not data.startswith(known.data) or not known.data.endswith(b"\n"):
            known = _Known()
        known.add(parse_provenance(data[len(known.data) :], side_car).entries)
        known.data = data
        if signature is not None:
            self._known[side_car] = (signature, known)
        return known


DAMAGED_SUFFIX = ".damaged"
"""Of the name of a file that was set aside, with a number where there is one already."""
_EMPTY = "file is empty"
GRAPH_FOLDER = "graph"
"""Holds a folder per soc_version; the others lie below one."""


@dataclass(slots=True)
class _Loaded:
    """A parsed file, the records asked for so far, and what the file looked like then."""

    signature: Signature
    parsed: ParsedFile
    records: dict[str, Record]


# ---- the bank ----


class Bank(RichDisplay):
    """The records below one root directory, which need not exist before the first `put`.

    Args:
        root: The directory, as a `Path` or a text.
        tier: Which of a reader's banks it is.

    Attributes:
        tier: A built-in bank belongs to its installation and is never written.
    """

    shown_by = "aoebank.reading.ls:bank_report"

    def __init__(self, root: str | Path, *, tier: Tier = Tier.CUSTOM) -> None:
        self.root = Path(root)
        self.tier = tier
        self._graph_folder = _graph_folder(self.root)
        self._loaded: dict[Path, _Loaded] = {}
        self._passed_over: set[Path] = set()
        self._side_cars = SideCars(read_file, signature_of)

    def __repr__(self) -> str:
        # a debugger shows it at each step, and a bank may have a million records
        tier = "" if self.tier is Tier.CUSTOM else f", tier={self.tier.value!r}"
        return f"Bank({str(self.root)!r}{tier})"

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each record: the columns of the table `records` of a query."""
        rows: list[dict[str, Any]] = load_place("aoebank.reading.query:record_rows")(result=self)
        return rows

    def unified_file(
        self, *, soc_version: str, core_num: int, op_type: str, core_type: str = "AiCore"
    ) -> Path:
        """Return the path of the unified bank of an operator type on a target."""
        name = BankName(
            soc_version=soc_version, core_num=core_num, op_type=op_type, core_type=core_type
        )
        unified = get_format("unified")
        return self.root / soc_version / unified.folder / unified.build_name(name)

    def graph_file(self, soc_version: str) -> Path:
        """Return the path of the subgraph bank of a target: `graph/<soc_version>/` below the root.

        For AOE's default root, `aoe/custom/op`, the folder is `aoe/custom/graph` beside it. A file
        that lies below that root, where earlier releases put it, is used until there is one beside.
        """
        name = get_format("graph").build_name(BankName(soc_version=soc_version))
        file = self._graph_folder / soc_version / name
        below = self.root / GRAPH_FOLDER / soc_version / name
        return below if below.exists() and not file.exists() else file

    def find(self, file: Path, key: str) -> Record | None:
        """Return the record readers would use for `key`, or None on a miss.

        Raises:
            BankFormatError: the file is broken, so a miss could not be told from damage.
            BankPathError: it is there and cannot be read, as above.
            RecordError: the record itself is.
        """
        loaded = self._load(file)
        if loaded is None:
            return None
        record = loaded.records.get(key)
        if record is None:
            number = loaded.parsed.find(key)
            if number is None:
                return None
            record = loaded.parsed.format.record(loaded.parsed, number)
            loaded.records[key] = record
        return record

    def iter_records(self, file: Path) -> Iterator[Record]:
        """Yield the records of a file in its order; unreadable records are passed over.

        Raises:
            BankFormatError: the file is broken.
        """
        loaded = self._load(file)
        return loaded.parsed.iter_records() if loaded else iter(())

    def iter_files(self) -> Iterator[Path]:
        """Yield the bank files of the tree, sorted, unreadable ones included.

        Raises:
            BankPathError: a folder, or a file that may be a bank, cannot be read; at the end.
        """
        closed: list[BankPathError] = []
        for entry in self.iter_entries():
            closed += filter(None, [find_closed(entry)])
            if entry.kind is FileKind.BANK:
                yield entry.path
        for error in closed:
            raise error

    def iter_entries(self) -> Iterator[TreeEntry]:
        """Yield everything in the tree, strangers and left-overs too, each with what it is."""
        return iter_tree(self.root) if self.root.is_dir() else iter(())

    def soc_versions(self) -> tuple[str, ...]:
        """Return the targets the tree holds bank files for, sorted; names of folders count.

        Of files that are of one target by their name, that name counts.

        A file directly below the root is not in the folder of any target.
        """
        found = (_target_of(file.relative_to(self.root)) for file in self.iter_files())
        return tuple(sorted({name for name in found if name}))

    def put(self, file: Path, records: Iterable[Record], lines: Iterable[Provenance] = ()) -> None:
        """Store records, each in place of the one of its key; the rest stays byte for byte.

        Where the order of records means nothing, a new file is sorted by key, and a sorted one
        stays so: tuning in another order gives the same bytes. In other files new records come
        last.

        Args:
            file: The bank file.
            records: What is stored.
            lines: Added to the side-car; where they cannot be, no record is stored either.

        Raises:
            BankFormatError: the file is broken; or a record is of another format, operator or
                soc_version, or nothing a reader takes. The file is left as it is.
            BankLockedError: another writer does not let go.
            BankPathError: the file has a binary twin that this would put in the wrong, or lies
                outside of the root.
            BankPermissionError: the bank is a built-in one, or not ours to write.
        """
        self._change(file, {record.key: record for record in records}, [*lines])

    def remove(self, file: Path, keys: Iterable[str]) -> None:
        """Remove the records of these keys, as far as there are any."""
        if file.exists():
            self._change(file, dict.fromkeys(keys))

    def damage(self, file: Path) -> str:
        """Return why a file cannot be read as a bank file, empty if it can or there is none."""
        try:
            loaded = self._load(file)
        except BankFormatError as error:
            return error.problem
        return _EMPTY if loaded is not None and is_blank(loaded.parsed.data) else ""

    def pass_over(self, file: Path) -> None:
        """Read a file as if there were none, from now on."""
        self._passed_over.add(file)

    def set_aside(self, file: Path) -> Path | None:
        """Give a damaged file another name, which no reader opens; its side-car stays.

        Returns:
            The new name, None if the file is whole by now, or gone.

        Raises:
            BankLockedError: another writer does not let go.
            BankPathError: it lies outside of the root.
            BankPermissionError: the bank is a built-in one, or not ours to write.
        """
        from aoebank.storage.writing.staged import rename_file  # reading needs none of it

        self._demand_ours(file)
        self._demand_inside(file)
        self._loaded.pop(file, None)

        def is_damaged(data: bytes) -> bool:
            return is_blank(data) or find_error(format_of(file, data).parse(data, file)) is not None

        return rename_file(file, DAMAGED_SUFFIX, is_damaged, root=self.root)

    def iter_provenance(self, file: Path, key: str | None = None) -> Iterator[Provenance]:
        """Yield the side-car lines of a bank file, oldest first, bad lines passed over.

        Args:
            file: The bank file.
            key: Record key; every record if None.
        """
        return iter(self._side_cars.entries(file, key))

    def append_provenance(self, file: Path, entries: Iterable[Provenance]) -> None:
        """Add entries to the side-car of a bank file.

        Raises:
            BankLockedError: another writer does not let go.
            BankPathError: the file lies outside of the root.
            BankPermissionError: the bank is a built-in one, or not ours to write.
        """
        self._append(file, entries)

    def _append(self, file: Path, entries: Iterable[Provenance]) -> None:
        added = b"".join(map(serialize_provenance, entries))
        if added:
            self._demand_ours(file)
            self._demand_inside(file)
            side_car = provenance_path(file)
            self._update(side_car, lambda old: append_line_break(old or b"") + added)

    def mirrored(self, file: Path, other: Bank) -> Path:
        """Return the place in another bank of a file of this one.

        Raises:
            BankPathError: the file lies outside of this bank.
        """
        tree = self._demand_inside(file)
        root = other._graph_folder if tree == self._graph_folder else other.root
        return root / _tidy(file).relative_to(_tidy(tree))

    def _change(
        self,
        file: Path,
        changes: Mapping[str, Record | None],
        lines: Sequence[Provenance] = (),
    ) -> None:
        if not changes:
            self._append(file, lines)
            return
        self._demand_ours(file)
        self._demand_inside(file)
        format_ = format_of(file)
        demand_no_binary_cache(file, format_)
        for record in changes.values():
            if record is not None:
                _demand_fitting(record, file, format_)

        def edit(old: bytes | None) -> bytes:
            if old is not None and is_blank(old):
                demand_no_backup(file)
            data = format_.empty if old is None or is_blank(old) else old
            parsed = format_.parse(data, file)
            raise_if_broken(parsed)
            is_free = not len(parsed) and format_.may_be_sorted  # a new file is one in order
            result = format_.serialize(
                parsed, dict(sorted(changes.items())) if is_free else changes
            )
            _demand_readable(format_.parse_like(result, file, parsed), changes)
            return result

        self._update(file, edit, lambda: self._append(file, lines))
        self._loaded.pop(file, None)

    def _update(
        self,
        file: Path,
        edit: Callable[[bytes | None], bytes],
        before: Callable[[], None] | None = None,
    ) -> None:
        from aoebank.storage.writing.staged import update_file  # reading needs none of it

        update_file(file, edit, root=self._tree_of(file), before=before)

    def _tree_of(self, file: Path) -> Path | None:
        """Return the tree of this bank that a file is in: the root, or its subgraphs beside it."""
        place = _tidy(file)
        trees = (self.root, self._graph_folder)
        return next((tree for tree in trees if place.is_relative_to(_tidy(tree))), None)

    def _demand_ours(self, file: Path) -> None:
        if self.tier is Tier.BUILT_IN:
            raise BankPermissionError(
                "built-in banks are not written",
                path=file,
                hint="put the records into a custom bank, which goes first",
            )

    def _demand_inside(self, file: Path) -> Path:
        """Return the tree a file is in."""
        tree = self._tree_of(file)
        if tree is None:
            raise BankPathError(
                "lies outside of the bank", path=file, expected=f"a file below {self.root}"
            )
        return tree

    def _load(self, file: Path) -> _Loaded | None:
        if file in self._passed_over:
            return None
        loaded = self._loaded.get(file)
        signature = signature_of(file)
        if loaded is not None and loaded.signature == signature:
            return loaded
        self._loaded.pop(file, None)
        parsed = _parse(file) if signature else None
        if parsed is None or signature is None:
            if file.is_symlink():
                raise cannot_be_read(file, NOWHERE)
            return None
        if not is_blank(parsed.data):  # a writer that died before it wrote: the next one fills it
            raise_if_broken(parsed)
        loaded = _Loaded(signature=signature, parsed=parsed, records={})
        self._loaded[file] = loaded
        return loaded


def _demand_fitting(record: Record, file: Path, format_: Format) -> None:
    """Raise `BankFormatError` for a record of another format, operator or target than a file."""
    name = format_.parse_name(file.name)
    soc_version, op_type = record.soc_version, record.op_type
    pairs = [("format", record.format, format_.name, record.format == format_.name)]
    if name is not None and name.soc_version is not None and soc_version is not None:
        fits = format_.is_soc(name.soc_version, soc_version)
        pairs.append(("soc_version", soc_version, name.soc_version, fits))
    if name is not None and None not in (op_type, name.op_type):
        pairs.append(("op_type", str(op_type), str(name.op_type), op_type == name.op_type))
    for word, got, expected, fits in pairs:
        if not fits:
            raise BankFormatError(
                f"record {record.key} is of another {word}", path=file, got=got, expected=expected
            )


def _demand_readable(parsed: ParsedFile, changes: Mapping[str, Record | None]) -> None:
    """Raise `BankFormatError` unless a new content can be read, each record that was put too."""
    raise_if_broken(parsed)
    for key, record in changes.items():
        number = parsed.find(key)
        if (number is None) != (record is None):
            raise BankFormatError(
                "record would not be found again",
                path=parsed.path,
                got=key,
                expected="the key its readers compute",
            )
        if number is not None:
            parsed.format.record(parsed, number)


def _tidy(path: Path) -> Path:
    """Return an absolute path without `..`; links are not followed."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _graph_folder(root: Path) -> Path:
    """Return the folder of the subgraph banks of a root, which has a folder for each target."""
    default = Path(DEFAULT_FOLDER).parts
    if _tidy(root).parts[-len(default) :] == default:
        return root.with_name(Path(GRAPH_DEFAULT_FOLDER).name)
    return root / GRAPH_FOLDER


def soc_folder(path: Path) -> str:
    """Return the folder of a target that a path below a root lies in, empty for none."""
    folders = path.parent.parts
    folders = folders[1:] if folders[:1] == (GRAPH_FOLDER,) else folders
    return folders[0] if folders else ""


def _target_of(path: Path) -> str:
    """Return the target of a file below a root: that of its folder, where its format has one."""
    named = parse_name(path)
    if named is not None and (named[0].is_of_one_target or named[0].has_target_in_rows):
        return named[1].soc_version or ""
    return soc_folder(path)


def load_file(path: Path) -> ParsedFile:
    """Read and parse one bank file, broken or not; its findings say which.

    Raises:
        BankNotFoundError: there is none.
        BankPermissionError: it cannot be read.
    """
    parsed = _parse(path)
    if parsed is None:
        raise BankNotFoundError("no such file", path=path)
    return parsed


def load_provenance(file: Path) -> ProvenanceLog:
    """Read the side-car of a bank file; an absent one has no entries."""
    side_car = provenance_path(file)
    return parse_provenance(read_file(side_car) or b"", side_car)


def _parse(path: Path) -> ParsedFile | None:
    """Read and parse a file; one that looks torn is read again when no writer holds it."""
    data = read_file(path)
    if data is None:
        return None
    parsed = format_of(path, data).parse(data, path)
    if data.strip() and find_error(parsed) is None:
        return parsed
    settled = read_settled(path)
    if settled is None or settled == data:
        return parsed
    return format_of(path, settled).parse(settled, path)


def demand_no_backup(file: Path) -> None:
    """Raise `BankFormatError` if CANN's backup of an empty file stayed: its writer died."""
    backup = file.with_name(file.name.removesuffix(".json") + BACKUP_SUFFIX)
    if (read_file(backup) or b"").strip():
        raise BankFormatError(
            "file is empty, its content is in the backup of a write that died",
            path=file,
            got=backup.name,
            hint=f"mv {shell_word(backup)} {shell_word(file)}, or remove the backup",
        )


def signature_of(path: Path) -> Signature | None:
    """Return the signature of a file, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_file(path: Path) -> bytes | None:
    """Return the bytes of a file, or None if there is none.

    Raises:
        BankPermissionError: it cannot be read.
        BankPathError: it is a link to nowhere, or no file; or another error of the system.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise cannot_be_read(path, NO_FILE)  # a pipe would make us wait
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise cannot_be_read(path, NOWHERE) from None
        return None
    except PermissionError as error:
        raise BankPermissionError(
            "file cannot be read", path=path, hint=f"chmod u+r {shell_word(path)}"
        ) from error
    except IsADirectoryError as error:
        raise BankNotFoundError("is a directory", path=path, expected="a bank file") from error
    except OSError as error:
        raise cannot_be_read(path, (error.strerror or str(error)).lower()) from error


def read_there(path: Path) -> bytes:
    """Return the bytes of a file that was there a moment ago.

    Raises:
        BankPathError: it is gone, or cannot be read, as `read_file` tells.
    """
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path)
    return data
