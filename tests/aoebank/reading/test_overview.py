"""Planted cases are found, each once; sound banks have none."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support import golden_harness
from support import version_banks as banks
from support.browser import measured
from support.documents import find_faults

import aoebank
from aoebank import Bank, Event, OverviewResult
from aoebank.cli import main
from aoebank.reading.overview import Coverage, OverviewReport
from aoebank.reading.overview_page import overview_page
from aoebank.testing.factories import make_provenance, make_record

SAMPLE = Path(__file__).resolve().parents[3] / "sample_banks" / "x86-64-icelake"
RECORDS = [make_record(number) for number in range(8)]


def _note(root: Path, number: int, speedup: float, **changes: object) -> None:
    low, high = speedup * 0.95, speedup * 1.05
    figures = {"speedup": speedup, "speedup_low": low, "speedup_high": high} | changes
    entry = make_provenance(RECORDS[number].key, **figures)
    Bank(root).append_provenance(banks.file_of(root), [entry])


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    root = tmp_path / "bank"
    banks.put(root, *RECORDS)
    for number in range(len(RECORDS)):
        _note(root, number, 2 + number / 100)
    return root


def test_sound_bank_has_nothing_to_look_at(bank: Path) -> None:
    result = aoebank.overview(bank)
    assert (result.outliers, result.disagreements, result.duplicates) == ((), (), ())
    [coverage] = result.coverage
    assert (coverage.records, coverage.measured) == (8, 8)
    assert (coverage.lowest, coverage.median, coverage.highest) == (2.0, 2.035, 2.07)
    [age] = result.ages
    assert (age.engine, age.records, age.newest) == ("aoe 1.0", 8, "2026-01-02T03:04:05Z")
    [size] = result.sizes
    assert (size.files, size.records, size.broken, size.in_quarantine) == (1, 8, 0, 0)


@pytest.mark.parametrize(
    ("speedup", "low", "why"),
    [
        (0.9, 0.85, "slower than the default"),
        (1.04, 0.99, "not proven to be faster"),
        (9.0, 8.5, "far from the 2.0"),
        (1.2, 1.1, "far from the 2.0"),
    ],
)
def test_figure_that_deserves_a_second_look(
    bank: Path, speedup: float, low: float, why: str
) -> None:
    _note(bank, 3, speedup, event=Event.UPDATE, speedup_low=low, speedup_high=speedup * 1.1)
    [outlier] = aoebank.overview(bank).outliers
    assert outlier.key == RECORDS[3].key
    assert why in outlier.why


def test_few_records_of_a_kind_are_not_compared(tmp_path: Path) -> None:
    banks.put(tmp_path, *RECORDS[:4])
    for number, speedup in enumerate((2.0, 2.0, 2.0, 30.0)):
        _note(tmp_path, number, speedup)
    assert aoebank.overview(tmp_path).outliers == ()


def test_banks_with_other_strategies_disagree(bank: Path, tmp_path: Path) -> None:
    shutil.copytree(bank, tmp_path / "other")
    banks.put(tmp_path / "other", make_record(5, tile=64))
    [found] = aoebank.overview(bank, tmp_path / "other").disagreements
    assert (found.key, found.what) == (RECORDS[5].key, "other strategies")
    assert [opinion.where for opinion in found.opinions] == [str(bank), str(tmp_path / "other")]


@pytest.mark.parametrize(
    ("event", "speedup", "found"),
    [
        (Event.RESERVED, 1.2, 1),
        (Event.RESERVED, 2.05, 0),  # the intervals meet
        (Event.UPDATE, 1.2, 0),  # another strategy
        (Event.KEPT, 1.2, 0),  # of a model
    ],
)
def test_measurements_of_one_strategy_disagree(
    bank: Path, event: Event, speedup: float, found: int
) -> None:
    _note(bank, 2, speedup, event=event)
    disagreements = aoebank.overview(bank).disagreements
    assert [one.key for one in disagreements] == [RECORDS[2].key] * found


def test_records_that_stand_twice_are_counted(bank: Path) -> None:
    banks.put(bank, *RECORDS[:3], soc="x86-64-v3")
    [found] = aoebank.overview(bank).duplicates
    assert found.records == 3
    assert "x86-64-v3" in "".join(found.files)


def test_records_of_related_chips_are_no_duplicates(tmp_path: Path) -> None:
    for soc in ("Ascend910B1", "Ascend910B2"):
        banks.put(tmp_path, *RECORDS[:3], soc=soc)
    assert aoebank.overview(tmp_path).duplicates == ()


def test_broken_files_and_quarantine_are_counted(bank: Path) -> None:
    banks.put(bank, *RECORDS[:2], op="Other")
    banks.file_of(bank, "Other").write_text("{")
    aoebank.quarantine_add(RECORDS[0].key, reason="wrong", root=bank)
    banks.put(bank, RECORDS[0])
    [size] = aoebank.overview(bank).sizes
    assert (size.broken, size.in_quarantine) == (1, 1)


def _hostile(tmp_path: Path) -> OverviewResult:
    root = tmp_path / "<script>alert(1)</script>"
    banks.put(root, *RECORDS)
    _note(root, 0, 0.5, engine="<img src=x onerror=alert(1)>")
    return aoebank.overview(root)


def test_page_has_every_part_and_no_markup_of_others(tmp_path: Path) -> None:
    page = overview_page(OverviewReport(result=_hostile(tmp_path)))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "slower than the default" in page
    assert page.count("<table>") == 5
    assert "http" not in page.replace("http-equiv", "")


def test_axis_of_the_bars_ends_at_the_highest_that_is_shown(bank: Path) -> None:
    result = aoebank.overview(bank)
    shown = (result.coverage[0],) * 40
    hidden = replace(result.coverage[0], lowest=1.0, median=1.5, highest=500.0)

    def bars(coverage: tuple[Coverage, ...]) -> str:
        page = overview_page(OverviewReport(result=replace(result, coverage=coverage)))
        return page.partition('<div class="bars">')[2].partition("</section>")[0]

    assert bars((*shown, hidden)) == bars(shown) != ""


def test_document_fits_its_schema(tmp_path: Path) -> None:
    report = OverviewReport(result=_hostile(tmp_path))
    assert find_faults({"schema": report.schema, **report.document()}) == []


def test_one_way_out_at_a_time(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(bank), "--html", "--json"]) == 2
    assert main(["report", str(bank), "--html"]) == 0
    assert capsys.readouterr().out.endswith("</html>\n")


def test_staleness_is_counted_as_stale_tells_it(tmp_path: Path) -> None:
    root = tmp_path / "bank"
    banks.put(root, *RECORDS[:4])
    soc_version = "x86-64-v4"
    for number, fingerprint in enumerate(
        (
            {"cpu_model": "Here", "soc_version": soc_version},
            {"cpu_model": "There", "soc_version": soc_version},
            {"cpu_model": "Here", "soc_version": "x86-64-other"},
        )
    ):
        _note(root, number, 2.0, fingerprint=fingerprint)
    result = aoebank.overview(root, now={"cpu_model": "Here"})
    [found] = result.staleness
    assert (found.fresh, found.to_check, found.stale, found.unknown) == (1, 1, 1, 1)
    report = OverviewReport(result=result)
    assert report.document()["staleness"] == [asdict(found)]
    assert "not to be used here" in overview_page(OverviewReport(result=result))


def test_bars_of_several_banks_name_their_bank_and_stand_together(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        shutil.copytree(SAMPLE, tmp_path / name)
    page = _page(tmp_path / "mine", tmp_path / "theirs")
    bars = re.findall(r"<span>(\w+ on [^<]+)</span>", page)
    assert bars[0].startswith("lrn on x86-64-icelake, ") and len(set(bars)) == len(bars) == 6
    assert [bar.rpartition("/")[2] for bar in bars] == ["mine", "theirs"] * 3
    alone = re.findall(r"<span>(\w+ on [^<]+)</span>", _page(tmp_path / "mine"))
    assert alone[0] == "lrn on x86-64-icelake"


@pytest.mark.parametrize("command", ["report", "diff"])
def test_rows_are_no_taller_than_their_text_on_a_telephone(command: str, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        shutil.copytree(SAMPLE, tmp_path / name)
    for file in (tmp_path / "theirs").rglob("*elementwise.json"):
        file.write_text(re.sub(r'("cost_time": )', r"\g<1>9", file.read_text()))
    words = [command, str(tmp_path / "mine"), str(tmp_path / "theirs"), "--html"]
    found = measured(golden_harness.run("aoebank", words).stdout, tmp_path, width=390)
    assert found["wanted"] == 390
    assert found["rows"] and max(found["rows"]) <= 80  # three lines


def _page(*banks: Path) -> str:
    return golden_harness.run("aoebank", ["report", *map(str, banks), "--html"]).stdout
