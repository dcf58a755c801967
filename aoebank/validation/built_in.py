"""Comparison of the records of a bank with the built-in records that they hide.

Readers that look into the custom bank first never compare times, so a custom record slower
than the built-in one of the same key makes a model slower by being there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from aoebank.errors import AoebankError, BankNotFoundError, BankPathError, shell_word
from aoebank.formats.protocol import ParsedFile
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.record import Record
from aoebank.storage.bank import load_file

OPP_VARIABLE = "ASCEND_OPP_PATH"
# Source: tbe/common/repository_manager and the file list of an installed CANN 8.1
_OPP_FOLDERS = ("built-in/data/op", "data/built_in/op", "built-in/data", "data/op")
_TIMESTAMP = re.compile(r"_\d{8}_\d{6}_\d{6}(?=\.json$)")


class BuiltInBank:
    """Built-in bank files by name, read when a file of that name is checked."""

    def __init__(self, root: Path | None, *, named_by: str = "") -> None:
        self.root = root
        self._named_by = named_by
        self._parsed: dict[Path, ParsedFile] = {}
        self._closed: dict[Path, str] = {}

    def findings(self) -> Iterator[Finding]:
        """Yield why nothing could be compared, if a variable names a place without files."""
        if self.root is not None and not self._files:
            yield make_finding(
                "AB512",
                Location(path=self.root),
                "no built-in bank to compare with",
                got=self._named_by or None,
                hint="name its directory with --built-in, or unset the variable",
            )

        for path, problem in sorted(self._closed.items()):
            yield make_finding(
                "AB512",
                Location(path=path),
                f"part of the built-in bank to compare with cannot be read: {problem}",
                got=self._named_by or None,
                hint=f"chmod u+rX {shell_word(path)}",
            )

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield a finding per record that is slower than the built-in one it hides."""
        for record, hidden, path in self.hidden_by(parsed):
            if record.location is not None:
                yield make_finding(
                    "AB510",
                    record.location,
                    "strategy is slower than the built-in one it hides",
                    got=f"{record.cost_us} us",
                    expected=f"at most {hidden.cost_us} us",
                    hint=f"remove the record, so that the one in {path} is used",
                )

    def hidden_by(self, parsed: ParsedFile) -> Iterator[tuple[Record, Record, Path]]:
        """Yield records slower than the built-in one of their key, with that one and its file."""
        for path in self._files.get(_bank_name(parsed.path), ()):
            other = None if _is_same_file(path, parsed.path) else self._load(path)
            if other is None or other.format.name is not parsed.format.name:
                continue
            for record in parsed.iter_records():
                hidden = _find(other, record.key) if record.cost_us is not None else None
                if hidden is not None and _is_slower(record, hidden):
                    yield record, hidden, path

    def _load(self, path: Path) -> ParsedFile | None:
        if path not in self._parsed:
            try:
                self._parsed[path] = load_file(path)
            except BankPathError as error:
                self._closed[path] = error.problem
                return None
            except AoebankError:
                return None
        return self._parsed[path]

    @cached_property
    def _files(self) -> Mapping[str, tuple[Path, ...]]:
        if self.root is None:
            return {}
        folders = [self.root / folder for folder in _OPP_FOLDERS]
        roots = [folder for folder in folders if folder.is_dir()] or [self.root]
        found: dict[str, tuple[Path, ...]] = {}
        for root in roots:
            for folder, folders_below, names in os.walk(root, onerror=self._note_closed):
                folders_below.sort()
                for name in sorted(name for name in names if name.endswith(".json")):
                    path = Path(folder, name)
                    known = found.get(_bank_name(path), ())
                    if path not in known:
                        found[_bank_name(path)] = (*known, path)
        return found

    def _note_closed(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # told as no bank at all
            self._closed[Path(error.filename)] = str(error.strerror or error).lower()


def find_built_in(directory: Path | None, *, env: Mapping[str, str], cwd: Path) -> BuiltInBank:
    """Return the built-in bank to compare with: the directory named, else the installed one.

    Args:
        directory: From the command line; None when it names none.
        env: Its `ASCEND_OPP_PATH` names an installed toolkit's operator packages.

    Raises:
        BankNotFoundError: `directory` is not there.
    """
    if directory is not None:
        if not directory.is_dir():
            raise BankNotFoundError(
                "no such directory", path=directory, expected="the directory of a built-in bank"
            )
        return BuiltInBank(directory)
    value = env.get(OPP_VARIABLE, "")
    return BuiltInBank(cwd / value if value else None, named_by=f"{OPP_VARIABLE}={value}")


def _bank_name(path: Path) -> str:
    """Return the name a bank has in both tiers: custom vector banks carry a time stamp."""
    return _TIMESTAMP.sub("", path.name)


def _is_same_file(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return False


def _find(parsed: ParsedFile, key: str) -> Record | None:
    number = parsed.find(key)
    try:
        return None if number is None else parsed.format.record(parsed, number)
    except AoebankError:
        return None


def _is_slower(record: Record, hidden: Record) -> bool:
    if record.cost_us is None or hidden.cost_us is None:
        return False
    return record.cost_us > hidden.cost_us
