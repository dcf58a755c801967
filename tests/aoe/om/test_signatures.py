"""Native code of an `.om` runs when it is loaded, and only if somebody trusted has signed it."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
import zipfile
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
    MANIFEST,
    OperatorLibrary,
    read_manifest,
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


@needs_ssh
@pytest.mark.parametrize("part", [MANIFEST, LIBRARY])
def test_signature_is_of_every_byte(
    tuned_net: Any, evil: Path, mark: Path, keys: Callable[[str], Path], tmp_path: Path, part: str
) -> None:
    """A changed manifest is refused, and a library that is another one never runs."""
    signed, changed = tmp_path / "signed.om", tmp_path / "changed.om"
    assert _aoe("sign", tuned_net.file, "--key", keys("ann"), "--output", signed) == 0
    with (
        zipfile.ZipFile(signed) as source,
        zipfile.ZipFile(evil) as other,
        zipfile.ZipFile(changed, "w") as sink,
    ):
        for name in source.namelist():
            taken = name in (LIBRARY, part)
            sink.writestr(name, (other if taken else source).read(name))
    if part == MANIFEST:
        with pytest.raises(OfflineModelError, match="or was changed since"):
            aoe.load(changed, trusted_keys=tmp_path / "ann.signers")
    else:
        with pytest.warns(aoe.FallbackWarning, match=r"kernels\.so: damaged part"):
            aoe.load(changed, trusted_keys=tmp_path / "ann.signers")
    assert not mark.exists()


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
