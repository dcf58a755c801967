"""`aoe inspect`: what it writes, in full, and that its page stands on its own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from support import golden_harness
from support.commands import aoe_exit_code
from support.engine.gradients import make_gdat_report
from support.engine.models import make_model
from support.engine.offline import make_manifest

from aoe.om.file import KernelUse, SubgraphUse, read_manifest, write_offline_model
from aoe.report.documents import render_report
from aoe.report.timelines import TimelineReport
from aoe.results.gradients import GdatReport, gdat_report_to_json
from aoebank import size_text

CASES = [case for case in golden_harness.cases("aoe") if case.startswith("inspect/")]
REPORT = make_gdat_report()


@pytest.fixture
def result(tmp_path: Path) -> Path:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(gdat_report_to_json(REPORT)))
    return file


@pytest.mark.parametrize("case", CASES)
def test_command_writes_what_it_did(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    golden_harness.check_case("aoe", case, tmp_path, monkeypatch, update=update_golden)


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("-json")])
def test_json_output_is_one_document(case: str) -> None:
    expected = golden_harness.read_case("aoe", case).expected
    document = json.loads(expected.stdout)
    assert document["schema"] == ("aoe.error/1" if "error" in document else "aoe.inspect/1")
    assert expected.stderr == ""


def test_there_are_cases() -> None:
    assert len(CASES) >= 9


class PageReader(HTMLParser):
    """Collects what a page would load, and whether its elements close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "line"}:
            self.open.append(tag)
        names = {"src", "href", "action", "data", "xlink:href", "onclick", "onload"}
        self.links += [f"{name}={value}" for name, value in attrs if name in names]
        if tag in {"script", "link", "iframe", "object", "img"}:
            self.links.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def render_timelines(report: GdatReport) -> str:
    return render_report(TimelineReport(file=Path("result.json"), report=report))


def read_page(report: GdatReport) -> PageReader:
    reader = PageReader()
    reader.feed(render_timelines(report))
    reader.close()
    assert reader.open == []
    return reader


def test_page_needs_nothing_from_outside() -> None:
    page = render_timelines(REPORT)
    assert read_page(REPORT).links == ["script"]  # sorts tables
    assert not re.findall(r"url\(|@import|https?://", page)
    assert "prefers-color-scheme: dark" in page


HOSTILE = "\"><script>alert(1)</script>&amp;'<!--]]>"


def test_hostile_names_stay_text() -> None:
    assert REPORT.before is not None
    report = replace(
        REPORT,
        tuning_name=HOSTILE,
        backend=HOSTILE,
        versions={HOSTILE: HOSTILE},
        before=replace(REPORT.before, name=HOSTILE),
        candidates=tuple(replace(candidate, name=HOSTILE) for candidate in REPORT.candidates),
    )
    reader = read_page(report)
    assert reader.links == ["script"]
    assert HOSTILE in "".join(reader.text)


def test_markup_in_names_is_printed_as_it_is(result: Path) -> None:
    report = replace(REPORT, tuning_name="[bold]net[/] [link=x]")
    result.write_text(json.dumps(gdat_report_to_json(report)))
    outcome = golden_harness.run("aoe", ["inspect", str(result)])
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith("[bold]net[/] [link=x]: ")


@pytest.mark.parametrize("missing", ["before", "after", "estimate", "cost", "candidates"])
def test_page_and_text_do_without_any_part(missing: str, result: Path) -> None:
    empty = () if missing == "candidates" else None
    report = replace(REPORT, **{missing: empty})  # type: ignore[arg-type]
    read_page(report)
    result.write_text(json.dumps(gdat_report_to_json(report)))
    assert golden_harness.run("aoe", ["inspect", str(result)]).exit_code == 0


def test_page_is_written_whole_or_not_at_all(
    result: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    request.getfixturevalue("no_room")
    outcome = golden_harness.run("aoe", ["inspect", str(result), "--html", str(page)])
    assert outcome.exit_code == 3
    assert "cannot write here: no space left on device" in outcome.stderr
    assert page.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "result.json"]


def test_page_goes_where_it_was_wanted(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    outcome = golden_harness.run("aoe", ["inspect", str(result), "--html", str(page)])
    assert outcome.exit_code == 0
    assert outcome.stdout.endswith(f"wrote {page}\n")
    assert page.read_text(encoding="utf-8") == render_timelines(REPORT)


def test_dry_run_writes_nothing(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["inspect", str(result), "--html", str(page), "--dry-run", "--json"]
    outcome = golden_harness.run("aoe", arguments)
    assert json.loads(outcome.stdout)["html"] is None
    assert not page.exists()


def test_page_never_takes_the_place_of_the_result(result: Path) -> None:
    before = result.read_bytes()
    detour = result.parent / "." / ".." / result.parent.name / result.name
    outcome = golden_harness.run("aoe", ["inspect", str(result), "--html", str(detour)])
    assert outcome.exit_code == 2
    assert "--html: wrong suffix" in outcome.stderr
    assert result.read_bytes() == before


def test_folder_in_the_way_is_an_error(result: Path, tmp_path: Path) -> None:
    outcome = golden_harness.run("aoe", ["inspect", str(result), "--html", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "--html: wrong suffix" in outcome.stderr
    (tmp_path / "page.html").mkdir()
    page = f"--html={tmp_path / 'page.html'}"
    assert golden_harness.run("aoe", ["inspect", str(result), page]).exit_code == 2


def test_plain_output_has_no_escape_codes(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    outcome = golden_harness.run("aoe", ["inspect", str(result)])
    assert "\x1b" not in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 40, "3072.0 GiB")],
)
def test_sizes_have_units(size: int, text: str) -> None:
    assert size_text(size) == text


def test_page_of_the_manual_shows_the_real_output() -> None:
    manual = Path(__file__).resolve().parents[3] / "docs" / "gradients.md"
    shown = golden_harness.read_case("aoe", "inspect/text").expected.stdout
    assert shown in manual.read_text(encoding="utf-8")


# ---- tuned models ----


def _om(folder: Path, **facts: Any) -> Path:
    for name in ("model.onnx", "fallback.onnx", "weights.bin"):
        (folder / name).write_bytes(b"")
    manifest = make_manifest(**{"soc_version": "x86-64-zen4", "versions": {"aoe": "1"}, **facts})
    write_offline_model(folder / "net.om", folder, manifest)
    return folder / "net.om"


_USE = SubgraphUse(
    graph_id="7",
    strategy="convolution-split@1, silu@1",
    bank_file="x86_64_zen4_l2cache.json",
    op_names=("Mul_9", "Mul_18"),
)


def test_tuned_model_tells_its_subgraphs_and_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = KernelUse(name="lrn_1", op_type="lrn", key="k", bank_file="b", op_names=("LRN_3",))
    file = _om(tmp_path, subgraphs=(_USE,), kernels=(kernel,))
    assert aoe_exit_code(["inspect", str(file)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "net, tuned for x86-64-zen4 2 threads, float32, aoe 1" in words
    assert "1 subgraph in another form: subgraph places ends at form 7 2 Mul_9 convolution" in words
    assert "1 kernel: kernel places ends at precision lrn_1 1 LRN_3 float32" in words


def test_untuned_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code(["inspect", str(_om(tmp_path))]) == 0
    assert "nothing faster was found" in capsys.readouterr().out


def test_tuned_model_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code(["inspect", str(_om(tmp_path, subgraphs=(_USE,))), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aoe.inspect_om/1"
    (use,) = document["manifest"]["subgraphs"]
    assert (use["graph_id"], use["op_names"]) == ("7", ["Mul_9", "Mul_18"])


def _with_graph(folder: Path) -> Path:
    relu = helper.make_node("Relu", ["x"], ["y"], "Relu_1")
    model = make_model([relu], {"x": [2]}, {"y": [2]}, opset=20, ir_version=10)
    file = _om(folder)
    for name in ("model.onnx", "fallback.onnx"):
        (folder / name).write_bytes(model.SerializeToString())
    write_offline_model(file, folder, read_manifest(file))
    return file


def test_page_of_a_tuned_model_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = _with_graph(tmp_path), tmp_path / "page.html"
    assert aoe_exit_code(["inspect", str(file), "--html", str(page), "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith(f"would write {page}\n")
    assert not page.exists()
    assert aoe_exit_code(["inspect", str(file), "--html", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["html"] == str(page)
    assert "1 as they are: 1 Relu" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_times_of_a_tuned_model_are_taken_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = _with_graph(tmp_path), tmp_path / "page.html"
    assert aoe_exit_code(["inspect", str(file), "--times", "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "where the time goes now, " in shown and "Relu_1" in shown
    assert "Time of a run" in page.read_text(encoding="utf-8")
    assert aoe_exit_code(["inspect", str(file), "--times", "--json"]) == 0
    times = json.loads(capsys.readouterr().out)["times"]
    assert times["before"] == f"{file}, untuned" and times["after"] == str(file)
    assert [one["op_names"] for one in times["operators"]] == [["Relu_1"]]


def test_times_are_of_tuned_models(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code(["inspect", str(result), "--times"]) == 2
    assert "--times: is of tuned models" in capsys.readouterr().err


def test_page_never_takes_the_place_of_the_tuned_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _om(tmp_path)
    before = file.read_bytes()
    assert aoe_exit_code(["inspect", str(file), "--html", str(file)]) == 2
    assert "--html: wrong suffix" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_page_of_a_model_whose_graph_is_damaged_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _om(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"\xff\xff")
    (tmp_path / "fallback.onnx").write_bytes(b"\xff\xff")
    write_offline_model(file, tmp_path, read_manifest(file))
    page = tmp_path / "page.html"
    assert aoe_exit_code(["inspect", str(file), "--html", str(page)]) == 3
    assert "fallback.onnx: no ONNX model" in capsys.readouterr().err
    assert not page.exists()
