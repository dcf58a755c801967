"""Tables and picture say what the raw results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from comparison.figures import figures_of, geometric_mean, peer_names, shared_rows
from comparison.picture import draw
from comparison.results import SCHEMA, ResultsError, load_results
from comparison.tables import page_tables, place_of, whole_tables, write_docs

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_KEPT = sorted(_RESULTS.glob("peers*.json"))
ENVIRONMENT = {
    "cpu": "Test CPU",
    "model": "1-2-3",
    "features": ["avx2"],
    "cores": 2,
    "memory_gb": 8,
    "kernel": "6.1",
    "python": "3.11",
    "versions": {"onnxruntime": "1.31.1", "openvino": None},
    "engine": "abc",
}


def _row(title: str, us: list[float], precision: str = "fp32", **more: Any) -> dict[str, Any]:
    turns = {"median_us": us, "others": [0.02] * len(us)}
    row = {"title": title, "precision": precision, "errors": {"largest": 2e-7}, "facts": {}}
    return {**row, **turns, **more}


def _record(network: str, threads: int = 2, **peers: dict[str, Any]) -> dict[str, Any]:
    ort = _row("ONNX Runtime", [2000.0, 2200.0, 1800.0, 2100.0, 1900.0, 2000.0])
    return {
        "network": network,
        "threads": threads,
        "date": "2026-11-22",
        "settings": {"rounds": 6, "turn_s": 0.5, "budget_s": 300.0},
        "facts": {"multiply_adds": 100_000_000},
        "roof_multiply_adds_per_s": [1e11, 1e11],
        "peers": {"ort": ort, **peers},
    }


def _document(*records: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "environment": ENVIRONMENT, "records": list(records)}


def _engine(factor: float, **more: Any) -> dict[str, Any]:
    base = [2000.0, 2200.0, 1800.0, 2100.0, 1900.0, 2000.0]
    return _row("engine", [us / factor for us in base], **more)


def _text(*records: dict[str, Any]) -> str:
    document = _document(*records)
    return page_tables(document, figures_of(document), "peers.json")


def _more(*records: dict[str, Any]) -> str:
    document = _document(*records)
    return whole_tables(document, figures_of(document), "peers.json")


def test_ratio_is_that_of_the_rounds_with_its_interval() -> None:
    slower = _row("OpenVINO fp32", [1000.0, 1100.0, 1800.0, 1050.0, 950.0, 1000.0])
    (row,) = figures_of(
        _document(_record("resnet18", engine=_engine(2), **{"openvino-f32": slower}))
    )
    ratio = row.peers["engine"].ratio
    assert ratio is not None and (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)
    other = row.peers["openvino-f32"].ratio
    assert other is not None and (other.low, other.median, other.pairs) == (1.0, 2.0, 6)


def test_fewer_rounds_are_paired_with_the_first_ones() -> None:
    (row,) = figures_of(
        _document(_record("resnet18", compiled=_row("torch.compile", [4000.0, 8800.0])))
    )
    ratio = row.peers["compiled"].ratio
    assert ratio is not None and (ratio.low, ratio.high, ratio.pairs) == (0.25, 0.5, 2)


def test_share_of_the_roof_is_work_over_time() -> None:
    (row,) = figures_of(_document(_record("resnet18")))
    # 1e8 multiply-adds in 2 ms are 5e10 a second, half of the roof
    assert row.peers["ort"].roof_share == pytest.approx(0.5)


def test_means_are_over_networks_every_runtime_has_a_figure_for() -> None:
    compiled = _row("torch.compile", [1000.0] * 6)
    rows = figures_of(
        _document(
            _record("resnet18", engine=_engine(4), compiled=compiled),
            _record("bert6", engine=_engine(1)),
        )
    )
    assert [row.title for row in shared_rows(rows, ["engine", "compiled", "never"])] == [
        rows[0].title
    ]
    assert len(shared_rows(rows, ["engine"])) == 2
    assert shared_rows(rows, ["never"]) == []


def test_geometric_mean_leaves_out_what_failed() -> None:
    failed = {"title": "engine", "precision": "fp32", "failure": "OSError: no"}
    rows = figures_of(
        _document(
            _record("resnet18", engine=_engine(4)),
            _record("bert6", engine=_engine(1)),
            _record("yolo_silu", engine=failed),
        )
    )
    mean = geometric_mean(rows, "engine")
    assert mean is not None and mean == (pytest.approx(2.0), 2)
    assert geometric_mean(rows, "compiled") is None


def test_precisions_never_share_a_table() -> None:
    openvino = _row("OpenVINO default", [1000.0] * 6, "any", facts={"computes_in": "bf16"})
    record = _record("resnet18", engine=_engine(1.5), openvino=openvino)
    float32, other = _text(record), _more(record).split("### 2 threads, other precisions")[1]
    assert "| engine |" in float32 and "OpenVINO default |" not in float32
    assert "OpenVINO default |" in other and "engine |" not in other.split("### ")[0]
    assert "OpenVINO default computed in bf16." in float32


def test_networks_come_in_the_order_of_the_registry_and_threads_apart() -> None:
    text = _text(
        _record("bert6", 1, engine=_engine(1)),
        _record("resnet18", 2, engine=_engine(1)),
        _record("resnet18", 1, engine=_engine(1)),
    )
    one, two = text.split("### 2 threads, float32")
    assert one.index("| ResNet-18 |") < one.index("| BERT, 6 layers |")
    assert "| BERT" not in two


def test_runtime_measured_on_some_networks_has_a_mean_of_its_own_row() -> None:
    compiled = _row("torch.compile", [1000.0] * 6)
    text = _text(
        _record("resnet18", engine=_engine(4), compiled=compiled),
        _record("bert6", engine=_engine(1)),
    )
    assert "| **geometric mean** of 2 |  | **2.00** |  |" in text
    assert "| **geometric mean** of 1 |  | **4.00** | **2.00** |" in text


def test_failures_are_told_once_for_all_networks() -> None:
    failed = {"title": "torch.compile", "precision": "fp32", "failure": "not\n `there`"}
    text = _text(
        _record("resnet18", compiled=failed),
        _record("bert6", compiled=failed),
        {**_record("gpt2"), "peers": {}, "settings": {}, "failure": "no memory"},
    )
    assert "- torch.compile: `not 'there'`: ResNet-18 (2); BERT, 6 layers (2)" in text
    assert "- network: `no memory`: GPT-2 (2)" in text
    assert "| GPT-2 |" not in text


def test_printed_gain_stands_beside_the_measured_one() -> None:
    said = {"speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "seconds": 301.2}
    engine = _engine(2, facts={"kernels": 7, "printed": said})
    line = "| ResNet-18 | 2 | 1.50 (1.40 to 1.60) | 2.00 (2.00 to 2.00) | 7 | 301 |"
    apart = {"speedup": 1.95, "speedup_low": 1.9, "speedup_high": 2.05, "seconds": 9.0}
    other = _engine(2, facts={"kernels": 1, "printed": apart})
    text = _more(_record("resnet18", engine=engine), _record("bert6", engine=other))
    assert line in text
    assert "overlap in 1 of 2 rows" in text


def test_gains_that_were_printed_at_another_speed_of_the_machine_are_told_apart() -> None:
    apart = {"speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "seconds": 9.0}
    at_this = {**apart, "baseline_ms": 2.1, "tuned_ms": 1.4}
    at_another = {**apart, "baseline_ms": 3.0, "tuned_ms": 2.0}
    agreeing = {**at_this, "speedup_high": 2.1}
    text = _more(
        *(
            _record(name, engine=_engine(2, facts={"kernels": 1, "printed": said}))
            for name, said in (("resnet18", agreeing), ("bert6", at_this), ("gpt2", at_another))
        )
    )
    assert "within 10%, they overlap in 1 of 2 rows, elsewhere in 0 of 1" in text
    assert "| GPT-2 | 1.50 | 2.00 (2.00 to 2.00) | 3.00, 2.00 | 2.00, 1.00 |" in text
    assert "| ResNet-18 | 1.50 | 2.00" not in text


def test_load_of_other_processes_is_told() -> None:
    busy = _row("OpenVINO fp32", [1.0] * 6, others=[0.9] * 6)
    text = _text(_record("resnet18", **{"openvino-f32": busy}))
    assert "90% in the worst" in text


def test_page_is_rewritten_between_its_markers_only(tmp_path: Path) -> None:
    results = tmp_path / "peers.json"
    results.write_text(json.dumps(_document(_record("resnet18", engine=_engine(2)))))
    page = tmp_path / "benchmarks.md"
    begin, end = place_of(results)
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    write_docs(results, tmp_path)
    first = page.read_text()
    assert first.startswith(f"before\n{begin}\n") and first.endswith(f"{end}\nafter\n")
    assert "old" not in first and "2.00 (2.00 to 2.00)" in first
    assert "Errors against float64" in (tmp_path / "peers.md").read_text()
    write_docs(results, tmp_path)
    assert page.read_text() == first


def test_results_without_a_place_in_the_page_are_written_beside_them_alone(tmp_path: Path) -> None:
    results = tmp_path / "peers-older.json"
    results.write_text(json.dumps(_document(_record("resnet18", engine=_engine(2)))))
    page = tmp_path / "benchmarks.md"
    page.write_text("<!-- peers: begin -->\nnewest\n<!-- peers: end -->\n")
    write_docs(results, tmp_path)
    assert "newest" in page.read_text()
    assert "2.00 (2.00 to 2.00)" in (tmp_path / "peers-older.md").read_text()
    assert not (tmp_path / "benchmarks-peers.svg").exists()


def test_place_without_an_end_is_refused(tmp_path: Path) -> None:
    results = tmp_path / "peers.json"
    results.write_text(json.dumps(_document()))
    (tmp_path / "benchmarks.md").write_text(place_of(results)[0])
    with pytest.raises(ResultsError, match="no place for the tables"):
        write_docs(results, tmp_path)
    assert not (tmp_path / "benchmarks-peers.svg").exists()


def test_short_table_has_intervals_of_the_engine_only() -> None:
    slower = _row("OpenVINO fp32", [1000.0] * 6)
    record = _record("resnet18", engine=_engine(2), **{"openvino-f32": slower})
    assert "| ResNet-18 | 2.00 | 2.00 (2.00 to 2.00) | 2.00 |\n" in _text(record)
    assert "| ResNet-18 | 0.10 | 2.00 | 2.00 (2.00 to 2.00) | 2.00 (1.80 to 2.20) |" in _more(
        record
    )


def test_picture_has_every_network_and_runtime_once() -> None:
    openvino = _row("OpenVINO default", [1000.0] * 6, "any")
    again = _row("ONNX Runtime again", [2000.0] * 6)
    record = _record("resnet18", engine=_engine(2), openvino=openvino, **{"ort-again": again})
    texts = _svg_texts(draw(figures_of(_document(record, _record("bert6", 1)))))
    for title in ("ResNet-18", "engine", "OpenVINO default", "float32", "other precisions"):
        assert texts.count(title) == 1
    assert "ONNX Runtime again" not in texts and "BERT, 6 layers" not in texts


def test_picture_of_nothing_is_a_picture() -> None:
    assert _svg_texts(draw([]))[0].startswith("Speed-up")


def test_peers_are_named_by_kind() -> None:
    rows = figures_of(_document(_record("resnet18", engine=_engine(1))))
    assert peer_names(rows, is_float32=True) == {"engine": "engine"}
    assert peer_names(rows, is_float32=False) == {}


def _svg_texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("file", _KEPT, ids=lambda file: file.stem)
def test_page_beside_kept_results_says_what_they_say(file: Path) -> None:
    document = load_results(file)
    page = whole_tables(document, figures_of(document), file.name)
    assert file.with_suffix(".md").read_text() == page
