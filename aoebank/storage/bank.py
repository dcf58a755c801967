"""A bank: a tree of bank files, read through a cache and written under locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPathError, BankPermissionError
from aoebank.formats.protocol import Format, ParsedFile, raise_if_broken
from aoebank.formats.provenance import (
    ProvenanceLog,
    append_line_break,
    parse_provenance,
    provenance_path,
    serialize_provenance,
)
from aoebank.formats.registry import find_format
from aoebank.formats.unified import UnifiedFormat
from aoebank.model.file_name import BankFileName
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.storage.atomic import update_file
from aoebank.storage.tree import FileKind, iter_tree, read_format

UNIFIED_FOLDER = "unified_bank"

_Signature = tuple[int, int, int]


@dataclass(slots=True)
class _Loaded:
    """A parsed file, the records asked for so far, and what the file looked like then."""

    signature: _Signature
    parsed: ParsedFile
    records: dict[str, Record]


class Bank:
    """The records below one root directory, which need not exist before the first `put`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loaded: dict[Path, _Loaded] = {}

    def unified_file(
        self, *, soc_version: str, core_num: int, op_type: str, core_type: str = "AiCore"
    ) -> Path:
        """Return where the unified bank of an operator type on a target is."""
        name = BankFileName(
            soc_version=soc_version, core_num=core_num, op_type=op_type, core_type=core_type
        )
        return self.root / soc_version / UNIFIED_FOLDER / str(name)

    def find(self, file: Path, key: str) -> Record | None:
        """Return the record readers would use for `key`, or None on a miss.

        Raises:
            BankFormatError: the file is broken, so a miss could not be told from damage.
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
        """Yield the records of a file in its order; those that cannot be read are passed over.

        Raises:
            BankFormatError: the file is broken.
        """
        loaded = self._load(file)
        return loaded.parsed.iter_records() if loaded else iter(())

    def iter_files(self) -> Iterator[Path]:
        """Yield the bank files of the tree, sorted."""
        if self.root.is_dir():
            for entry in iter_tree(self.root):
                if entry.kind is FileKind.BANK:
                    yield entry.path

    def put(self, file: Path, records: Iterable[Record]) -> None:
        """Store records, replacing those of the same keys; the rest stays byte for byte.

        Raises:
            BankFormatError: the file is broken; it is left as it is.
            BankLockedError: another writer does not let go.
        """
        self._change(file, {record.key: record for record in records})

    def remove(self, file: Path, keys: Iterable[str]) -> None:
        """Remove the records of these keys, as far as there are any."""
        if file.exists():
            self._change(file, dict.fromkeys(keys))

    def iter_provenance(self, file: Path) -> Iterator[Provenance]:
        """Yield what the side-car of a bank file says, oldest first, bad lines passed over."""
        return iter(load_provenance(file).entries)

    def append_provenance(self, file: Path, entries: Iterable[Provenance]) -> None:
        """Add entries to the side-car of a bank file."""
        added = b"".join(map(serialize_provenance, entries))
        if added:
            update_file(
                provenance_path(file), lambda old: append_line_break(old or b"") + added
            )  # fmt: skip

    def _change(self, file: Path, changes: Mapping[str, Record | None]) -> None:
        if not changes:
            return
        format_ = find_format(file) or UnifiedFormat()

        def edit(old: bytes | None) -> bytes:
            data = old if old and old.strip() else format_.empty
            parsed = format_.parse(data, file)
            raise_if_broken(parsed)
            return format_.serialize(parsed, changes)

        update_file(file, edit)
        self._loaded.pop(file, None)

    def _load(self, file: Path) -> _Loaded | None:
        loaded = self._loaded.get(file)
        signature = _signature(file)
        if loaded is not None and loaded.signature == signature:
            return loaded
        self._loaded.pop(file, None)
        data = _read(file) if signature else None
        if data is None or signature is None:
            return None
        parsed = _format_of(file, data).parse(data, file)
        raise_if_broken(parsed)
        loaded = _Loaded(signature=signature, parsed=parsed, records={})
        self._loaded[file] = loaded
        return loaded


def load_file(path: Path) -> ParsedFile:
    """Read and parse one bank file, broken or not; its findings say which.

    Raises:
        BankNotFoundError: there is none.
        BankPermissionError: it cannot be read.
    """
    data = _read(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path)
    return _format_of(path, data).parse(data, path)


def load_provenance(file: Path) -> ProvenanceLog:
    """Read the side-car of a bank file; an absent one has no entries."""
    side_car = provenance_path(file)
    return parse_provenance(_read(side_car) or b"", side_car)


def _format_of(path: Path, data: bytes) -> Format:
    return read_format(path, data) or UnifiedFormat()


def _signature(path: Path) -> _Signature | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise BankPermissionError(
            "file cannot be read", path=path, hint=f"chmod u+r {path}"
        ) from error  # fmt: skip
    except IsADirectoryError as error:
        raise BankNotFoundError(
            "is a directory", path=path, expected="a bank file"
        ) from error  # fmt: skip
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path) from error
