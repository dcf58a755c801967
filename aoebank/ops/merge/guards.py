"""Whether versions of a file can be merged at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.registry import find_format
from aoebank.formats.text.raw_splice import is_blank
from aoebank.ops.merge.versions import Versions
from aoebank.storage.readers.bank_names import graph_soc
from aoebank.storage.sides.side import Side

_TARGET = ("soc_version", "core_num", "core_type", "op_type")
_HINT = "--allow-other-soc merges them all the same"


def demand_mergeable(versions: Versions, name: str, *, may_differ_in_soc: bool) -> None:
    """Raise `BankFormatError` unless the versions are whole, of one format and for one target.

    Args:
        name: Of the file in the result; it tells readers what the file is for.
        may_differ_in_soc: Whether other cores or another soc_version will do.
    """
    for parsed in (versions.base, versions.ours, versions.theirs):
        if parsed is not None:
            raise_if_broken(parsed)
    there = (versions.ours, versions.theirs, versions.base)
    found = [parsed for parsed in there if parsed is not None and not is_blank(parsed.data)]
    result = _empty_file(name) if found else None
    if result is not None:
        _demand_same_kind(result, found[0], may_differ_in_soc=may_differ_in_soc)
    for other in found[1:]:
        _demand_same_kind(found[0], other, may_differ_in_soc=may_differ_in_soc)
    _demand_one_header(versions)


def demand_one_target(sides: Sequence[Side]) -> None:
    """Raise `BankFormatError` if trees without folders for targets are of different ones.

    `banks/Ascend910B1` and `banks/Ascend910B2` would become one folder, while two trees that
    hold such folders only have more targets together than each alone.
    """
    first = _loose_targets(sides[0])
    for side in sides[1:]:
        found = _loose_targets(side)
        if first and found and first.isdisjoint(found):
            raise BankFormatError(
                "tree is for another soc_version",
                path=Path(side.label),
                got=", ".join(sorted(found)),
                expected=", ".join(sorted(first)),
                hint=_HINT,
            )


def _loose_targets(side: Side) -> frozenset[str]:
    """Return the soc_versions of files that are not in a folder of that name."""
    found = set()
    for name in side.names() if side.is_tree else ():
        parsed = _empty_file(name)
        soc = parsed.name.soc_version if parsed is not None and parsed.name else None
        if soc and all(graph_soc(part) != graph_soc(soc) for part in Path(name).parts[:-1]):
            found.add(graph_soc(soc))
    return frozenset(found)


def _empty_file(name: str) -> ParsedFile | None:
    """Return an empty file of this name, which tells its format and its target."""
    known = find_format(Path(name))
    return None if known is None else known.parse(known.empty, Path(name))


def _demand_same_kind(a: ParsedFile, b: ParsedFile, *, may_differ_in_soc: bool) -> None:
    if a.format.name != b.format.name:
        raise BankFormatError(
            "banks of different formats cannot be merged",
            path=b.path,
            got=b.format.name,
            expected=a.format.name,
        )
    for member in _TARGET:
        one, other = getattr(a.name, member, None), getattr(b.name, member, None)
        if None in (one, other) or one == other:
            continue
        if may_differ_in_soc and member != "op_type":
            continue
        raise BankFormatError(
            f"bank file is for another {member}",
            path=b.path,
            got=other,
            expected=one,
            hint="" if member == "op_type" else _HINT,
        )


def _demand_one_header(versions: Versions) -> None:
    """Raise if two version lines would have to become one."""
    ours, theirs, base = versions.ours, versions.theirs, versions.base
    if ours is None or theirs is None:
        return
    is_one_sided = ours.data == theirs.data or (
        base is not None and base.data in (ours.data, theirs.data)
    )
    if is_one_sided or not (len(ours) and len(theirs)):
        return
    one, other = ours.format.header(ours), theirs.format.header(theirs)
    if one != other:
        raise BankFormatError(
            "version line differs",
            path=theirs.path,
            got=other,
            expected=one,
            hint="bring both to one version first",
        )
