"""The manifest of a pack: what is in it, whom it is for, where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoebank.errors import BankFormatError
from aoebank.storage.foreign_names import is_name_in_bank

SCHEMA = "aoebank.pack_manifest/1"
_HEX_DIGITS = frozenset("0123456789abcdef")
_SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A file of a pack.

    Attributes:
        name: Path below the root of the bank, `/` between the parts.
        sha256: Of its bytes, in hexadecimal digits.
        size_bytes: How long it is.
        records: How many records it holds; 0 for what stands beside a bank file.
    """

    name: str
    sha256: str
    size_bytes: int
    records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackManifest:
    """What a pack says of itself.

    Attributes:
        message: What it is for, in the words of whoever made it; may be empty.
        source: What was packed, as a person wrote it: a path, `git:v1.0`.
        soc_versions: Targets it has records for, sorted.
        files: In the order they lie in the archive.
        made_by: Program and version that made it.
    """

    message: str
    source: str
    soc_versions: tuple[str, ...]
    files: tuple[PackedFile, ...]
    made_by: str

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        """How much all files take."""
        return sum(file.size_bytes for file in self.files)


def manifest_document(manifest: PackManifest) -> dict[str, object]:
    """Return the members of a manifest."""
    return {
        "message": manifest.message,
        "source": manifest.source,
        "made_by": manifest.made_by,
        "soc_versions": list(manifest.soc_versions),
        "files": [
            {
                "name": file.name,
                "sha256": file.sha256,
                "size_bytes": file.size_bytes,
                "records": file.records,
            }
            for file in manifest.files
        ],
    }


def serialize_manifest(manifest: PackManifest) -> bytes:
    """Return the bytes of a manifest; equal manifests have equal bytes."""
    document = {"schema": SCHEMA, **manifest_document(manifest)}
    return json.dumps(document, indent=1).encode("ascii") + b"\n"


def parse_manifest(data: bytes, pack: Path) -> PackManifest:
    """Read a manifest; a pack comes from others, so nothing in it is taken for granted.

    Args:
        pack: The archive, for messages.

    Raises:
        BankFormatError: it is no manifest of this version, or a file in it has a name no bank has
            use for.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(pack, f"its manifest is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        got = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise BankFormatError(
            "its manifest is of another kind or version",
            path=pack,
            got=repr(got),
            expected=SCHEMA,
            hint="unpack it with the version of aoebank that made it",
        )
    files = tuple(_file(entry, pack) for entry in _member(document, "files", list, pack))
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        raise _bad(pack, "its manifest names a file twice")
    return PackManifest(
        message=_member(document, "message", str, pack),
        source=_member(document, "source", str, pack),
        made_by=_member(document, "made_by", str, pack),
        soc_versions=tuple(map(str, _member(document, "soc_versions", list, pack))),
        files=files,
    )


def _file(entry: Any, pack: Path) -> PackedFile:
    if not isinstance(entry, dict):
        raise _bad(pack, "its manifest has a file that is no object")
    name = _member(entry, "name", str, pack)
    if not is_name_in_bank(name):
        raise _bad(pack, f"its manifest has a file that would lie elsewhere: {name!r}")
    digest = _member(entry, "sha256", str, pack)
    if len(digest) != _SHA256_DIGITS or not _HEX_DIGITS.issuperset(digest):
        raise _bad(pack, f"its manifest has no SHA-256 for {name}")
    return PackedFile(
        name=name,
        sha256=digest,
        size_bytes=_count(entry, "size_bytes", pack),
        records=_count(entry, "records", pack),
    )


def _count(members: Mapping[str, Any], name: str, pack: Path) -> int:
    value: int = _member(members, name, int, pack)
    if value < 0 or isinstance(value, bool):
        raise _bad(pack, f"its manifest has {value} as {name}")
    return value


def _member(members: Mapping[str, Any], name: str, kind: type, pack: Path) -> Any:
    value = members.get(name)
    if not isinstance(value, kind):
        raise _bad(pack, f"its manifest has no {name}")
    return value


def _bad(pack: Path, problem: str) -> BankFormatError:
    return BankFormatError(problem, path=pack, hint="get the pack again from where it was made")
