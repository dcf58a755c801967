"""What a pack holds, and that it comes out again byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import version_banks as banks
from support.documents import find_faults
from support.forked import end_in_time
from support.golden_harness import run

import aoebank
from aoebank import Bank, BankFormatError, BankNotFoundError, BankPathError, UsageError
from aoebank.formats.provenance import SUFFIX
from aoebank.storage.packs.archive import (
    PackedFile,
    PackManifest,
    parse_manifest,
    serialize_manifest,
)
from aoebank.testing.factories import make_provenance, make_record

ASCEND = Path(__file__).resolve().parents[3] / "sample_banks" / "ascend"
OTHER = "Ascend910B2"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    root, records = tmp_path / "bank", [make_record(number) for number in range(3)]
    banks.put(root, *records)
    banks.put(root, make_record(9), soc=OTHER)
    Bank(root).append_provenance(banks.file_of(root), [make_provenance(records[0].key)])
    aoebank.quarantine_add(records[1].key, reason="wrong result", root=root)
    return root


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "p.tar.gz"


def _contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def test_bank_comes_out_as_it_went_in(bank: Path, output: Path, tmp_path: Path) -> None:
    written = aoebank.pack(bank, output=output, message="for all")
    result = aoebank.unpack(output, tmp_path / "out")
    local = {".aoebank/history.db", ".aoebank/.gitignore"}
    wanted = {name: data for name, data in _contents(bank).items() if name not in local}
    assert _contents(tmp_path / "out") == wanted
    assert result.manifest == written.manifest
    assert result.manifest.message == "for all"
    assert result.manifest.records == 3
    assert result.manifest.soc_versions == (OTHER, banks.SOC)
    assert not list(tmp_path.glob(".*"))


def test_all_formats_of_cann_and_their_twins_are_packed(output: Path, tmp_path: Path) -> None:
    assert aoebank.pack(ASCEND, output=output).manifest.soc_versions == (OTHER,)
    aoebank.unpack(output, tmp_path / "out")
    wanted = {name: data for name, data in _contents(ASCEND).items() if name != "README.md"}
    assert _contents(tmp_path / "out") == wanted
    assert any(name.endswith(".bin") for name in wanted)


def test_the_same_bank_gives_the_same_bytes(bank: Path, output: Path, tmp_path: Path) -> None:
    first = aoebank.pack(bank, output=output)
    for path in bank.rglob("*"):
        path.touch()
    second = aoebank.pack(bank, output=tmp_path / "2.tar.gz")
    assert first.sha256 == second.sha256
    assert output.read_bytes() == (tmp_path / "2.tar.gz").read_bytes()


def test_commands_say_what_was_packed(bank: Path, output: Path, tmp_path: Path) -> None:
    pack = ["pack", str(bank), "-o", str(output), "-m", "release 1"]
    text = run("aoebank", pack).stdout
    assert "records for Ascend910B2, x86-64-v4" in text
    again = json.loads(run("aoebank", [*pack, "--force", "--json"]).stdout)
    unpacked = json.loads(run("aoebank", ["unpack", str(output), "--check", "--json"]).stdout)
    assert find_faults(again) == find_faults(unpacked) == []
    assert again["files"] == unpacked["files"]
    text = run("aoebank", ["unpack", str(output), str(tmp_path / "out")]).stdout
    assert "for: release 1\n" in text
    assert f"every file is what the manifest says, unpacked into {tmp_path / 'out'}" in text
    assert "not signed" in text


def test_targets_and_side_cars_can_be_left_out(bank: Path, output: Path, tmp_path: Path) -> None:
    aoebank.pack(bank, output=output, soc="x86*", provenance=False)
    aoebank.unpack(output, tmp_path / "out")
    names = _contents(tmp_path / "out")
    assert not any(name.endswith(SUFFIX) or OTHER in name for name in names)
    assert ".aoebank/quarantine.jsonl" in names


def test_revision_of_git_is_packed_as_it_was(
    bank: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "one")
    for words in (("init", "-q"), ("add", "-A"), commit):
        subprocess.run(["git", "-C", str(bank), *words], check=True)
    before = _contents(bank / banks.SOC)
    banks.put(bank, make_record(50))
    monkeypatch.chdir(bank)
    aoebank.pack("git:HEAD", output=output)
    aoebank.unpack(output, tmp_path / "out")
    assert _contents(tmp_path / "out" / banks.SOC) == before


def test_broken_file_is_not_packed(bank: Path, output: Path) -> None:
    banks.file_of(bank).write_text("{")
    with pytest.raises(BankFormatError):
        aoebank.pack(bank, output=output)
    assert not output.exists()


def test_name_that_unpack_would_refuse_is_not_packed(bank: Path, output: Path) -> None:
    file = banks.file_of(bank, soc=OTHER)
    file.rename(file.with_name(f"a\\{file.name}"))
    with pytest.raises(BankFormatError, match="name no pack can hold"):
        aoebank.pack(bank, output=output)
    assert not output.exists()


def test_bank_that_is_a_link_to_nowhere_is_not_left_out(bank: Path, output: Path) -> None:
    link = banks.file_of(bank).with_name(f"{banks.SOC}_24_AiCore_Gone.json")
    link.symlink_to("nowhere")
    with pytest.raises(BankPathError, match="link to nowhere"):
        aoebank.pack(bank, output=output)
    assert not output.exists()
    aoebank.pack(bank, output=output, soc=OTHER)


def test_archive_that_is_there_is_replaced_by_force_only(bank: Path, output: Path) -> None:
    output.write_bytes(b"mine")
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.pack(bank, output=output)
    assert output.read_bytes() == b"mine"
    aoebank.pack(bank, output=output, force=True)
    assert aoebank.unpack(output, check=True).manifest.records == 3


def test_folder_that_is_there_is_left_alone(bank: Path, output: Path, tmp_path: Path) -> None:
    aoebank.pack(bank, output=output)
    (tmp_path / "out").mkdir()
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.unpack(output, tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


def test_what_is_no_bank_is_refused(bank: Path, output: Path) -> None:
    with pytest.raises(UsageError, match="not a file"):
        aoebank.pack(banks.file_of(bank), output=output)
    with pytest.raises(BankNotFoundError, match="no records"):
        aoebank.pack(bank, output=output, soc="Nothing")


_FILES = st.builds(
    PackedFile,
    name=st.from_regex(r"[A-Za-z0-9_]{1,8}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}){0,3}", fullmatch=True),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    size_bytes=st.integers(0, 1 << 40),
    records=st.integers(0, 1 << 20),
)


@given(
    st.builds(
        PackManifest,
        message=st.text(),
        source=st.text(),
        made_by=st.text(),
        soc_versions=st.lists(st.text()).map(tuple),
        files=st.lists(_FILES, unique_by=lambda file: file.name).map(tuple),
    )
)
def test_manifest_is_read_as_it_was_written(manifest: PackManifest) -> None:
    data = serialize_manifest(manifest)
    assert parse_manifest(data, Path("p")) == manifest
    assert data.isascii()


def _unpack_and_die(pack: Path, root: Path) -> None:
    _make_and_die(lambda: aoebank.unpack(pack, root))


def _make_and_die(make: Callable[[], object]) -> None:
    """Make a bank in a process that dies when it has just got its name."""
    child = os.fork()
    if child == 0:
        end_in_time()
        rename = os.rename

        def last(*arguments: Any) -> None:
            rename(*arguments)
            os._exit(9)

        setattr(os, "rename", last)  # noqa: B010
        try:
            make()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_unpack_killed_at_its_end_and_run_again_finishes(
    bank: Path, output: Path, tmp_path: Path
) -> None:
    aoebank.pack(bank, output=output)
    place = tmp_path / "out"
    _unpack_and_die(output, place)
    whole = _contents(place)
    assert list(tmp_path.glob(".out.unpack*"))
    aoebank.unpack(output, place)
    assert _contents(place) == whole
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.unpack(output, place)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_convert_killed_at_its_end_and_run_again_finishes(bank: Path, tmp_path: Path) -> None:
    rows, place = tmp_path / "rows.jsonl", tmp_path / "out"
    aoebank.convert(bank, output=rows)
    _make_and_die(lambda: aoebank.convert(rows, output=place))
    whole = _contents(place)
    aoebank.convert(rows, output=place)
    assert _contents(place) == whole
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.convert(rows, output=place)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_bank_somebody_changed_since_the_kill_is_left_alone(
    bank: Path, output: Path, tmp_path: Path
) -> None:
    aoebank.pack(bank, output=output)
    _unpack_and_die(output, tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(BankPathError, match="is there already"):
        aoebank.unpack(output, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


def test_folder_is_named_by_an_option_too(bank: Path, output: Path, tmp_path: Path) -> None:
    aoebank.pack(bank, output=output)
    place = str(tmp_path / "out")
    assert run("aoebank", ["unpack", str(output), "-o", place]).exit_code == 0
    assert run("aoebank", ["unpack", str(output), place, "-o", place]).exit_code == 2
