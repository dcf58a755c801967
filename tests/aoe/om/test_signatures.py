"""Native code of an `.om` runs when it is loaded, and only if somebody trusted has signed it."""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import aoe_exit_code
from support.temp_folder import temp_folder

import aoe
from aoe.device.toolchain import Toolchain
from aoe.errors import OfflineModelError
from aoe.om.file import (
    LIBRARY,
    OperatorLibrary,
    read_manifest,
    read_signed,
    sign_offline_model,
    unpack,
    write_offline_model,
)
from aoebank import AoebankError

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH")

_MARKING = """
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { open("MARK", O_CREAT | O_WRONLY, 0644); }
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give each test a cache and a scratch folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with temp_folder(tmp_path / "scratch"):
        yield


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return the file that the library of `evil` makes as soon as it is loaded."""
    return tmp_path / "mark"


@pytest.fixture
def evil(tuned_net: Any, tmp_path: Path, mark: Path, toolchain: Toolchain) -> Path:
    """Return an `.om` whose library does something else than computing."""
    parts = tuned_net.copy_parts(tmp_path / "parts")
    source = tmp_path / "evil.c"
    source.write_text(_MARKING.replace("MARK", str(mark)))
    command = [*toolchain.command, "-shared", "-fPIC", "-o", str(parts / LIBRARY), str(source)]
    subprocess.run(command, check=True)
    write_offline_model(tmp_path / "evil.om", parts, tuned_net.manifest)
    return tmp_path / "evil.om"


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes a key, and beside it `<name>.signers`, which allows it."""

    def make(name: str) -> Path:
        key = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        public = key.with_suffix(".pub").read_text()
        (tmp_path / f"{name}.signers").write_text(f"{name}@example.org {public}")
        return key

    return make


def _aoe(*arguments: object) -> int:
    return aoe_exit_code(arguments)


@needs_ssh
def test_code_runs_on_loading_and_on_nothing_else(
    evil: Path, mark: Path, keys: Callable[[str], Path], tmp_path: Path
) -> None:
    keys("ann")
    signers = tmp_path / "ann.signers"
    unpack(evil, tmp_path / "unpacked")
    assert _aoe("inspect", evil, "--json") == 0
    assert _aoe("inspect", evil, "--html", tmp_path / "page.html") == 0
    for command in ("run", "benchmark", "profile", "advise", "inspect"):
        assert _aoe(command, evil, "--require_signature", signers) == 3
    assert _aoe("inspect", evil, "--times", "--require_signature", signers) == 3
    with pytest.raises(OfflineModelError, match="is not signed") as caught:
        aoe.load(evil, trusted_keys=signers)
    assert "aoe sign" in str(caught.value.hint)
    assert not mark.exists()
    with pytest.warns(aoe.FallbackWarning):
        aoe.load(evil)
    assert mark.exists()


@needs_ssh
def test_signed_model_is_from_who_it_says(
    tuned_net: Any,
    keys: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ann, eve = keys("ann"), keys("eve")
    signed = tmp_path / "signed.om"
    assert _aoe("sign", tuned_net.file, "--key", ann, "--output", signed) == 0
    assert "signed" in capsys.readouterr().out
    assert read_manifest(signed) == read_manifest(tuned_net.file)
    model = aoe.load(signed, trusted_keys=tmp_path / "ann.signers")
    assert model.fallback_reason == ""
    assert _aoe("inspect", signed, "--require_signature", tmp_path / "ann.signers", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["signed"], told["signer"]) == (True, "ann@example.org")
    for signers in (tmp_path / "eve.signers", tmp_path / "none"):
        with pytest.raises(AoebankError):
            aoe.load(signed, trusted_keys=signers)
    assert _aoe("sign", signed, "--key", eve) == 0  # in place, and instead of the first
    with pytest.raises(OfflineModelError, match="not signed by anybody trusted"):
        aoe.load(signed, trusted_keys=tmp_path / "ann.signers")
    aoe.load(signed, trusted_keys=tmp_path / "eve.signers")


@pytest.fixture(scope="module")
def signed(tuned_net: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a signed model; beside it `signers`, which allows its key."""
    folder = tmp_path_factory.mktemp("signed")
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "ann")]
    subprocess.run(key, check=True)
    (folder / "signers").write_text(f"ann@example.org {(folder / 'ann.pub').read_text()}")
    sign_offline_model(tuned_net.file, folder / "ann", folder / "net.om")
    return folder / "net.om"


def _flipped(file: Path, at: int, output: Path) -> Path:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    output.write_bytes(data)
    return output


def _places(file: Path) -> dict[str, tuple[int, int]]:
    """Return where the bytes of each part are, by name: the first, and that behind the last."""
    places = {}
    with zipfile.ZipFile(file) as archive, file.open("rb") as stream:
        for member in archive.infolist():
            stream.seek(member.header_offset + 26)
            name_bytes, extra_bytes = struct.unpack("<HH", stream.read(4))
            start = member.header_offset + 30 + name_bytes + extra_bytes
            places[member.filename] = (start, start + member.file_size)
    return places


@needs_ssh
@pytest.mark.parametrize("cache", ["empty", "filled", "off"])
def test_one_bit_in_any_part_is_refused_where_a_signature_is_asked_for(
    signed: Path,
    cache: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signers = signed.with_name("signers")
    if cache == "off":
        monkeypatch.setenv("AOE_CACHE_SIZE", "0")
    if cache == "filled":
        assert aoe.load(signed, trusted_keys=signers).fallback_reason == ""
    for name, (start, end) in _places(signed).items():
        changed = _flipped(signed, (start + end) // 2, tmp_path / f"{name}.om")
        with pytest.raises(OfflineModelError), warnings.catch_warnings():
            warnings.simplefilter("error")
            aoe.load(changed, trusted_keys=signers)
        commands = ("run", "inspect") if cache == "filled" else ()
        for command in (*commands, *(("benchmark", "profile") if name == LIBRARY else ())):
            assert _aoe(command, changed, "--require_signature", signers) == 3, (command, name)
            told = capsys.readouterr()
            assert "signed by" not in told.out and changed.name in told.err


@needs_ssh
def test_one_bit_beside_the_parts_changes_nothing_or_is_refused(
    signed: Path, tmp_path: Path
) -> None:
    signers, changed = signed.with_name("signers"), tmp_path / "changed.om"
    inside = [range(*place) for place in _places(signed).values()]
    beside = [at for at in range(signed.stat().st_size) if not any(at in one for one in inside)]
    refused = 0
    for at in beside[:: len(beside) // 40]:
        _flipped(signed, at, changed)
        try:
            read_signed(changed, signers)
        except OfflineModelError:
            refused += 1
        else:
            with zipfile.ZipFile(changed) as archive, zipfile.ZipFile(signed) as honest:
                assert archive.namelist() == honest.namelist()
                assert all(archive.read(one) == honest.read(one) for one in honest.namelist())
    assert refused > 20


def _gap(data: bytes, at: int) -> bytes:
    """Return a zip with bytes between two parts, which its directory knows nothing of."""
    hidden = b"PK\3\4" + bytes(40)
    end = data.rindex(b"PK\5\6")
    directory = bytearray(data[struct.unpack("<L", data[end + 16 : end + 20])[0] : end])
    place = 0
    while (place := directory.find(b"PK\1\2", place)) >= 0:
        (offset,) = struct.unpack_from("<L", directory, place + 42)
        struct.pack_into("<L", directory, place + 42, offset + len(hidden) * (offset >= at))
        place += 4
    start = len(data) - len(directory) - (len(data) - end) + len(hidden)
    last = data[end : end + 16] + struct.pack("<L", start) + data[end + 20 :]
    return data[:at] + hidden + data[at : start - len(hidden)] + bytes(directory) + last


def _second_name(file: Path) -> bytes:
    """Return the zip with a field some readers take for the name of a part."""
    packed = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(packed, "w") as sink:
        for member in source.infolist():
            other = b"\1" + struct.pack("<L", zlib.crc32(member.filename.encode())) + b"elsewhere"
            head = zipfile.ZipInfo(member.filename)
            head.extra = struct.pack("<HH", 0x7075, len(other)) + other
            sink.writestr(head, source.read(member))
    return packed.getvalue()


@needs_ssh
@pytest.mark.parametrize(
    "trick", ["twice", "extra", "compressed", "before", "between", "comment", "second name"]
)
def test_zip_that_another_reader_reads_otherwise_is_refused(
    trick: str, signed: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.om"
    shutil.copy(signed, changed)
    with zipfile.ZipFile(changed, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, that there is such a part
        second = archive.infolist()[1].header_offset
        if trick in ("twice", "extra"):
            archive.writestr(LIBRARY if trick == "twice" else "more.so", b"other")
        if trick == "comment":
            archive.comment = b"PK\5\6"
    if trick == "compressed":
        with zipfile.ZipFile(signed) as source, zipfile.ZipFile(changed, "w") as sink:
            for name in source.namelist():
                sink.writestr(name, source.read(name), zipfile.ZIP_DEFLATED)
    data = signed.read_bytes()
    if trick == "before":
        changed.write_bytes(b"#!/bin/sh\n" + data)
    if trick == "between":
        changed.write_bytes(_gap(data, second))
        assert read_manifest(changed) == read_manifest(signed)
    if trick == "second name":
        changed.write_bytes(_second_name(signed))
    with pytest.raises(OfflineModelError):
        aoe.load(changed, trusted_keys=signed.with_name("signers"))
    assert _aoe("inspect", changed, "--require_signature", signed.with_name("signers")) == 3


@needs_ssh
def test_damaged_model_is_not_signed(
    evil: Path, keys: Callable[[str], Path], tmp_path: Path
) -> None:
    data = bytearray(evil.read_bytes())
    with zipfile.ZipFile(evil) as archive:
        data[archive.getinfo(LIBRARY).header_offset + 200] ^= 1
    evil.write_bytes(data)
    output = tmp_path / "signed.om"
    assert _aoe("sign", evil, "--key", keys("ann"), "--output", output) == 3
    assert not output.exists()


def test_warning_of_another_library_comes_before_it_is_loaded(
    tuned_net: Any, tmp_path: Path
) -> None:
    known = OperatorLibrary(path="ops.so", sha256="0" * 64)
    manifest = replace(tuned_net.manifest, operators=(known,))
    write_offline_model(tmp_path / "ops.om", tuned_net.parts, manifest)
    (tmp_path / "other.so").write_bytes(b"loading this is an error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="tuned with another library of operators"):
            aoe.load(tmp_path / "ops.om", custom_ops_library=tmp_path / "other.so")
