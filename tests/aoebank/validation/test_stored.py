"""Revisions and snapshots are checked as folders are, and findings name them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import version_banks
from support.faulty_system import FaultySystem
from support.runtime_kb_lines import line, with_info, with_knowledge

from aoebank import HistoryError, UsageError, diff, fix, validate

FOLDER = "bank/Ascend910B2/unified_bank"
NAME = "Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json"
SIBLING = NAME.replace("B2", "B1")


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    """Enter a work tree whose two commits have one error and one note, then another error."""
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (tmp_path / "source.cpp").write_text("int main() {}\n")
    version_banks.git(tmp_path, "init", "-q")
    (folder / NAME).write_text(f"{with_knowledge(baseM=-1)}\n{with_info(m=4096)}\n\n")
    for message in ("one", "two"):
        version_banks.git(tmp_path, "add", "-A")
        version_banks.git(tmp_path, "commit", "-q", "-m", message)
        with (folder / NAME).open("a") as stream:
            stream.write(f"{with_info(m=8192)[:-1]}\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("path", ["", ":bank", f":{FOLDER}/{NAME}", ":./bank"])
def test_a_revision_has_the_findings_of_its_folder(top: Path, path: str) -> None:
    version_banks.git(top, "checkout", "-q", "HEAD~1", "--", FOLDER)
    told = [(found.code, found.location.line) for found in validate(top / "bank").findings]
    stored = validate(f"git:HEAD~1{path}")
    assert [(found.code, found.location.line) for found in stored.findings] == told
    assert {code for code, _ in told} >= {"AB405", "AB112"}
    for found in stored.findings:
        assert str(found.location.path).startswith("git:HEAD~1")
        assert str(found.location.path).endswith(NAME)


def test_a_baseline_of_another_revision_leaves_what_is_new(top: Path) -> None:
    new = validate("git:HEAD", baseline="git:HEAD~1")
    assert {found.code for found in new.findings} == {"AB103"}
    assert new.known == len(validate("git:HEAD~1").findings)
    assert validate("git:HEAD~1", baseline="git:HEAD").findings == ()
    assert validate("git:HEAD:bank", baseline="git:HEAD~1").findings
    with pytest.raises(UsageError, match="no baseline in common"):
        validate(["git:HEAD", str(top / "bank")], baseline="git:HEAD~1")
    with pytest.raises(HistoryError):
        validate("git:HEAD", baseline="git:nowhere")


def test_a_snapshot_is_checked_with_its_quarantine_and_side_cars(tmp_path: Path) -> None:
    (tmp_path / "Ascend910B2" / "unified_bank").mkdir(parents=True)
    file = tmp_path / "Ascend910B2" / "unified_bank" / NAME
    file.write_text(with_knowledge(baseM=-1) + "\n")
    version_banks.snap(tmp_path, tag="v1")
    file.write_text(line() + "\n")
    (found,) = validate(f"snapshot:v1:{tmp_path}", select="AB405").findings
    assert str(found.location.path).startswith("snapshot:")
    assert not validate(tmp_path, select="AB405").findings


def test_nothing_is_unpacked(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = validate("git:HEAD")
    full = OSError(errno.ENOSPC, "No space left on device")
    FaultySystem(monkeypatch).fail("tempfile.mkdtemp", full)
    result = validate("git:HEAD", baseline="git:HEAD")
    assert (result.checked, result.known) == (expected.checked, len(expected.findings))


@pytest.mark.parametrize("below", ["", ":bank", ":bank/Ascend310P3/unified_bank"])
def test_folder_of_a_revision_is_that_of_a_target(top: Path, below: str) -> None:
    place = top / "bank" / "Ascend310P3" / "unified_bank" / NAME
    place.parent.mkdir(parents=True)
    place.write_text(f"{line()}\n")
    version_banks.git(top, "add", "-A")
    version_banks.git(top, "commit", "-q", "-m", "misplaced")
    (found,) = validate(f"git:HEAD{below}", select="AB503").findings
    assert (found.got, found.expected) == ("Ascend910B2", "Ascend310P3")


def test_stored_banks_and_folders_are_checked_in_one_run(top: Path) -> None:
    result = validate([top / "bank", "git:HEAD"])
    assert result.files == 2
    assert {str(path).startswith("git:") for path in result.checked} == {True, False}


def test_hints_name_the_revision_and_can_be_followed(top: Path) -> None:
    (top / FOLDER / NAME).write_text(f"{line()}\n{with_info(m=4096)}\n")
    place = top / "bank" / "Ascend910B1" / "unified_bank" / SIBLING
    place.parent.mkdir(parents=True)
    place.write_text(f"{line()}\n")
    version_banks.git(top, "add", "-A")
    version_banks.git(top, "commit", "-q", "-m", "siblings")
    (found,) = validate("git:HEAD:bank", select="AB517").findings
    a, b = found.hint.partition("aoebank diff ")[2].split()[:2]
    assert len(diff(a, b).changes) == 1


def test_what_is_stored_cannot_be_mended(top: Path) -> None:
    with pytest.raises(UsageError, match="cannot be mended"):
        fix("git:HEAD")
