"""Git programs that stay: what they answer, and that they end."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from support import version_banks as banks
from support.forked import end_in_time

from aoebank import HistoryError
from aoebank.storage.git.long_lived import ObjectReader, TreeReader
from aoebank.storage.git.program import iter_git

ODD = ("\n", "-\n", "a\tb", 'quo"te', "back\\slash", "ä", "x" * 200)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a repository of two commits; all file names of the second are odd."""
    banks.git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "first").write_bytes(b"1\n")
    banks.git(tmp_path, "add", "-A")
    banks.git(tmp_path, "commit", "-q", "-m", "one")
    for number, name in enumerate(ODD):
        path = tmp_path / "d" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\n" * number + os.urandom(9))
    banks.git(tmp_path, "add", "-A")
    banks.git(tmp_path, "commit", "-q", "-m", "two")
    return tmp_path


def _blob(clone: Path, data: bytes) -> str:
    path = clone / "blob"
    path.write_bytes(data)
    return banks.git(clone, "hash-object", "-w", "blob")


def test_objects_of_any_bytes_are_read_one_after_another(clone: Path) -> None:
    datas = [b"", b"\n", b"\0\n\0", b"abc missing\n", os.urandom(300_000), b"last"]
    names = [_blob(clone, data) for data in datas]
    reader = ObjectReader(clone)
    assert [reader.read(name) for name in names] == datas
    assert [reader.read_head(name, 3) for name in names] == [data[:3] for data in datas]
    assert [reader.read(name) for name in reversed(names)] == datas[::-1]


def test_missing_object_is_one_clear_error_and_hides_no_other(clone: Path) -> None:
    reader, there = ObjectReader(clone), _blob(clone, b"there")
    with pytest.raises(HistoryError, match="object is missing"):
        reader.read("1" * 40)
    assert reader.read(there) == b"there"


def test_files_of_a_commit_are_those_git_lists_whatever_their_names(clone: Path) -> None:
    reader = TreeReader((":(top,glob)**",), objects=ObjectReader(clone))
    for commit in ("HEAD", "HEAD~1", "HEAD"):
        listing = banks.git(clone, "ls-tree", "-r", "-z", commit).split("\0")[:-1]
        expected = {entry.partition("\t")[2]: entry.split()[2] for entry in listing}
        assert reader.files(banks.git(clone, "rev-parse", commit)) == expected


def test_differences_go_both_ways_and_equal_trees_have_none(clone: Path) -> None:
    reader = TreeReader((":(top,glob)**",), objects=ObjectReader(clone))
    there, back = reader.differences("HEAD~1", "HEAD"), reader.differences("HEAD", "HEAD~1")
    assert {path: (new, old) for path, (old, new) in there.items()} == back
    assert len(there) == len(ODD)
    assert reader.differences("HEAD", "HEAD") == {}
    assert reader.files("") == {}


def test_link_in_the_place_of_a_file_is_no_file(clone: Path) -> None:
    (clone / "first").unlink()
    (clone / "first").symlink_to("d")
    banks.git(clone, "add", "-A")
    banks.git(clone, "commit", "-q", "-m", "three")
    reader = TreeReader((":(top,literal)first",), objects=ObjectReader(clone))
    ((path, (old, new)),) = reader.differences("HEAD~1", "HEAD").items()
    assert (path, bool(old), new) == ("first", True, None)


def test_forked_process_shares_no_pipe(clone: Path) -> None:
    reader, names = ObjectReader(clone), [_blob(clone, bytes([n])) for n in range(200)]
    reader.read(names[0])
    child = os.fork()
    if not child:
        code = 1
        try:
            end_in_time()
            code = int(not all(reader.read(name) == bytes([n]) for n, name in enumerate(names)))
        finally:  # or the child would go on with the tests, and this process wait for it for ever
            os._exit(code)
    assert [reader.read(name) for name in names] == [bytes([n]) for n in range(200)]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _programs() -> set[int]:
    """Return the processes this one has started and not yet waited for."""
    return {
        int(number)
        for listing in Path("/proc/self/task").glob("*/children")
        for number in listing.read_text().split()
    }


def test_program_ends_with_the_object_that_asked_it(clone: Path) -> None:
    before, reader = _programs(), ObjectReader(clone)
    reader.tree_of("HEAD")
    (program,) = _programs() - before
    assert os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    del reader
    gc.collect()
    assert program not in _programs()


def test_program_that_died_is_an_error_and_not_an_empty_answer(clone: Path) -> None:
    before, reader = _programs(), ObjectReader(clone)
    reader.tree_of("HEAD")
    (program,) = _programs() - before
    os.kill(program, signal.SIGKILL)
    os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
    with pytest.raises(HistoryError, match="ended early"):
        reader.read("1" * 40)


def test_listing_that_nobody_reads_on_is_ended(clone: Path) -> None:
    listing = iter_git(["log", "-z", "--format=%s"], cwd=clone)
    assert next(listing) == b"two"
    listing.close()  # type: ignore[attr-defined]
    assert [*iter_git(["log", "-z", "--format=%s"], cwd=clone)] == [b"two", b"one"]


def test_listing_git_refuses_is_an_error_in_its_words(clone: Path) -> None:
    with pytest.raises(HistoryError, match="git log: "):
        [*iter_git(["log", "nowhere"], cwd=clone)]
