"""Put a bank, or its files for some targets, into a pack; a broken file is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, BankPathError, UsageError, shell_word
from aoebank.formats.protocol import raise_if_broken
from aoebank.formats.provenance import SUFFIX
from aoebank.model.digest import sha256_of
from aoebank.selection import RecordFilter, holds_whole_file, target_of
from aoebank.storage.git.attributes import QUARANTINE
from aoebank.storage.packs.archive import (
    NAMESPACE,
    Pack,
    PackedFile,
    PackManifest,
    is_name_in_bank,
    make_archive,
    open_pack,
    serialize_manifest,
)
from aoebank.storage.sides.side import Side
from aoebank.storage.signing import demand_signers, find_signer, sign_data
from aoebank.storage.writing.journal import file_journal, roll_back
from aoebank.storage.writing.staged import FileWrite, update_file, write_files

_VERB = "unpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackResult:
    """A pack whose files all are what its manifest says."""

    pack: Path
    root: Path | None  # Where the bank lies now; None if it was only looked at
    manifest: PackManifest
    is_signed: bool  # Whether the pack has a signature
    signer: str = ""  # Who signed it; empty if nobody was asked to be allowed


def unpack(pack: Path, root: Path | None, *, allowed: Path | None = None) -> UnpackResult:
    """Take a bank out of a pack, whole or not at all.

    Args:
        pack: The archive.
        root: Folder for the bank, which must not be there yet; None to check the pack only.
        allowed: File of allowed signers, in OpenSSH's form: a pack none of them signed is refused.

    Raises:
        BankNotFoundError: there is no such pack, or no such file of signers.
        BankFormatError: it is damaged, or nobody allowed has signed it.
        BankPathError: the folder is there already, or cannot be made.
    """
    journal = file_journal(root, _VERB) if root is not None and root.name else None
    if journal is not None:
        roll_back(journal, takes_tree=True)
    if root is not None and os.path.lexists(root):
        raise BankPathError(
            "is there already, and a pack becomes a folder of its own",
            path=root,
            hint="unpack it beside, then: aoebank merge "
            f"{shell_word(root)} UNPACKED -o {shell_word(root)}",
        )
    with open_pack(pack) as opened:
        signer = _signer(opened, pack, allowed)
        if root is None:
            for _ in opened.iter_files():
                pass
        else:
            files = opened.iter_files()
            changes = (FileWrite(path=root / file.name, data=data) for file, data in files)
            write_files(changes, journal=journal, root=root, is_new_tree=True)
        return UnpackResult(
            pack=pack,
            root=root,
            manifest=opened.manifest,
            is_signed=opened.signature is not None,
            signer=signer,
        )


def _signer(opened: Pack, pack: Path, allowed: Path | None) -> str:
    if allowed is None:
        return ""
    demand_signers(allowed)
    if opened.signature is None:
        raise BankFormatError(
            "is not signed",
            path=pack,
            expected=f"a signature of one of {allowed}",
            hint="ask for a signed pack, or leave out --allowed-signers",
        )
    signer = find_signer(opened.signed, opened.signature, allowed, NAMESPACE)
    if not signer:
        raise BankFormatError(
            "is not signed by anybody allowed, or was changed since",
            path=pack,
            expected=f"a signature of one of {allowed}",
            hint="get it again, or ask whoever made it for their public key",
        )
    return signer


# ---- pack ----


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRequest:
    """Contents and place of a new pack."""

    output: Path  # The archive to write
    wanted: RecordFilter  # Targets; a file is in as a whole or not at all
    with_provenance: bool = True  # Whether side-cars go along, which tell of models and machines
    message: str = ""  # What the pack is for
    key: Path | None = None  # Private key to sign it with
    force: bool = False  # Whether an archive that is there may be replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """A pack that was written."""

    pack: Path  # Where
    manifest: PackManifest  # What it says of itself
    size_bytes: int  # Of the archive
    sha256: str  # Of the archive
    is_signed: bool  # Whether it has a signature


def pack(side: Side, request: PackRequest, *, made_by: str) -> PackResult:
    """Write a pack with the bank files of a side; the same bank gives the same bytes.

    Args:
        side: A bank: a tree on disk, in git, in a snapshot.
        made_by: Program and version, for the manifest.

    Raises:
        UsageError: the side is a file, not a tree.
        BankNotFoundError: it has nothing of these targets.
        BankFormatError: a bank file is broken, or has a name that no pack can hold.
        BankPathError: the archive is there already, or cannot be written.
    """
    if not side.is_tree:
        raise UsageError("a pack holds a bank, not a file", got=side.label, expected="its root")
    if os.path.lexists(request.output) and not request.force:
        raise BankPathError("is there already", path=request.output, hint="--force replaces it")
    contents, files = {}, []
    for file, data in _files(side, request):
        contents[file.name] = data
        files.append(file)
    if not any(file.records for file in files):
        raise BankNotFoundError(
            "no records to pack" + (" for these targets" if request.wanted.soc else ""),
            where=side.label,
            hint=f"aoebank ls {shell_word(side.label)}",
        )
    manifest = PackManifest(
        message=request.message,
        source=side.label,
        soc_versions=_targets(files),
        files=tuple(files),
        made_by=made_by,
    )
    signature = None
    if request.key is not None:
        signature = sign_data(serialize_manifest(manifest), request.key, NAMESPACE)
    data = make_archive(manifest, contents, signature)
    update_file(request.output, lambda _: data)
    return PackResult(
        pack=request.output,
        manifest=manifest,
        size_bytes=len(data),
        sha256=sha256_of(data),
        is_signed=signature is not None,
    )


def _targets(files: Iterable[PackedFile]) -> tuple[str, ...]:
    """Return the targets of the records."""
    found = {target_of(file.name) for file in files if file.records}
    return tuple(sorted(found - {""}))


def _files(side: Side, request: PackRequest) -> Iterator[tuple[PackedFile, bytes]]:
    """Yield the files of a pack: bank files, their companions, and the quarantine."""
    for name in side.names():
        if not holds_whole_file(request.wanted, name):
            continue
        parsed = side.load(name)
        if parsed is None:
            continue
        raise_if_broken(parsed)
        yield _file(name, parsed.data, records=len(parsed))
        binary_cache = parsed.format.companion(Path(name))
        beside = [binary_cache.as_posix()] if binary_cache is not None else []
        beside += [f"{name}{SUFFIX}"] if request.with_provenance else []
        for other in beside:
            data = side.read_bytes(other)
            if data is not None:
                yield _file(other, data)
    quarantine = side.read_bytes(QUARANTINE)
    if quarantine:
        yield _file(QUARANTINE, quarantine)


def _file(name: str, data: bytes, *, records: int = 0) -> tuple[PackedFile, bytes]:
    if not is_name_in_bank(name):  # or nobody could unpack it
        raise BankFormatError(
            "has a name no pack can hold", path=Path(name), expected="a name without a backslash"
        )
    file = PackedFile(name=name, sha256=sha256_of(data), size_bytes=len(data), records=records)
    return file, data
