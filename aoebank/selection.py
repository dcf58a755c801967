"""Which records a command is about, and what the path of a file tells of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from aoebank.errors import UsageError
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import bank_folders, find_format, get_format
from aoebank.model.record import Record
from aoebank.storage.bank import soc_folder
from aoebank.storage.binary_caches import bank_of_binary_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Globs; one of each kind that is given has to match.

    Raises:
        UsageError: a key is empty: every key starts so.
    """

    soc: tuple[str, ...] = ()
    op: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # Also the start of a key

    def __post_init__(self) -> None:
        if "" in self.key:  # as a shell makes of a variable that is not set
            raise UsageError("an empty key", expected="a key, or the start of one")

    def holds_soc(self, *soc_versions: str) -> bool:
        """True if a file for one of these targets is meant."""
        return not self.soc or any(_matches_soc(name, self.soc) for name in soc_versions)

    def holds_op(self, op_type: str | None) -> bool:
        """True if records of an operator type are meant."""
        return not self.op or _matches(op_type or "", self.op)

    def holds_key(self, key: str) -> bool:
        """True if a record is meant."""
        return not self.key or key.startswith(self.key) or _matches(key, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameParts:
    """What the path of a file below the root of a bank tells."""

    # By the first folder and by the name; those may differ in spelling.
    soc_versions: frozenset[str]
    op_type: str | None  # None where the path is silent
    has_target_in_rows: bool = False  # Whether each record names its target, and the path none


def is_whole(wanted: RecordFilter) -> bool:
    """True if a filter leaves nothing out."""
    return not (wanted.soc or wanted.op or wanted.key)


def holds_file(wanted: RecordFilter, name: str) -> bool:
    """True if records of a file may be meant; False is certain.

    Args:
        name: Path below the root of a bank file, a side-car or a binary twin.
    """
    parts = parts_of(name)
    if not (parts.has_target_in_rows or wanted.holds_soc(*sorted(parts.soc_versions))):
        return False
    return parts.op_type is None or wanted.holds_op(parts.op_type)


def holds_whole_file(wanted: RecordFilter, name: str) -> bool:
    """True if all records of a file are meant, and so the file itself."""
    parts = parts_of(name)
    knows_op = not wanted.op or parts.op_type is not None
    knows_soc = not (wanted.soc and parts.has_target_in_rows)
    return not wanted.key and knows_op and knows_soc and holds_file(wanted, name)


def holds_record(wanted: RecordFilter, record: Record) -> bool:
    """True if a record of a file that `holds_file` is meant."""
    is_told_by_record = wanted.soc and get_format(record.format).has_target_in_rows
    if is_told_by_record and not wanted.holds_soc(record.soc_version or ""):
        return False
    return wanted.holds_key(record.key) and wanted.holds_op(record.op_type)


def parts_of(name: str) -> NameParts:
    """Return the target in the path of a file below the root.

    >>> sorted(parts_of("Ascend910B2/cube/x.json").soc_versions)
    ['Ascend910B2']
    >>> sorted(parts_of("graph/x86-64-v4/x86_64_v4_l2cache.json").soc_versions)
    ['x86-64-v4', 'x86_64_v4']
    """
    path = Path(bank_name_of(name))
    folder = {soc_folder(path)} - {""}
    format_ = find_format(path)
    found = format_.parse_name(path.name) if format_ else None
    if found is None:
        return NameParts(soc_versions=frozenset(folder), op_type=None)
    if format_ is not None and format_.has_target_in_rows:
        return NameParts(soc_versions=frozenset(), op_type=found.op_type, has_target_in_rows=True)
    if format_ is not None and format_.is_of_one_target:
        folder = set()
    own = {found.soc_version} if found.soc_version else set()
    return NameParts(soc_versions=frozenset({*own, *folder}), op_type=found.op_type)


def bank_name_of(name: str) -> str:
    """Return the bank file that a side-car or a binary twin belongs to, or the name itself."""
    if name.endswith(SUFFIX):
        return name.removesuffix(SUFFIX)
    return bank_of_binary_cache(name) or name


def target_of(name: str) -> str:
    """Return the soc_version the records of a file count for, "" if its path is silent.

    >>> target_of("banks/Ascend910B2/unified_bank/x.json"), target_of("matmul/x.json")
    ('Ascend910B2', 'matmul')
    >>> target_of("matmul/config/Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json")
    'Ascend910B2'
    """
    path = Path(bank_name_of(name))
    if path.parent.name in bank_folders() and path.parent.parent.name:
        return path.parent.parent.name
    folder = soc_folder(path)
    own = min(parts_of(name).soc_versions - {folder}, default="")
    is_spelled_so = own.lower().replace("-", "_") == folder.lower().replace("-", "_")
    return folder if is_spelled_so or not own else own  # some file names are in lower case


def demand_case(wanted: RecordFilter, names: Iterable[str]) -> None:
    """Raise for a target or operator that files have in another case only: readers tell them apart.

    Args:
        names: Paths below the root of the files there are.

    Raises:
        UsageError: with the name as files have it.
    """
    if not (wanted.soc or wanted.op):
        return
    found = [*map(parts_of, names)]
    socs = {soc for parts in found for soc in parts.soc_versions}
    _demand_case_of("target", "--soc", wanted.soc, socs, _matches_soc)
    op_types = {parts.op_type for parts in found}
    if None not in op_types:  # else records of other operators may be in a file
        _demand_case_of("operator", "--op", wanted.op, {op or "" for op in op_types}, _matches)


def _demand_case_of(
    what: str,
    option: str,
    patterns: Iterable[str],
    found: Set[str],
    matches: Callable[[str, tuple[str, ...]], bool],
) -> None:
    for pattern in patterns:
        alike = [name for name in sorted(found) if matches(name.lower(), (pattern.lower(),))]
        if alike and not any(matches(name, (pattern,)) for name in found):
            raise UsageError(
                f"{what} is written in another case",
                where=option,
                got=pattern,
                expected=", ".join(alike),
            )


def _matches_soc(soc_version: str, patterns: tuple[str, ...]) -> bool:
    """True if a pattern fits a soc_version, `-` and `_` being one where no set is."""
    if _matches(soc_version, patterns):
        return True
    plain = tuple(pattern.replace("-", "_") for pattern in patterns if "[" not in pattern)
    return _matches(soc_version.replace("-", "_"), plain)


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(text == pattern or fnmatchcase(text, pattern) for pattern in patterns)
