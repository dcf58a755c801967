"""Each verb on a bank with a link, which reads and writes as a copy would, and one it cannot read.

The same commands run in two repositories that differ in one thing: where one has a link to a bank
file beside it, the other has a copy. What they write and what they leave behind is the same.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import version_banks as banks
from support.faulty_system import FaultySystem
from support.git_work_tree import WorkTree

from aoebank import Bank, BankPathError, edit
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_provenance, make_record
from aoebank.verbs import VERBS

SOC, OTHER, OP = "x86-64-v4", "x86-64-v3", "Softmax"
FILE, LINK = (f"{soc}/unified_bank/{soc}_2_AiCore_{OP}.json" for soc in (SOC, OTHER))
TARGET = f"../../{FILE}"
KEY = make_record(1).key

READING = (
    "ls banks",
    "ls git:HEAD:banks",
    f"ls git:HEAD:banks/{LINK}",
    f"show {KEY} banks",
    f"show {KEY} git:HEAD:banks",
    f"show {KEY} banks/{LINK}",
    f"show banks/{LINK}",
    "query 'SELECT file, key, engine FROM records ORDER BY file, key' banks git:HEAD:banks",
    "stats banks git:HEAD:banks",
    "report banks",
    "hits results --bank banks",
    "validate banks",
    "validate git:HEAD:banks",
    "validate shadowed --baseline git:HEAD",
    "stale banks",
    "stale git:HEAD:banks",
    "fmt banks --check",
    "diff git:HEAD banks",
    f"diff git:HEAD~1 banks/{LINK}",
    "diff git:HEAD~1:banks git:HEAD:banks",
    "diff git:HEAD:banks changed",
    f"textconv banks/{LINK}",
    "log banks",
    f"log banks --soc {OTHER}",
    f"blame {KEY} banks",
    f"blame {make_record(3).key} banks",
    "quarantine list banks",
    "git check",
    "git verify-merge HEAD~1..HEAD",
)
"""Commands that change nothing in a bank."""
WRITING: dict[str, bool] = {
    "merge banks extra -o banks": False,
    "merge banks extra -o banks --base git:HEAD": False,
    "merge banks extra_target -o banks --base git:HEAD": False,
    "merge banks changed -o banks --base git:HEAD": True,
    "merge banks git:HEAD~1:banks -o banks --base git:HEAD": True,
    f"edit banks --op {OP} --set vectorize=false": True,
    f"edit banks --op {OP} --set vectorize=false --soc {OTHER}": False,
    f"edit banks --op {OP} --set vectorize=false --soc {SOC}": False,
    "edit shadowed --op Softmax --set vectorize=false --dry-run": True,
    "prune shadowed": True,
    "validate shadowed --fix": True,
    "fmt shadowed": True,
    "snapshot banks --tag v1": True,
    "restore git:HEAD banks": True,
    "restore git:HEAD~1 banks": True,
    f"restore git:HEAD~1 banks --soc {OTHER}": False,
    f"restore git:HEAD~1 banks --soc {SOC}": False,
    f"restore git:HEAD~1 banks --key {make_record(3).key} --soc {OTHER}": False,
    "revert git:HEAD banks": True,
    f"revert git:HEAD banks --soc {OTHER}": False,
    f"quarantine add {KEY} banks --reason slow": True,
    f"quarantine add {KEY} banks --reason slow --soc {OTHER}": False,
    f"quarantine add {KEY} banks --reason slow --soc {SOC}": False,
    "pack banks -o bank.tar.gz": True,
    "pack git:HEAD:banks -o bank.tar.gz": True,
    "convert banks -o bank.jsonl": True,
    "convert git:HEAD:banks -o bank.jsonl": True,
}
"""Commands that write, and whether the link is one afterwards."""
ELSEWHERE = {
    "resolve": "a reader's look-up opens paths, it walks no tree",
    "explain": "no bank",
    "schema list": "no bank",
    "schema import": "no bank",
    "merge-driver": "git hands it files",
    "tag": "snapshots alone",
    "unpack": "a pack has no links",
    "git install": "no bank",
    "git uninstall": "no bank",
    "quarantine rm": "the quarantine alone",
}
"""Verbs that meet no link in a bank, and why."""


def test_each_verb_is_tried_on_a_link() -> None:
    tried = {
        " ".join(line.split()[: 1 + (line.split()[0] in ("git", "quarantine"))])
        for line in (*READING, *WRITING)
    }
    assert tried | ELSEWHERE.keys() == VERBS.keys()


def _make(folder: Path, make_link: Callable[[Path, str], None]) -> WorkTree:
    """Return a repository with a bank whose second file is a link, or what stands for one."""
    tree = WorkTree(folder)
    top = tree.top
    for number in (2, 3):
        root = top / "banks"
        banks.put(root, *map(make_record, range(1, number + 1)), op=OP)
        Bank(root).append_provenance(root / FILE, [make_provenance(make_record(number).key)])
        make_link(root / LINK, TARGET)
        make_link(root / f"{LINK}.provenance.jsonl", f"{TARGET}.provenance.jsonl")
        if number == 2:
            shutil.copytree(root, top / "shadowed", symlinks=True)
            text = (root / FILE).read_bytes()
            (top / "shadowed" / FILE).write_bytes(text.replace(b"\n", b"\r\n"))
            make_link(top / "shadowed" / LINK, TARGET)
        tree.commit(f"{number} records")
    for name in ("changed", "extra", "extra_target"):
        shutil.copytree(top / "banks", top / name, symlinks=True)
    banks.drop(top / "changed", make_record(1), op=OP)  # the link shows it too
    make_link(top / "changed" / LINK, TARGET)
    _own(top / "extra" / LINK)
    banks.put(top / "extra", make_record(4), op=OP, soc=OTHER)
    _own(top / "extra_target" / LINK)
    banks.put(top / "extra_target", make_record(4), op=OP)
    (top / "results").mkdir()
    (top / "results" / "plog").write_text("")
    return tree


def _own(path: Path) -> None:
    """Put a copy in the place of a link."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def link_to(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def copy_of(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((path.parent / target).read_bytes())


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[WorkTree, WorkTree]:
    """Return the repository with links, and the one with copies."""
    made = tmp_path_factory.mktemp("links")
    return _make(made / "linked", link_to), _make(made / "copied", copy_of)


_NAMES = re.compile(
    r"\b[0-9a-f]{7,64}\b|\d{4}-\d\d-\d\dT[\d:]+Z|\d+(\.\d+)? (KiB|B)\b|\d+ files? written"
)


def said(tree: WorkTree, line: str) -> tuple[int, str, str]:
    """Return what a command says, but for names and times no two repositories share."""
    result = tree.aoebank(*shlex.split(line))
    return result.returncode, _NAMES.sub("#", result.stdout), _NAMES.sub("#", result.stderr)


def contents(tree: WorkTree) -> dict[str, bytes]:
    """Return the bank files and side-cars on disk, those behind links too."""
    return {
        path.relative_to(tree.top).as_posix(): path.read_bytes()
        for path in sorted(tree.top.rglob("*.json*"))
        if path.is_file() and ".git" not in path.parts and ".aoebank" not in path.parts
    }


@pytest.mark.parametrize("line", READING)
def test_link_reads_like_a_copy(trees: tuple[WorkTree, WorkTree], line: str) -> None:
    linked, copied = (said(tree, line) for tree in trees)
    assert linked == copied
    assert linked[0] in (0, 1), linked


@pytest.mark.parametrize("line", WRITING)
def test_link_is_written_like_a_copy(
    trees: tuple[WorkTree, WorkTree], tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    linked, copied = (tree.copy(tmp_path / name) for tree, name in zip(trees, "lc", strict=True))
    before = contents(linked)
    assert said(linked, line) == said(copied, line)
    notes = caplog.text
    assert contents(linked) == contents(copied)
    root = linked.top / ("shadowed" if "shadowed" in line else "banks")
    assert (root / LINK).is_symlink() is WRITING[line]
    assert ("is a file of its own now" in notes) is not WRITING[line]
    if "dry-run" not in line and line.split()[0] in ("edit", "merge", "revert", "fmt"):
        assert contents(linked) != before  # it was about something
    assert not [*linked.top.rglob("*.aoebank-tmp")]


# ---- other links ----


@pytest.fixture
def bank(tmp_path: Path) -> WorkTree:
    """Return a repository with a bank of one file."""
    tree = WorkTree(tmp_path)
    banks.put(tree.top / "banks", make_record(1), make_record(2), op=OP)
    return tree


def keys_of(path: Path) -> int:
    return len(load_file(path))


def test_chain_of_links_is_cut_where_it_is_written(bank: WorkTree) -> None:
    root = bank.top / "banks"
    link_to(root / "middle.json", FILE)
    link_to(root / LINK, "../../middle.json")
    bank.commit("links")
    assert bank.aoebank("diff", "git:HEAD", "banks").returncode == 0
    for name, left in ((FILE, (1, 2, 2)), (LINK, (1, 2, 1))):
        soc = name.partition("/")[0]
        result = bank.aoebank("quarantine", "add", KEY, "banks", "--reason", "x", "--soc", soc)
        assert result.returncode == 0, result.stderr
        assert tuple(keys_of(root / place) for place in (FILE, "middle.json", LINK)) == left


def test_link_out_of_the_repository_is_read_from_disk_alone(bank: WorkTree) -> None:
    root, outside = bank.top / "banks", bank.home / "bank.json"
    shutil.copyfile(root / FILE, outside)
    link_to(root / LINK, str(outside))
    bank.commit("link")
    assert "2 files, 4 records" in bank.aoebank("ls", "banks").stdout
    result = bank.aoebank("ls", "git:HEAD:banks", "--json")
    unreadable = json.loads(result.stdout)["unreadable"]
    assert result.returncode == 3
    assert [member["problem"] for member in unreadable] == [
        "cannot be read: link out of the repository"
    ]
    before = outside.read_bytes()
    for line in ("edit banks --op Softmax --set vectorize=false", "restore git:HEAD~0 banks"):
        assert bank.aoebank(*line.split()).returncode == 3
    assert (outside.read_bytes(), (root / LINK).is_symlink()) == (before, True)


@pytest.mark.parametrize("inside", [True, False])
def test_link_to_a_folder_is_walked_as_in_a_commit(bank: WorkTree, inside: bool) -> None:
    """A folder of the bank is read once, at its own place; another one behind the link."""
    root = bank.top / "banks"
    if not inside:
        (root / SOC).rename(bank.top / "store")
    (root / OTHER).symlink_to(SOC if inside else "../store")
    bank.commit("link")
    listed = [bank.aoebank("ls", side, "--json").stdout for side in ("banks", "git:HEAD:banks")]
    files = [[file["records"] for file in json.loads(text)["files"]] for text in listed]
    assert files == [[2], [2]]
    assert bank.aoebank("diff", "git:HEAD", "banks").returncode == 0
    assert bank.aoebank("restore", "git:HEAD", "banks").stdout.startswith("already as")


def test_nothing_is_restored_behind_a_link_to_a_folder(bank: WorkTree) -> None:
    root = bank.top / "banks"
    banks.put(root, make_record(3), op=OP, soc=OTHER)
    bank.commit("folders")
    shutil.rmtree(root / OTHER)
    (root / OTHER).symlink_to(SOC)
    before = contents(bank)
    result = bank.aoebank("restore", "git:HEAD", "banks")
    assert result.returncode == 3
    assert "folder is a link to another folder of the tree" in result.stderr
    assert contents(bank) == before


def test_log_tells_of_a_link_that_became_a_file(bank: WorkTree) -> None:
    root = bank.top / "banks"
    link_to(root / LINK, TARGET)
    bank.commit("link")
    banks.drop(root, make_record(1), op=OP, soc=OTHER)
    bank.commit("own file")
    first, second = json.loads(bank.aoebank("log", "banks", "--json").stdout)["versions"]
    assert (first["moves"]["removed"], first["moves"]["added"]) == (1, 0)
    assert second["moves"]["added"] == 4


def test_link_is_one_again_after_a_write_that_failed(bank: WorkTree, system: FaultySystem) -> None:
    root = bank.top / "banks"
    link_to(root / LINK, TARGET)
    before = contents(bank)
    calls = iter(range(9))

    def fail(*_: object) -> None:
        if next(calls) == 1:
            raise OSError(5, "Input/output error")

    system.before("os.replace", fail)
    with pytest.raises(BankPathError, match="input/output error"):
        edit(root, op=OP, assign={"vectorize": False}, soc=SOC)
    assert contents(bank) == before
    assert (root / LINK).is_symlink()


def test_link_on_disk_is_compared_with_the_file_a_commit_has_there(bank: WorkTree) -> None:
    root = bank.top / "banks"
    banks.put(root, make_record(3), op=OP, soc=OTHER)
    bank.commit("own file")
    link_to(root / LINK, TARGET)
    result = bank.aoebank("diff", "git:HEAD", f"banks/{LINK}", "--json")
    kinds = [change["kind"] for change in json.loads(result.stdout)["changes"]]
    assert sorted(kinds) == ["added", "added", "removed"]


# ---- what cannot be read ----


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.fixture(scope="module")
def closed(trees: tuple[WorkTree, WorkTree], tmp_path_factory: pytest.TempPathFactory) -> WorkTree:
    """Return a repository with a pipe in the place of a bank file."""
    tree = trees[1].copy(tmp_path_factory.mktemp("closed"))
    banks.snap(tree.top / "banks")
    pipe(tree.top / "banks" / LINK)
    return tree


_ELSEWHERE = ("log", "quarantine list")  # commits alone; nothing for a quarantine without entries
_ON_DISK = [
    line
    for line in (*READING, *WRITING)
    if re.search(r" banks( |/|$)", line) and not line.startswith(_ELSEWHERE)
]


@pytest.mark.parametrize("line", _ON_DISK)
def test_bank_file_that_cannot_be_read_is_named(closed: WorkTree, line: str) -> None:
    before = contents(closed)
    code, stdout, stderr = said(closed, line)
    assert code in (1, 3), stdout
    assert LINK in stdout + stderr
    assert "cannot be read: no regular file" in stdout + stderr
    assert contents(closed) == before


@pytest.mark.parametrize("target", ["gone", LINK.rpartition("/")[2]])
def test_link_to_nowhere_is_named_on_disk_and_in_a_commit(bank: WorkTree, target: str) -> None:
    """As `git annex` leaves it; in the second case the link leads to itself."""
    link_to(bank.top / "banks" / LINK, target)
    bank.commit("link")
    for side in ("banks", "git:HEAD:banks"):
        for line in (
            "ls",
            "stats",
            "query 'SELECT key FROM records'",
            "report",
            "stale",
            f"show {KEY}",
        ):
            result = bank.aoebank(*shlex.split(line), side, "--json")
            assert result.returncode == (1 if "show" in line else 3)
            assert LINK in result.stdout
        for line in ("pack", "convert"):
            output = f"out.{'tar.gz' if line == 'pack' else 'jsonl'}"
            result = bank.aoebank(line, side, "-o", output)
            assert (result.returncode, (bank.top / output).exists()) == (3, False)
            assert LINK in result.stderr
        assert LINK in bank.aoebank("validate", side).stdout
    result = bank.aoebank("diff", "git:HEAD", "banks")
    assert (result.returncode, LINK in result.stdout + result.stderr) == (3, True)


def test_folder_of_a_target_that_leads_nowhere_is_named(bank: WorkTree) -> None:
    """As DVC leaves it; another name means nothing."""
    for name in (OTHER, "notes"):
        (bank.top / "banks" / name).symlink_to("gone")
    bank.commit("links")
    for side in ("banks", "git:HEAD:banks"):
        result = bank.aoebank("ls", side, "--json")
        found = [member["path"] for member in json.loads(result.stdout)["unreadable"]]
        assert (result.returncode, found) == (3, [f"{side}/{OTHER}"])


def test_pack_of_other_targets_needs_no_file_that_cannot_be_read(bank: WorkTree) -> None:
    link_to(bank.top / "banks" / LINK, "gone")
    assert bank.aoebank("pack", "banks", "-o", "b.tar.gz", "--soc", SOC).returncode == 0


def test_binary_cache_that_was_not_fetched_is_not_left_out(bank: WorkTree) -> None:
    file = bank.top / "banks" / "repository_ascend910B3_matmul.json"
    file.write_bytes(b'{"shape": {}, "tiling": [], "cost_time": 1}\n')
    link_to(file.with_suffix(".bin"), "gone")
    for line in ("snapshot banks", "pack banks -o b.tar.gz", "validate banks"):
        result = bank.aoebank(*line.split())
        assert result.returncode in (1, 3)
        assert "matmul.bin: " in result.stdout + result.stderr, line


def test_quarantine_that_cannot_be_read_keeps_nothing_in_by_mistake(bank: WorkTree) -> None:
    link_to(bank.top / "banks" / ".aoebank" / "quarantine.jsonl", "gone")
    for line in ("quarantine list banks", "validate banks", "stats banks"):
        result = bank.aoebank(*line.split())
        assert result.returncode in (1, 3)
        assert "link to nowhere" in result.stdout + result.stderr


# ---- a bank nobody names ----


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "stats",
        "report",
        "stale",
        f"show {KEY}",
        "log",
        f"blame {KEY}",
        "snapshot",
        "restore git:HEAD~1",
        "revert git:HEAD",
        f"quarantine add {KEY} --reason slow",
    ],
)
def test_verbs_without_a_root_mean_the_bank_one_is_in(
    trees: tuple[WorkTree, WorkTree], tmp_path: Path, line: str
) -> None:
    """The environment names none, so an answer is about the bank that commits have here."""
    tree = trees[1].copy(tmp_path / "c")
    result = tree.aoebank(*line.split(), cwd=tree.top / "banks")
    assert result.returncode in (0, 1), result.stderr
    assert SOC in result.stdout or "snapshot" in result.stdout
    assert not (tree.home / "Ascend").exists()


def test_folder_with_snapshots_or_a_quarantine_is_the_bank_from_below(bank: WorkTree) -> None:
    root, below = bank.top / "banks", bank.top / "banks" / SOC
    bank.commit("one")
    added = bank.aoebank("quarantine", "add", KEY, "--reason", "slow", cwd=root)
    assert added.returncode == 0, added.stderr
    listed = json.loads(bank.aoebank("quarantine", "list", "--json", cwd=below).stdout)
    assert [entry["key"] for entry in listed["entries"]] == [KEY]
    assert "1 file" in bank.aoebank("snapshot", cwd=below).stdout
    assert bank.aoebank("tag", "v1", cwd=below).returncode == 0
    assert not (below / ".aoebank").exists()


def test_show_looks_for_a_key_in_the_file_beside_it(bank: WorkTree) -> None:
    result = bank.aoebank("show", KEY, f"banks/{FILE}", "--json")
    assert [record["key"] for record in json.loads(result.stdout)["records"]] == [KEY]
