"""Differences are shown as `patch` would take them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.model.codes import FixClass
from aoebank.validation.fix import ALIGNED_LINES, FileFix, diff_lines

needs_patch = pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")


def diff(before: bytes, after: bytes, aligned: int = ALIGNED_LINES) -> list[str]:
    fix = FileFix(path=Path("f"), classes=(FixClass.TEXT,), before=before, after=after)
    return list(diff_lines(fix, aligned=aligned))


def patched(tmp_path: Path, before: bytes, lines: list[str]) -> bytes:
    file = tmp_path / "f"
    file.write_bytes(before)
    subprocess.run(
        ["patch", "--binary", "-s", "-p1"],
        cwd=tmp_path,
        check=True,
        input="".join(f"{line}\n" for line in lines).encode(),
    )
    return file.read_bytes()


def test_line_ends_can_be_seen() -> None:
    assert diff(b"a\r\nb\n", b"a\nb\n")[2:] == ["@@ -1,2 +1,2 @@", "-a\r", "+a", " b"]


def test_missing_last_line_end_is_marked() -> None:
    assert diff(b"a", b"a\n")[3:] == ["-a", "\\ No newline at end of file", "+a"]


@needs_patch
@pytest.mark.parametrize("aligned", [0, ALIGNED_LINES])
def test_difference_can_be_applied(tmp_path: Path, aligned: int) -> None:
    before = b"same\nb\nc\nd\nsame\n"
    after = b"same\nc\nd\nb\nnew\nsame\n"
    assert patched(tmp_path, before, diff(before, after, aligned)) == after


def test_many_changed_lines_are_one_hunk() -> None:
    before = b"".join(b"%d\n" % number for number in range(5000))
    after = before.replace(b"\n", b" \n")
    lines = diff(b"head\n" + before + b"tail\n", b"head\n" + after + b"tail\n")
    assert lines[2] == "@@ -2,5000 +2,5000 @@"
    assert len(lines) == 3 + 2 * 5000


texts = st.lists(st.sampled_from([b"a", b"b", b"c\r", b""]), max_size=8)


@given(texts, texts, st.booleans())
def test_difference_tells_both_sides(a: list[bytes], b: list[bytes], whole: bool) -> None:
    before, after = (b"".join(line + b"\n" for line in lines) for lines in (a, b))
    lines = diff(before, after, 0 if whole else ALIGNED_LINES)
    changed = [line for line in lines[2:] if line[0] in "+-"]
    removed = [line[1:] for line in changed if line[0] == "-"]
    added = [line[1:] for line in changed if line[0] == "+"]
    assert len(removed) - len(added) == len(a) - len(b)
    assert bool(changed) == (before != after)
