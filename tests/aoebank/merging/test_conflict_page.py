"""The page of a conflict file: made offline, chosen on in a real browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support import golden_harness
from support.browser import PROGRAM, open_browser
from support.pages import ReadPage

import aoebank
from aoebank import Bank

SOC = "x86-64-v4"


def _file(root: Path) -> Path:
    return Bank(root).unified_file(soc_version=SOC, core_num=2, op_type="Foo")


@pytest.fixture
def conflicts(tmp_path: Path) -> Path:
    """Return a conflict file of three keys, one of which theirs has removed."""
    for name, tile in (("base", 1), ("ours", 2), ("theirs", 3)):
        records = [
            aoebank.make_unified_record(
                workload={"op_type": "Foo", "m": number, "why": "</textarea><script>"},
                strategy={"tile": tile},
                cost_us=None,
                origin="test",
            )
            for number in (10, 20, 30)
        ]
        kept = records if name != "theirs" else records[:2]
        Bank(tmp_path / name).put(_file(tmp_path / name), kept)
    sides = (tmp_path / "ours", tmp_path / "theirs")
    aoebank.merge(*sides, base=tmp_path / "base", output=tmp_path / "merged")
    bank = _file(tmp_path / "merged")
    return bank.with_name(f"{bank.name}.conflicts")


def _page(conflicts: Path) -> Path:
    page = conflicts.with_name("page.html")
    done = golden_harness.run(
        "aoebank", ["merge", "--apply", str(conflicts), "--html", str(page), "--json"]
    )
    assert (done.exit_code, json.loads(done.stdout)["conflicts"]) == (0, 3)
    return page


def test_page_loads_nothing_and_shows_the_sides(conflicts: Path) -> None:
    before = conflicts.read_bytes()
    read = ReadPage(_page(conflicts).read_text())
    read.assert_loads_nothing()
    told = " ".join(read.texts)
    assert "op_type=Foo m=10" in told
    assert all(word in told for word in ("tile=1", "tile=2", "tile=3", "leave open"))
    assert conflicts.read_bytes() == before  # nothing is settled
    assert _page(conflicts).read_text().count("<script>") == 1


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_choices_on_the_page_make_a_file_that_settles_the_bank(
    conflicts: Path, tmp_path: Path
) -> None:
    page = _page(conflicts)
    with open_browser(tmp_path) as browser:
        for width in (1280, 390):
            for is_dark in (False, True):
                browser.open(page, width=width, is_dark=is_dark)
                assert browser.run("document.documentElement.scrollWidth") <= width
                paper = browser.run("getComputedStyle(document.body).backgroundColor")
                assert paper == ("rgb(18, 21, 26)" if is_dark else "rgb(246, 247, 249)")
        choose = "document.querySelector('input[name=choice-{}][value={}]').click()"
        browser.run(choose.format(0, "take-theirs"))
        browser.run(choose.format(1, "take-base"))
        assert browser.run("document.getElementById('open').textContent") == "1"
        browser.run("document.getElementById('save').click()")
        saved, end = tmp_path / conflicts.name, time.monotonic() + 30
        while not saved.exists() and time.monotonic() < end:
            browser.run("1")
            time.sleep(0.05)
        text = browser.run("document.getElementById('document').value")
    made = json.loads(saved.read_text())
    assert json.loads(text) == made
    before = json.loads(conflicts.read_text())
    assert [one["action"] for one in made["decisions"]] == ["take-theirs", "take-base", "conflict"]
    for one in made["decisions"]:
        one["action"] = "conflict"
    assert made == before  # nothing but actions is another
    conflicts.write_bytes(saved.read_bytes())
    settlement = aoebank.settle(conflicts)
    assert len(settlement.open) == 1
    bank = _file(tmp_path / "merged")
    tiles = [str(one.strategy) for one in Bank(tmp_path / "merged").iter_records(bank)]
    assert sorted(tiles) == ["{'tile': 1}", "{'tile': 2}", "{'tile': 3}"]
