"""The ranges of the benchmark: what is open, what calls there are, and the tables of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparison.range_tables import every_network, every_shape, measured_shapes, step_name
from comparison.tables import place_of
from networks.ranges import RANGES
from networks.registry import NETWORKS

from aoe.entry.shape_log import read_shape_log
from aoe.entry.shape_range import parse_shape_range

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = sorted((_ROOT / "benchmarks" / "results").glob("shape_ranges*.json"))


def _document(calls: dict[str, int], **times_ms: dict[str, float]) -> dict[str, Any]:
    """Return a file of results: times by shape and runtime, the same in two rounds."""
    measured = {
        shape.replace("_", " x ").join(("Net, small, ", "")): {
            who.replace("_", " "): {"median_us": [1e3 * ms] * 2} for who, ms in row.items()
        }
        for shape, row in times_ms.items()
    }
    tuned = {"limit_s": 1, "points": [], **({"calls": calls} if calls else {})}
    here = {
        "cores": 2,
        "cpu": "a CPU",
        "model": "1",
        "versions": {"onnxruntime": "1", "halide": "2"},
    }
    return {"environment": here, "date": "2026-11-27", "steps": {"net, tuned": tuned, **measured}}


def test_open_axes_are_named_where_they_are() -> None:
    cached = RANGES["gpt2_cached"]
    at = cached.at(NETWORKS["gpt2_cached"], (17,))
    assert at.inputs[0].shape == (1, 1)
    assert {one.shape for one in at.inputs[1:]} == {(2, 1, 12, 17, 64)}
    assert cached.option(at).startswith("tokens:1,1;past_0:2,1,12,1~512,64;past_1:")


@pytest.mark.parametrize("name", RANGES)
def test_every_range_is_one_and_holds_what_is_measured(name: str) -> None:
    here, network = RANGES[name], NETWORKS[name]
    option = parse_shape_range(here.option(network))
    assert list(option) == [one.name for one in network.inputs]
    assert not here.calls.keys() & set(here.unseen)
    for extents in here.measured:
        for one, (low, high) in zip(extents, here.ends.values(), strict=True):
            assert low <= one <= high and one % here.unit == 0


@pytest.mark.parametrize("name", [name for name, here in RANGES.items() if here.calls])
def test_calls_are_a_log_whose_shapes_lie_in_the_range(name: str, tmp_path: Path) -> None:
    here, network = RANGES[name], NETWORKS[name]
    file = tmp_path / "calls.csv"
    file.write_text(here.log(network))
    log = read_shape_log(file)
    assert log.calls == sum(here.calls.values())
    most, count = max(here.calls.items(), key=lambda pair: pair[1])
    shapes = {one.name: one.shape for one in here.at(network, most).inputs}
    assert log.shapes[0].count == count
    assert parse_shape_range(log.shapes[0].text) == shapes


def test_mean_over_a_log_is_weighted_by_its_calls() -> None:
    calls = {step_name("Net, small", (1, 8)): 3, step_name("Net, small", (1, 9)): 1}
    document = _document(
        calls,
        **{
            "1_8": {"ort": 16, "engine_range": 8, "engine_fixed": 4},
            "1_9": {"ort": 16, "engine_range": 128},
            "1_64": {"ort": 10, "engine_range": 4},
        },
    )
    page = every_network(document, "shape_ranges.json")
    # 2 three times and 1/8 once: (2^3 / 8)^(1/4)
    assert "| Net, small | 2 of a log | 16.00 | 1.00 (0.12) |  | 4.00 | 2.00 |" in page
    assert "| Net, small | 1 others | 10.00 | 2.50 |  |  |  |" in page
    assert "| Net, small, 1 x 9 | 16.00 | 0.12 |  |  | 1 |" in every_shape(document, "any.json")


def test_results_without_a_log_have_a_row_of_equal_weights() -> None:
    both = {"1_8": {"ort": 8.0, "engine_range": 2.0}, "1_9": {"ort": 9.0, "engine_range": 9.0}}
    document = _document({}, **both)
    assert "| Net, small | 2 | 8.00 to 9.00 | 2.00 (1.00) |  |  |  |" in every_network(
        document, "f"
    )
    assert "calls" not in every_shape(document, "f")


def test_runtime_that_computed_nothing_has_a_dash() -> None:
    document = _document({}, **{"1_8": {"ort": 8.0, "engine_range": 2.0}})
    document["steps"]["Net, small, 1 x 8"]["openvino-f32"] = {"failure": "no kernel"}
    assert "| Net, small | 1 | 8.00 | 4.00 | - |  |  |" in every_network(document, "f")


def test_means_of_two_are_over_the_shapes_that_both_have() -> None:
    row = {"ort": 8.0, "engine_range": 2.0, "openvino-f32": 4.0}
    document = _document({}, **{"1_8": row, "1_9": row})
    document["steps"]["Net, small, 1 x 9"] |= {
        "engine range": {"failure": "killed"},
        "openvino-f32": {"median_us": [8e4]},  # ten times as slow: fewer turns
    }
    assert "| Net, small | 2, 1 compared | 8.00 | 4.00 | 2.00 |" in every_network(document, "f")


@pytest.mark.parametrize("file", _RESULTS, ids=lambda file: file.stem)
def test_kept_results_are_read_and_stand_beside_them(file: Path) -> None:
    document = json.loads(file.read_text())
    assert measured_shapes(document)
    assert file.with_suffix(".md").read_text() == every_shape(document, file.name)


def test_page_has_the_table_of_the_newest_results() -> None:
    document = json.loads((_ROOT / "benchmarks" / "results" / "shape_ranges.json").read_text())
    page = (_ROOT / "docs" / "benchmarks.md").read_text()
    table = every_network(document, "shape_ranges.json")
    begin, end = place_of(Path("shape_ranges.json"))
    assert f"{begin}\n{table}{end}" in page
