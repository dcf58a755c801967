"""Documents of a call: which format goes where, and what stands on a page."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from support.faulty_system import FaultySystem
from support.pages import ReadPage

import aoebank
from aoe.cli.app import app as aoe_app
from aoebank.cli import app, main
from aoebank.report.answer_page import Block, heading_apart

BANK = Path(__file__).resolve().parents[3] / "sample_banks" / "x86-64-icelake"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(BANK, tmp_path / "bank")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_takes_the_same_words() -> None:
    for program, root in (("aoe", aoe_app), ("aoebank", app)):
        command = typer.main.get_command(root)
        for name, one in _leaves(command, typer.Context(command, info_name=program), ""):
            shown = {spelling for option in one.params for spelling in option.opts}
            assert {"--html", "--json", "--markdown"} <= shown, f"{program} {name}"
            assert ("-o" in shown) or "--output" in shown, f"{program} {name}"


def _leaves(command: Any, context: typer.Context, name: str) -> Iterator[tuple[str, Any]]:
    members = command.list_commands(context) if hasattr(command, "list_commands") else []
    if not members or any("--json" in option.opts for option in command.params):
        yield name, command
    for member in members:
        yield from _leaves(command.get_command(context, member), context, f"{name} {member}")


def test_one_run_writes_several_documents(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ls", "bank", "--html", "a/ls.html", "--json", "ls.json", "--markdown=ls.md"]
    assert main([*words, "-o", "ls.txt"]) == 0
    out, err = capsys.readouterr()
    assert out == ""  # the text has a file
    names = ("a/ls.html", "ls.json", "ls.md", "ls.txt")
    assert err == "".join(f"wrote {name}\n" for name in names)
    assert main(["ls", "bank", "--json"]) == 0
    assert capsys.readouterr().out == Path("ls.json").read_text()
    assert main(["ls", "bank"]) == 0
    assert capsys.readouterr().out == Path("ls.txt").read_text()
    page = ReadPage(Path("a/ls.html").read_text())
    page.assert_loads_nothing()
    assert page.tags.count("table") == 1 and "batch_normalization" in page.texts
    assert "| x86-64-icelake | 2 | AiCore | lrn |" in Path("ls.md").read_text()
    assert main(["ls", "bank", "--html", "a/ls.html", "--json", "ls.json"]) == 0  # once more
    assert capsys.readouterr().out == Path("ls.txt").read_text()


@pytest.mark.parametrize(
    "words",
    [
        "report bank --html",
        "report --html bank",
        "report bank -o report.html",
        "report bank --html -o report.html",
        "diff bank bank --format html",
        "diff bank bank --format=html -o report.html",
        "validate bank --html=report.html",
    ],
)
def test_page_goes_to_standard_output_or_a_file(
    words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    text = Path("report.html").read_text() if "report.html" in words else out
    assert text.startswith("<!doctype html>")
    assert ("<!doctype" in out) is ("report.html" not in words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--html --json", "--json: two formats asked for (got --html too)"),
        ("--format github --html", "--html: two formats asked for (got --format github too)"),
        ("--html x.md", "--html: wrong suffix (got x.md, expected .html or .htm)"),
        (
            "--markdown -o x.json",
            "--markdown: wrong suffix (got x.json, expected .md or .markdown)",
        ),
        ("-o x.pdf", "-o: no format has this suffix (got x.pdf, expected .html, .json, .md, .txt)"),
        ("--json=x.json --format sarif -o x.json", "x.json: two formats for one file"),
        ("--html=", "--html: names no file"),
        ("-o", "-o: names no file"),
    ],
)
def test_what_cannot_be_meant_is_one_error(
    words: str, problem: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "bank", *words.split()]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]["message"] if out else err
    assert problem in told
    assert sorted(path.name for path in here.iterdir()) == ["bank"]


def test_file_of_a_bank_behind_json_is_what_is_checked(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(Path("bank").rglob("*lrn.json"))
    before = file.read_bytes()
    assert main(["validate", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "aoebank.validate/1"
    assert main(["validate", "bank", f"--json={file}"]) == 2
    assert "is no document of this program" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("pack bank -o p.html --html p.html", "p.html: result and document in one file"),
        ("convert bank -op.html --html ./p.html", "p.html: result and document in one file"),
        (
            "merge bank bank --dry-run --decisions d.json --json d.json",
            "d.json: result and document in one file",
        ),
        ("fmt bank --html folder.html", "folder.html: is a directory"),
        ("fmt bank --html pipe.html", "pipe.html: is no regular file"),
        ("fmt bank --json=edited.json", "edited.json: would be overwritten"),
        ("merge bank bank -o new --json=edited.json", "edited.json: would be overwritten"),
        ("merge bank bank -o new --decisions BANK_FILE", "lrn.json: would be overwritten"),
        ("merge BANK_FILE BANK_FILE -o x.json --decisions x.json", "x.json: result and decisions"),
    ],
)
def test_place_a_document_cannot_have_is_an_error_before_anything_is_done(
    words: str, problem: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder.html").mkdir()
    os.mkfifo("pipe.html")
    assert main(["merge", "bank", "bank", "--dry-run", "--decisions", "edited.json"]) == 0
    file = next(Path("bank").rglob("*lrn.json"))
    file.write_bytes(file.read_bytes().replace(b", ", b",  "))  # what `fmt` would mend
    capsys.readouterr()
    before = _contents()
    assert main(words.replace("BANK_FILE", str(file)).split()) == 2
    out, err = capsys.readouterr()
    assert problem in out + err
    assert _contents() == before


@pytest.mark.parametrize(
    "words",
    [
        "edit bank --op lrn --set tasks=9 --html closed/x.html",
        "merge bank bank -o new --decisions closed/new/x.json",
    ],
)
def test_closed_folder_is_told_before_anything_is_done(
    words: str, here: Path, system: FaultySystem, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("closed").mkdir()
    may = os.access
    system.replace("os.access", lambda path, mode: path != here / "closed" and may(path, mode))
    before = _contents()
    assert main(words.split()) == 3
    assert "cannot write here: permission denied" in capsys.readouterr().err
    assert _contents() == before


def _contents() -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


def test_error_takes_the_place_of_an_older_document(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls", "bank", "--json", "ls.json"]) == 0
    assert main(["ls", "nowhere", "--json", "ls.json"]) == 3
    assert json.loads(Path("ls.json").read_text())["error"]["code"] == "bank_not_found"
    assert "nowhere: no such bank" in capsys.readouterr().err


def test_warnings_of_a_run_stand_on_its_page(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from aoe.cli.app import main as aoe_main

    with pytest.raises(SystemExit):
        aoe_main(["--Fop_format", "doctor", "--html=a.html", "--markdown=a.md"])
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warned
    for line in warned:
        assert line.removeprefix("warning: ") in "".join(ReadPage(Path("a.html").read_text()).texts)
        assert line.removeprefix("warning: ")[:40] in Path("a.md").read_text()
    page = Path("a.html").read_text()
    assert page.index("</h1>") < page.index('class="problems"')  # first what it is about
    assert ReadPage(page).tags.count("table") == 1  # settings, aligned by no spaces


def test_reports_outside_of_a_program_are_as_they_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from aoebank.reading.ls import ListReport

    report = ListReport(result=aoebank.list_bank(BANK))
    assert aoebank.emit(report, as_json=True, indent=None) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "aoebank.ls/1"


def test_named_page_is_overwritten_whoever_wrote_it_and_a_json_file_only_if_it_is_ours(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No page has a name by default; a JSON file of somebody else's may be a bank."""
    for name in ("ls.html", "ls.md", "ls.txt", "ls.json"):
        Path(name).write_text("mine")
    assert main(["ls", "bank", "--html", "ls.html", "--markdown", "ls.md", "-o", "ls.txt"]) == 0
    assert not [one for one in ("ls.html", "ls.md", "ls.txt") if Path(one).read_text() == "mine"]
    assert main(["ls", "bank", "--json=ls.json"]) == 2
    assert Path("ls.json").read_text() == "mine"
    assert main(["ls", "bank", "--html"]) == 0
    assert sorted(file.name for file in here.iterdir()) == sorted(
        ["bank", "ls.html", "ls.md", "ls.txt", "ls.json"]
    )


def test_page_opens_long_texts_at_a_click(here: Path) -> None:
    query = "select key, workload from records limit 2"
    assert main(["query", query, "bank", "--html", "query.html"]) == 0
    page = ReadPage(Path("query.html").read_text())
    assert page.tags.count("details") == 2
    summaries = [text for text in page.texts if text.startswith("{") and text.endswith("...")]
    assert len(summaries) == 2 and max(map(len, summaries)) < 100


def test_line_before_a_table_heads_it(here: Path) -> None:
    blocks = [
        Block(lines=[(("first", ""),), (("operators:", ""),)]),
        Block(head=["a"], rows=[("1",)], caption="operators"),
        Block(lines=[(("last", "green"),)]),
    ]
    assert heading_apart(blocks[0], blocks[1]) == ([(("first", ""),)], "operators")
    assert heading_apart(blocks[1], blocks[2]) == ([], "")
    assert heading_apart(blocks[2], blocks[1]) == (blocks[2].lines, "")
    assert heading_apart(blocks[0], None)[0] == blocks[0].lines
