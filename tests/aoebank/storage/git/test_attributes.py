"""The patterns for git take in every name a bank file can have."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.cube import format
from aoebank.formats.gradient import format as gradient
from aoebank.formats.graph import format as graph
from aoebank.formats.names import CORE_TYPES, RUNTIME_SUFFIX, BankName, build_operator_name
from aoebank.formats.registry import FORMATS, bank_globs
from aoebank.formats.vector import format as vector
from aoebank.storage.git.attributes import attribute_block

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="/\0\n\r"), min_size=1)
NAMES = st.builds(
    lambda suffix, **parts: build_operator_name(BankName(**parts), suffix),
    soc_version=WORDS,
    op_type=WORDS,
    core_num=st.integers(0, 10**9 - 1),
    core_type=st.sampled_from(CORE_TYPES),
    suffix=st.sampled_from([".json", RUNTIME_SUFFIX]),
)
PATTERNS = [module.FILE_NAME for module in (format, gradient, graph, vector)]


def _is_covered(name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in bank_globs())


@given(name=NAMES)
def test_every_operator_bank_is_covered(name: str) -> None:
    assert _is_covered(name)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern[-24:])
@given(data=st.data())
def test_every_name_a_format_recognises_is_covered(
    pattern: re.Pattern[str], data: st.DataObject
) -> None:
    names = st.from_regex(pattern, fullmatch=True).filter(lambda name: "/" not in name)
    name = data.draw(names)
    assert any(format_.parse_name(name) for format_ in FORMATS)
    assert _is_covered(name)


def test_each_line_names_the_driver() -> None:
    lines = attribute_block().decode().splitlines()[1:-1]
    assert len(lines) == len(bank_globs()) + 2
    assert all(" merge=aoebank " in line and line.endswith(" -text") for line in lines)


def test_documentation_has_the_lines() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "git.md"
    assert attribute_block().decode().split("\n", 1)[1] in page.read_text()
