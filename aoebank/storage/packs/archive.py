"""The archive of a pack: a compressed tar whose bytes depend on nothing but the bank.

manifest.json        first, so that it can be read without the rest
manifest.json.sig    only in a signed pack
bank/<name>          each file, in the order of the manifest
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aoebank.errors import AoebankError, BankFormatError, BankNotFoundError, BankPermissionError
from aoebank.model.digest import sha256_of
from aoebank.storage.git.attributes import QUARANTINE
from aoebank.storage.signing import MOST_SIGNATURE_BYTES


def is_name_in_bank(name: str) -> bool:
    """True for a path below the root of a bank that a bank has use for.

    A hidden file or folder is none but the quarantine: git runs programs that `.git/config` names,
    and a journal makes the next command rename and remove files.
    """
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or "\\" in name or "\0" in name:
        return False
    return name == QUARANTINE or not any(part.startswith((".", "/")) for part in parts)


SCHEMA = "aoebank.pack_manifest/1"
_HEX_DIGITS = frozenset("0123456789abcdef")
_SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A file of a pack."""

    name: str  # Path below the root of the bank, `/` between the parts
    sha256: str  # Of its bytes, in hexadecimal digits
    size_bytes: int  # How long it is
    records: int = 0  # How many records it holds; 0 for what stands beside a bank file


@dataclass(frozen=True, slots=True, kw_only=True)
class PackManifest:
    """Contents and origin of a pack."""

    message: str  # What it is for, in the words of whoever made it; may be empty
    source: str  # What was packed, as a person wrote it: a path, `git:v1.0`
    soc_versions: tuple[str, ...]  # Targets it has records for, sorted
    files: tuple[PackedFile, ...]  # In the order they lie in the archive
    made_by: str  # Program and version that made it

    @property
    def records(self) -> int:
        """Return the number of records."""
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
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
        raise _damaged(pack, f"its manifest is not JSON: {error}") from error
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
        raise _damaged(pack, "its manifest names a file twice")
    return PackManifest(
        message=_member(document, "message", str, pack),
        source=_member(document, "source", str, pack),
        made_by=_member(document, "made_by", str, pack),
        soc_versions=tuple(map(str, _member(document, "soc_versions", list, pack))),
        files=files,
    )


def _file(entry: Any, pack: Path) -> PackedFile:
    if not isinstance(entry, dict):
        raise _damaged(pack, "its manifest has a file that is no object")
    name = _member(entry, "name", str, pack)
    if not is_name_in_bank(name):
        raise _damaged(pack, f"its manifest has a file that would lie elsewhere: {name!r}")
    digest = _member(entry, "sha256", str, pack)
    if len(digest) != _SHA256_DIGITS or not _HEX_DIGITS.issuperset(digest):
        raise _damaged(pack, f"its manifest has no SHA-256 for {name}")
    return PackedFile(
        name=name,
        sha256=digest,
        size_bytes=_count(entry, "size_bytes", pack),
        records=_count(entry, "records", pack),
    )


def _count(members: Mapping[str, Any], name: str, pack: Path) -> int:
    value: int = _member(members, name, int, pack)
    if value < 0 or isinstance(value, bool):
        raise _damaged(pack, f"its manifest has {value} as {name}")
    return value


def _member(members: Mapping[str, Any], name: str, kind: type, pack: Path) -> Any:
    value = members.get(name)
    if not isinstance(value, kind):
        raise _damaged(pack, f"its manifest has no {name}")
    return value


NAMESPACE = "aoebank-pack"
"""What signatures are for, see ssh-keygen(1)."""
MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
_FOLDER = "bank/"
_MODE = 0o644
_LEVEL = 9
_MOST_MANIFEST_BYTES = 64 << 20
_MOST_FILE_BYTES = 2 << 30
_MOST_BEFORE_FILES_BYTES = _MOST_MANIFEST_BYTES + MOST_SIGNATURE_BYTES + (1 << 20)
_PIECE_BYTES = 1 << 16
_MOST_HEAD_BYTES = 1 << 14
"""Of a file in a tar: its head, that of a long name, and what fills its last block."""
_PLENTY_BYTES, _MOST_RATIO = 64 << 20, 200
"""What an honest pack may become, and times its own length: each record has a digest of 16 bytes in
it that nothing compresses, so a bank shrinks to a hundredth at most."""


class _Measured(io.RawIOBase):
    """A stream that ends with an error before it has given more than it may.

    A tar may have heads as long as files, which are read before anything can be asked of them.
    """

    def __init__(self, stream: gzip.GzipFile, pack: Path) -> None:
        super().__init__()
        self._stream = stream
        self._pack = pack
        self.left_bytes = _MOST_BEFORE_FILES_BYTES

    def read(self, size: int = -1, /) -> bytes:
        try:
            data = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged(self._pack, f"is no pack, or not all of one: {error}") from error
        self.left_bytes -= len(data)
        if self.left_bytes < 0:
            raise _damaged(self._pack, "holds more than its manifest says")
        return data


# ---- the archive ----


@dataclass(slots=True, kw_only=True)
class Pack:
    """A pack that is being read, from its beginning to its end."""

    manifest: PackManifest  # Read and checked
    signed: bytes  # The bytes of the manifest, which a signature is about
    signature: bytes | None  # In OpenSSH's form; None in a pack that is not signed
    _path: Path
    _archive: tarfile.TarFile
    _stream: _Measured
    _following: tarfile.TarInfo | None

    def iter_files(self) -> Iterator[tuple[PackedFile, bytes]]:
        """Yield the files with their bytes, once, each checked against the manifest.

        Raises:
            BankFormatError: a file is missing, unknown, of another length or content.
        """
        for file in self.manifest.files:
            member = self._following
            if member is None or member.name != f"{_FOLDER}{file.name}":
                raise _damaged(self._path, f"{file.name} is not where its manifest says")
            if member.size != file.size_bytes:
                raise _damaged(
                    self._path,
                    f"{file.name} has another length than its manifest says",
                    got=f"{member.size} bytes",
                    expected=f"{file.size_bytes} bytes",
                )
            data = _content(self._archive, member, self._path)
            if sha256_of(data) != file.sha256:
                raise _damaged(self._path, f"{file.name} is not what its manifest says")
            self._following = self._archive.next()
            yield file, data
        if self._following is not None:
            raise _damaged(self._path, "holds files its manifest does not name")
        while data := self._stream.read(_PIECE_BYTES):  # to the end, where gzip keeps a checksum
            if any(data):
                raise _damaged(self._path, "holds more than its files")


def make_archive(
    manifest: PackManifest, contents: Mapping[str, bytes], signature: bytes | None
) -> bytes:
    """Return the bytes of a pack.

    Args:
        contents: Bytes of every file of the manifest, by its name.
        signature: Of the manifest.
    """
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add(archive, MANIFEST, serialize_manifest(manifest))
        if signature is not None:
            _add(archive, SIGNATURE, signature)
        for file in manifest.files:
            _add(archive, f"{_FOLDER}{file.name}", contents[file.name])
    return target.getvalue()


@contextmanager
def open_pack(pack: Path) -> Iterator[Pack]:
    """Give a pack with its manifest read; the files in it are read as they are asked for.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it is no pack, or the part that is read is damaged.
    """
    try:
        with gzip.open(pack) as plain:
            measured = _Measured(plain, pack)
            with tarfile.open(fileobj=measured, mode="r|") as archive:
                opened = _begin(archive, measured, pack)
                measured.left_bytes += _demand_plausible(opened.manifest, pack)
                yield opened
    except AoebankError:
        raise  # some of them are errors of the system too
    except FileNotFoundError as error:
        raise BankNotFoundError("no such file", path=pack) from error
    except (PermissionError, IsADirectoryError) as error:
        raise BankPermissionError(f"cannot be read: {error.strerror}", path=pack) from error
    except (tarfile.TarError, EOFError) as error:
        raise _damaged(pack, f"is no pack, or not all of one: {error}") from error


def _begin(archive: tarfile.TarFile, stream: _Measured, pack: Path) -> Pack:
    first = archive.next()
    if first is None or first.name != MANIFEST or not first.isreg():
        raise BankFormatError(
            "is no pack: it does not begin with a manifest",
            path=pack,
            expected="a file `aoebank pack` wrote",
        )
    signed = _content(archive, first, pack, most=_MOST_MANIFEST_BYTES)
    manifest = parse_manifest(signed, pack)
    following, signature = archive.next(), None
    if following is not None and following.name == SIGNATURE:
        signature = _content(archive, following, pack, most=MOST_SIGNATURE_BYTES)
        following = archive.next()
    return Pack(
        manifest=manifest,
        signed=signed,
        signature=signature,
        _path=pack,
        _archive=archive,
        _stream=stream,
        _following=following,
    )


def _demand_plausible(manifest: PackManifest, pack: Path) -> int:
    """Return the most bytes that may follow a manifest, which says it of itself.

    Raises:
        BankFormatError: no bank could have been packed into so little.
    """
    most = max(_PLENTY_BYTES, _MOST_RATIO * pack.stat().st_size)
    if manifest.size_bytes > most:
        raise _damaged(
            pack,
            "would unpack to more than a bank of its length can",
            got=f"{manifest.size_bytes} bytes",
            expected=f"at most {most}",
        )
    return manifest.size_bytes + _MOST_HEAD_BYTES * (len(manifest.files) + 1)


def _content(
    archive: tarfile.TarFile, member: tarfile.TarInfo, pack: Path, *, most: int = _MOST_FILE_BYTES
) -> bytes:
    if not member.isreg() or member.issparse():
        raise _damaged(pack, f"{member.name} is no plain file")
    if member.size > most:
        raise _damaged(
            pack, f"{member.name} is too large", got=f"{member.size} bytes", expected=f"{most}"
        )
    stream = archive.extractfile(member)
    return stream.read() if stream is not None else b""


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # no owner, no time: the same bank gives the same bytes
    member.size, member.mode = len(data), _MODE
    archive.addfile(member, io.BytesIO(data))


def _damaged(pack: Path, problem: str, *, got: str = "", expected: str = "") -> BankFormatError:
    return BankFormatError(
        problem,
        path=pack,
        got=got or None,
        expected=expected or None,
        hint="get the pack again from where it was made",
    )
