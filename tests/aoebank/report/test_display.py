"""Results at a prompt, in a notebook and as rows: what the command prints, escaped, as data."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import aoebank
from aoebank import Bank, MissingPackageError, RichDisplay, Tier
from aoebank.cli import main
from aoebank.testing.factories import make_record

SAMPLES = Path(__file__).resolve().parents[3] / "sample_banks"


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two banks of which one lacks records, and has a key that would be markup."""
    root = tmp_path_factory.mktemp("banks")
    shutil.copytree(SAMPLES / "ascend", root / "mine")
    shutil.copytree(SAMPLES / "ascend", root / "theirs")
    (root / "theirs/Ascend910B2/unified_bank/Ascend910B2_24_AiCore_matmul.json").write_text("{}")
    return root


RESULTS: dict[str, Callable[[Path], RichDisplay]] = {
    "diff": lambda root: aoebank.diff(root / "mine", root / "theirs"),
    "ls": lambda root: aoebank.list_bank(root / "mine"),
    "query": lambda root: aoebank.query("SELECT op_type, key FROM records", root / "mine"),
    "stats": lambda root: aoebank.stats(root / "mine"),
    "show": lambda root: aoebank.show("586e5684", root / "mine"),
    "report": lambda root: aoebank.overview(root / "mine"),
    "validate": lambda root: aoebank.validate([root]),
    "stale": lambda root: aoebank.stale(root / "mine"),
    "prune": lambda root: aoebank.prune(root / "mine", dry_run=True),
    "resolve": lambda root: aoebank.resolve(),
}
COMMANDS = {
    "diff": ("diff", "mine", "theirs"),
    "ls": ("ls", "mine"),
    "show": ("show", "586e5684", "mine"),
}
_PLAIN = (str, int, float, bool, list, dict, type(None))


class _Tables(HTMLParser):
    """Collects the cells of tables, and checks that every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(page)
        assert not self.open, page

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.mark.parametrize("name", RESULTS)
def test_result_is_shown_and_has_rows_of_plain_values(name: str, banks: Path) -> None:
    result = RESULTS[name](banks)
    assert "object at 0x" not in repr(result) and "\n" in f"{result!r}\n"
    cells = _Tables(result._repr_html_()).cells
    rows = result.to_records()
    assert all(isinstance(value, _PLAIN) for row in rows for value in row.values())
    assert cells or name not in ("ls", "query", "stats")


@pytest.mark.parametrize("name", COMMANDS)
def test_prompt_shows_what_the_command_prints(
    name: str, banks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(banks)
    main(COMMANDS[name])
    assert repr(RESULTS[name](Path())) == capsys.readouterr().out.rstrip("\n")


def test_bank_is_a_line_at_a_prompt_and_a_table_of_its_files_in_a_notebook(
    banks: Path, tmp_path: Path
) -> None:
    bank = Bank(banks / "mine")
    assert repr(bank) == f"Bank({str(banks / 'mine')!r})"
    assert repr(Bank("b", tier=Tier.BUILT_IN)) == "Bank('b', tier='built_in')"
    assert "MatMulV3" in _Tables(bank._repr_html_()).cells
    rows = bank.to_records()
    assert len(rows) == 36 and {row["format"] for row in rows} >= {"unified", "cube", "graph"}
    new = Bank(tmp_path / "new")  # made by the first record
    assert "0 files" in new._repr_html_() and new.to_records() == []


def test_markup_and_escapes_in_a_bank_stay_text(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    hostile = "<script>alert(1)</script>\x1b[2J"
    file = bank.unified_file(soc_version="soc", core_num=1, op_type="matmul")
    bank.put(file, [make_record()])
    result = aoebank.query(f"SELECT '{hostile}' AS \"<b>title</b>\", key FROM records", tmp_path)
    page = result._repr_html_()
    assert "<script>" not in page and "<b>" not in page and "\x1b" not in page
    title, _, cell, _ = _Tables(page).cells
    assert title == "<b>title</b>" and cell == "<script>alert(1)</script>\\x1b[2J"
    assert "\x1b" not in repr(result)


def test_merge_shows_its_open_decisions(banks: Path, tmp_path: Path) -> None:
    merged = aoebank.merge(banks / "mine", banks / "theirs", output=tmp_path / "merged")
    assert "no conflict" in repr(merged) and "no conflict" in merged._repr_html_()
    assert merged.to_records() == []  # what is clean is counted, not listed
    told = aoebank.merge(
        banks / "theirs", banks / "mine", output=tmp_path / "new", dry_run=True, verbose=True
    )
    assert {row["reason"] for row in told.to_records()} and "key" in told.to_records()[0]


def test_long_results_are_cut_to_a_screen_with_their_figures(banks: Path) -> None:
    result = aoebank.query("SELECT a.key FROM records a, records b", banks / "mine")
    lines = repr(result).splitlines()
    assert len(lines) <= 45 and lines[-1] == f"{36 * 36} rows"
    assert "with to_records()" in repr(result) and "with to_records()" in result._repr_html_()
    assert len(result.to_records()) == 36 * 36


def test_many_lines_are_cut_and_the_figures_stay(banks: Path, tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    file = bank.unified_file(soc_version="soc", core_num=1, op_type="matmul")
    bank.put(file, map(make_record, range(200)))
    (tmp_path / "none").mkdir()
    shutil.copy(file, tmp_path / "none" / file.name)
    (tmp_path / "none" / file.name).write_text("{}")
    difference = aoebank.diff(tmp_path / "none" / file.name, file)
    for shown, most in ((repr(difference), 40), (difference._repr_html_(), 100)):
        assert shown.count("added") <= most and "lines left out" in shown
        assert "200 added" in re.sub(r"<[^>]+>", "", shown)
    assert len(difference.to_records()) == 200


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="needs pandas")
def test_rows_become_a_data_frame(banks: Path) -> None:
    frame = Bank(banks / "mine").to_pandas()
    assert len(frame) == 36 and {"key", "op_type", "cost_us"} <= {*frame.columns}
    files = aoebank.list_bank(banks / "mine").to_pandas()
    assert files["records"].sum() == 36


def test_without_pandas_the_extra_is_named(banks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    with pytest.raises(MissingPackageError) as caught:
        aoebank.list_bank(banks / "mine").to_pandas()
    assert isinstance(caught.value, ImportError) and "aoebank[pandas]" in str(caught.value)
