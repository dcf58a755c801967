"""Only findings that were not there before, whatever moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import golden_harness
from support.git_work_tree import WorkTree
from support.runtime_kb_lines import NAME, with_info, with_knowledge

import aoebank
from aoebank import BankFormatError, BankNotFoundError, Finding, HistoryError
from aoebank.storage.bank import load_file

OLD = with_knowledge(usedCoreNum=1000)
SOUND = with_info(m=7)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkTree:
    tree = WorkTree(tmp_path)
    for name in ("PATH", "HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.setenv(name, tree.env[name])
    (tree.top / NAME).write_text(f"{OLD}\n{SOUND}\n")
    tree.git("add", "-A")
    tree.git("commit", "-qm", "a bank with a finding")
    return tree


def new(path: Path, baseline: str | Path = "git:HEAD") -> list[Finding]:
    return [*aoebank.validate(path, baseline=baseline, ignore="AB307").findings]


def broken(m: int) -> str:
    record = json.loads(with_info(m=m))
    record["knowledge"]["usedCoreNum"] = 1000
    return json.dumps(record)


def test_finding_of_before_is_left_out_and_counted(tree: WorkTree) -> None:
    result = aoebank.validate(tree.top, baseline="git:HEAD", ignore="AB307")
    assert (result.findings, result.known) == ((), 1)


def test_lines_may_move(tree: WorkTree) -> None:
    (tree.top / NAME).write_text(f"{with_info(m=8)}\n{with_info(m=9)}\n{SOUND}\n{OLD}\n")
    assert new(tree.top) == []


def test_same_finding_in_another_record_is_new(tree: WorkTree) -> None:
    (tree.top / NAME).write_text(f"{SOUND}\n{broken(8)}\n")  # the old one is gone
    (finding,) = new(tree.top)
    assert (finding.code, finding.location.line) == ("AB406", 2)


def test_more_of_what_was_wrong_is_new(tree: WorkTree) -> None:
    (tree.top / NAME).write_text(f"{with_knowledge(usedCoreNum=2000)}\n{SOUND}\n")
    assert [finding.got for finding in new(tree.top)] == ["2000"]


def test_of_equal_findings_as_many_are_known_as_there_were(tree: WorkTree) -> None:
    (tree.top / NAME).write_text(f"{OLD}\n\n{SOUND}\n")
    tree.git("commit", "-qam", "a blank line")
    (tree.top / NAME).write_text(f"{OLD}\n\n\n{SOUND}\n")
    assert [finding.code for finding in new(tree.top)] == ["AB112"]


def test_new_file_and_new_folder_have_nothing_known(tree: WorkTree) -> None:
    folder = tree.top / "new"
    folder.mkdir()
    (folder / NAME).write_text(f"{OLD}\n")
    assert [finding.code for finding in new(folder)] == ["AB406"]
    assert [finding.code for finding in new(folder / NAME)] == ["AB406"]
    assert [finding.code for finding in new(tree.top)] == ["AB406"]


def test_record_that_came_into_quarantine_is_new(tree: WorkTree) -> None:
    key = load_file(tree.top / NAME).keys[1]
    added = golden_harness.run(
        "aoebank", ["quarantine", "add", key, str(tree.top), "--reason", "hangs"]
    )
    assert added.exit_code == 0, added.stderr
    (tree.top / NAME).write_text(f"{OLD}\n{SOUND}\n")  # it comes back
    assert [finding.code for finding in new(tree.top)] == ["AB513"]
    tree.git("add", "-A", "-f")
    tree.git("commit", "-qm", "quarantine")
    assert new(tree.top / NAME) == []


def test_bank_with_a_name_of_its_own_is_found_in_the_revision(tree: WorkTree) -> None:
    (tree.top / NAME).rename(tree.top / "odd.json")
    tree.git("add", "-A")
    tree.git("commit", "-qm", "rename")
    assert new(tree.top) == []


def test_document_written_earlier_is_a_baseline(tree: WorkTree, tmp_path: Path) -> None:
    document = tmp_path / "known.json"
    result = golden_harness.run("aoebank", ["validate", str(tree.top), "--json"])
    document.write_text(result.stdout)
    assert new(tree.top, document) == []
    (tree.top / NAME).write_text(f"{OLD}\n{broken(8)}\n")
    assert [finding.location.line for finding in new(tree.top, document)] == [2]


def test_exit_code_is_that_of_new_findings(tree: WorkTree) -> None:
    words = ["validate", str(tree.top), "--baseline", "git:HEAD"]
    known = golden_harness.run("aoebank", words)
    assert known.exit_code == 0
    assert "of the baseline left out" in known.stdout
    (tree.top / NAME).write_text(f"{OLD}\n{broken(8)}\n")
    assert golden_harness.run("aoebank", words).exit_code == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "aoebank.validate/1", "findings": [3]}', "\udcff"]
)
def test_what_is_no_document_of_findings_is_refused(tree: WorkTree, text: str) -> None:
    path = tree.top.parent / "known.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BankFormatError, match="not a document of findings"):
        new(tree.top, path)


def test_baseline_that_is_not_there_is_an_error(tree: WorkTree, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="unknown revision"):
        new(tree.top, "git:nope")
    with pytest.raises(BankNotFoundError, match="no such baseline"):
        new(tree.top, tmp_path / "nope.json")
    with pytest.raises(HistoryError):
        new(Path(__file__).parent, "git:--help")
    outside = tree.top.parent / "outside"
    outside.mkdir()
    with pytest.raises(HistoryError, match="not in a git repository"):
        new(outside, "git:HEAD")


@pytest.mark.slow
def test_real_history_shows_what_a_pre_release_brought(shared_data: Path, tmp_path: Path) -> None:
    bundle = shared_data / "ops_nn_history.bundle"
    if not bundle.exists():
        pytest.skip("no history at hand")
    tree = WorkTree(tmp_path)
    tree.git("fetch", "-q", str(bundle), "refs/tags/*:refs/tags/*")
    tree.git("checkout", "-q", "v9.1.0-beta.2.pre")
    result = aoebank.validate(tree.top, baseline="git:v9.1.0-beta.1")
    assert result.known > 4000
    assert {finding.location.path.name.split("_")[4] for finding in result.findings} == {
        "Conv3DBackpropFilterV2",
        "Conv3DBackpropInputV2",
    }
