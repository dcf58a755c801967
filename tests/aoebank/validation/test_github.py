"""Workflow commands: one line each, nothing in a bank can forge another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.model.finding import Location, make_finding
from aoebank.validation.exchange import github_annotations


@pytest.mark.parametrize(
    ("code", "command"), [("AB103", "error"), ("AB105", "notice"), ("AB402", "warning")]
)
def test_severity_chooses_the_command(code: str, command: str) -> None:
    place = Location(path=Path("a.json"), line=3, column=7)
    text = github_annotations([make_finding(code, place, "bad", got="1", hint="mend it")])
    assert text.startswith(f"::{command} file=a.json,line=3,col=7,title={code} ")
    assert text.endswith("::bad (got 1)%0Ahint: mend it\n")


def test_whole_file_has_no_line() -> None:
    text = github_annotations([make_finding("AB110", Location(path=Path("a.json")), "empty")])
    assert text == "::error file=a.json,title=AB110 file is empty::empty\n"


def test_structure_in_a_path_is_escaped() -> None:
    place = Location(path=Path("a:b,c%d.json"), line=1, column=1)
    text = github_annotations([make_finding("AB103", place, "100 %: a, b")])
    assert text.startswith("::error file=a%3Ab%2Cc%25d.json,line=1,col=1,")
    assert text.endswith("::100 %25: a, b\n")


@given(message=st.text(min_size=1), path=st.text(min_size=1), hint=st.text())
def test_any_text_stays_one_command(message: str, path: str, hint: str) -> None:
    place = Location(path=Path(path), line=1, column=1)
    text = github_annotations([make_finding("AB103", place, message, got=message, hint=hint)])
    assert text.count("\n") == 1 and "\r" not in text and text.endswith("\n")
    assert len(text.splitlines()) == 1
    head, _, _ = text.removeprefix("::error ").partition("::")
    names = [member.partition("=")[0] for member in head.split(",")]
    assert names == ["file", "line", "col", "title"]
