"""Our lines in a file of other people's lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import AoebankError
from aoebank.storage.git.attributes import drop_block, find_block, make_block, put_block

PATH = Path(".gitattributes")
BLOCK = make_block("version 1", ("*.json merge=aoebank", "# >>> aoe, not a mark"))
WRITTEN = st.lists(
    st.sampled_from([b"*.c text", b"", b"# >>> aoe", b"#<<< aoebank", b" # >>> aoebank", b"\xff"])
).flatmap(lambda lines: st.sampled_from([b"\n".join(lines), b"\r\n".join([*lines, b""])]))


@given(written=WRITTEN)
def test_block_comes_and_goes_without_a_trace(written: bytes) -> None:
    there = put_block(written, BLOCK, PATH)
    assert find_block(there) == BLOCK
    assert there.startswith(written)
    assert drop_block(there, PATH).removesuffix(b"\n") == written.removesuffix(b"\n")
    assert put_block(there, BLOCK, PATH) == there


@given(before=WRITTEN, after=WRITTEN)
def test_newer_block_takes_the_place_of_the_older(before: bytes, after: bytes) -> None:
    start = before if not before or before.endswith(b"\n") else before + b"\n"
    newer = make_block("version 2", ("*.json -merge",))
    assert put_block(start + BLOCK + after, newer, PATH) == start + newer + after


def test_crlf_block_is_the_same_block() -> None:
    assert find_block(BLOCK.replace(b"\n", b"\r\n")) == BLOCK
    assert drop_block(b"a\r\n" + BLOCK.replace(b"\n", b"\r\n") + b"b\r\n", PATH) == b"a\r\nb\r\n"


def test_block_that_ends_the_file_needs_no_line_end() -> None:
    assert drop_block(b"a\n" + BLOCK.removesuffix(b"\n"), PATH) == b"a\n"


@pytest.mark.parametrize("half", [b"# >>> aoebank\nx\n", b"x\n# <<< aoebank\n"])
@pytest.mark.parametrize("rest", [b"", BLOCK])
def test_mark_alone_is_an_error(half: bytes, rest: bytes) -> None:
    data = rest + half if half.startswith(b"#") else half + rest
    with pytest.raises(AoebankError, match="half a block"):
        drop_block(data, PATH)
