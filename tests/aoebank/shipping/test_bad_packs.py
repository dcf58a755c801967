"""Packs that are damaged, or made to do harm: nothing of them is ever unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import version_banks as banks

import aoebank
from aoebank import AoebankError, BankFormatError, BankNotFoundError, UsageError
from aoebank.testing.factories import make_record

MUTATIONS = 150
Members = list[tuple[tarfile.TarInfo, bytes]]
Edit = Callable[[dict[str, Any]], object]

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH")


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    banks.put(tmp_path / "bank", *(make_record(number) for number in range(4)))
    return aoebank.pack(tmp_path / "bank", output=tmp_path / "p.tar.gz").pack


def _rewrite(pack: Path, change: Callable[[Members], object]) -> None:
    members: Members = []
    with tarfile.open(pack) as archive:
        for info in archive:
            stream = archive.extractfile(info)
            assert stream is not None
            members.append((info, stream.read()))
    change(members)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for info, data in members:
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    pack.write_bytes(target.getvalue())


def _edit_manifest(edit: Edit) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        document = json.loads(members[0][1])
        edit(document)
        members[0] = (members[0][0], json.dumps(document).encode())

    return change


def _is_refused(pack: Path, root: Path, match: str) -> None:
    with pytest.raises(BankFormatError, match=match):
        aoebank.unpack(pack, check=True)
    with pytest.raises(BankFormatError, match=match):
        aoebank.unpack(pack, root)
    assert not root.exists()
    assert not [path for path in root.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "../out", "a/../../b", "a//b", "./a", "", "a\\b", "a\0b", "a/"),
        *(".git/config", "a/.git/hooks/post-checkout", ".x.json.settle.tmp", ".aoebank/history.db"),
    ],
)
def test_name_that_leads_elsewhere(pack: Path, tmp_path: Path, name: str) -> None:
    _rewrite(pack, _edit_manifest(lambda found: found["files"][0].update(name=name)))
    _is_refused(pack, tmp_path / "out", "lie elsewhere")


@pytest.mark.parametrize("claimed", [True, False])
def test_pack_that_unpacks_to_more_than_a_bank_could(
    pack: Path, tmp_path: Path, claimed: bool
) -> None:
    """A kilobyte of it is a megabyte of zeros, in a file or in the head of one."""
    zeros = bytes(65 << 20)

    def grow(members: Members) -> None:
        info, _ = members.pop()
        if claimed:
            members.append((info, zeros))
            document = json.loads(members[0][1])
            document["files"][-1].update(
                size_bytes=len(zeros), sha256=hashlib.sha256(zeros).hexdigest()
            )
            members[0] = (members[0][0], json.dumps(document).encode())
        else:
            info.pax_headers = {"comment": "0" * (66 << 20)}
            members.append((info, b""))

    _rewrite(pack, grow)
    assert pack.stat().st_size < 200_000
    problem = "more than a bank of its length can" if claimed else "more than its manifest says"
    _is_refused(pack, tmp_path / "out", problem)


def _change_last(members: Members) -> None:
    info, data = members[-1]
    members[-1] = (info, data.replace(b"16", b"61", 1))


def _link_last(members: Members) -> None:
    info, data = members[-1]
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members[-1] = (info, data)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_change_last, "is not what its manifest says"),
        (_link_last, "another length"),
        (lambda found: found.append((tarfile.TarInfo("bank/x.json"), b"{}")), "does not name"),
        (lambda found: found.pop(), "is not where its manifest says"),
        (lambda found: found.append((found.pop()[0], b"{}")), "another length"),
        (lambda found: found.pop(0), "does not begin with a manifest"),
    ],
)
def test_files_that_are_not_those_of_the_manifest(
    pack: Path, tmp_path: Path, change: Callable[[Members], object], match: str
) -> None:
    _rewrite(pack, change)
    _is_refused(pack, tmp_path / "out", match)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda found: found.update(schema="aoebank.pack_manifest/2"), "another kind or version"),
        (lambda found: found.update(files={}), "has no files"),
        (lambda found: found.update(files=found["files"] * 2), "names a file twice"),
        (lambda found: found["files"][0].update(sha256="0"), "no SHA-256"),
        (lambda found: found["files"][0].update(size_bytes=-1), "as size_bytes"),
        (lambda found: found["files"][0].pop("records"), "has no records"),
    ],
)
def test_manifest_that_is_none(pack: Path, tmp_path: Path, edit: Edit, match: str) -> None:
    _rewrite(pack, _edit_manifest(edit))
    _is_refused(pack, tmp_path / "out", match)


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"{}", gzip.compress(b""), gzip.compress(b"x" * 2000)],
    ids=["empty", "a byte", "JSON", "nothing packed", "no tar"],
)
def test_something_else_is_no_pack(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p.tar.gz").write_bytes(data)
    _is_refused(tmp_path / "p.tar.gz", tmp_path / "out", "pack")


def test_folder_is_no_pack(tmp_path: Path) -> None:
    with pytest.raises(AoebankError, match="cannot be read"):
        aoebank.unpack(tmp_path, check=True)


def test_any_damage_is_found_or_means_nothing(pack: Path, tmp_path: Path) -> None:
    whole, rng, found = pack.read_bytes(), random.Random(1), 0
    wanted = banks.file_of(tmp_path / "bank").read_bytes()
    for number in range(MUTATIONS):
        data = bytearray(whole)
        if number % 3 == 0:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        pack.write_bytes(bytes(data))
        try:
            aoebank.unpack(pack, tmp_path / "out")
        except BankFormatError:
            found += 1
            assert not (tmp_path / "out").exists()
        else:  # in the head of gzip, or in a tar header's field that says nothing
            assert banks.file_of(tmp_path / "out").read_bytes() == wanted
            shutil.rmtree(tmp_path / "out")
    assert found > MUTATIONS // 2


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:],
        lambda data: data[:-8],
        lambda data: data + gzip.compress(b"another tar"),
        lambda data: data + b"#!/bin/sh",
    ],
    ids=["last of the data", "checksum", "no checksum", "another archive", "a script"],
)
def test_bytes_behind_the_files_are_refused(
    pack: Path, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    pack.write_bytes(change(pack.read_bytes()))
    _is_refused(pack, tmp_path / "out", "pack|more than its files")


@needs_ssh
def test_signed_pack_is_from_who_it_says(pack: Path, tmp_path: Path) -> None:
    signed = {}
    for name in ("ann", "eve"):
        key = tmp_path / name
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(make, check=True)
        output = tmp_path / f"{name}.tar.gz"
        signed[name] = aoebank.pack(tmp_path / "bank", output=output, sign=key).pack
    allowed = tmp_path / "allowed"
    allowed.write_text(f"ann@example.org {(tmp_path / 'ann.pub').read_text()}")
    result = aoebank.unpack(signed["ann"], tmp_path / "out", allowed_signers=allowed)
    assert (result.is_signed, result.signer) == (True, "ann@example.org")
    assert aoebank.unpack(signed["eve"], check=True).is_signed
    _rewrite(signed["ann"], _edit_manifest(lambda found: found.update(message="changed")))
    for bad, match in (
        (signed["eve"], "not signed by anybody allowed"),
        (signed["ann"], "changed since"),
        (pack, "is not signed"),
    ):
        with pytest.raises(BankFormatError, match=match):
            aoebank.unpack(bad, tmp_path / "other", allowed_signers=allowed)
        assert not (tmp_path / "other").exists()


@needs_ssh
def test_key_that_is_none(tmp_path: Path, pack: Path) -> None:
    (tmp_path / "key").write_text("no key")
    output = tmp_path / "q.tar.gz"
    with pytest.raises(UsageError, match="cannot sign with this key"):
        aoebank.pack(tmp_path / "bank", output=output, sign=tmp_path / "key")
    with pytest.raises(BankNotFoundError, match="no such key"):
        aoebank.pack(tmp_path / "bank", output=output, sign=tmp_path / "none")
    with pytest.raises(BankNotFoundError, match="allowed signers"):
        aoebank.unpack(pack, check=True, allowed_signers=tmp_path / "none")
    assert not output.exists()
