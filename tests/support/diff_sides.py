"""Sides for tests of comparisons, held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aoebank import Provenance, Record
from aoebank.formats.provenance import SUFFIX, serialize_provenance
from aoebank.formats.unified.format import render
from aoebank.storage.sides.side import SideKind, StoredSide

SOC = "x86-64-v4"


def file_name(op_type: str = "Softmax", soc: str = SOC) -> str:
    """Return where the unified bank of an operator type is."""
    return f"{soc}/unified_bank/{soc}_2_AiCore_{op_type}.json"


def unified(*records: Record) -> bytes:
    """Return a file of records."""
    return b"{\n" + b",\n".join(map(render, records)) + b"\n}\n"


def make_side(
    files: Mapping[str, bytes],
    *,
    label: str = "side",
    provenance: Mapping[str, Iterable[Provenance]] | None = None,
) -> StoredSide:
    """Return a tree of these files and side-cars."""
    contents = dict(files)
    for name, entries in (provenance or {}).items():
        contents[f"{name}{SUFFIX}"] = b"".join(map(serialize_provenance, entries))
    return StoredSide(
        label=label,
        kind=SideKind.SNAPSHOT,
        is_tree=True,
        place=label,
        contents={name: name for name in contents},
        read=contents.__getitem__,
    )


def side_of(*records: Record, **facts: Iterable[Provenance]) -> StoredSide:
    """Return a tree of one file; `provenance` is its side-car."""
    logs = {file_name(): entries for entries in facts.values()}
    return make_side({file_name(): unified(*records)}, provenance=logs)
