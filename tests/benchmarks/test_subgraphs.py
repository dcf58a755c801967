"""The benchmark of subgraph tuning: what it measures, resumes and writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import peers
import pytest
import subgraphs
from comparison.prepared import PreparedNetwork
from comparison.results import ResultsError, environment, load_results, open_results
from comparison.rounds import Comparison, RoundSettings


def _made(name: str, folder: Path) -> PreparedNetwork:
    return PreparedNetwork(name=name, folder=folder, facts={"multiply_adds": 10**9})


def _record(name: str, speeds: dict[str, float], settings: RoundSettings) -> dict[str, Any]:
    peaks = {"ort": 200, "sgat": 150, "opat": 180, "both": 240}
    return {
        "network": name,
        "threads": 2,
        "settings": {
            "rounds": settings.rounds,
            "turn_s": settings.turn_s,
            "budget_s": settings.budget_s,
        },
        "facts": {"multiply_adds": 10**9},
        "peers": {
            way: {
                "title": peer.title,
                "precision": "fp32",
                "median_us": [1000 / speeds.get(way, 1.0) + turn for turn in range(9)],
                "others": [0.0],
                "facts": {
                    "forms": 3,
                    "kernels": 4,
                    "memory": {
                        "untuned": {"peak_bytes": 200},
                        "tuned": {"peak_bytes": peaks[way]},
                    },
                },
            }
            for way, peer in subgraphs.WAYS.items()
        },
    }


_SETTINGS = RoundSettings(rounds=9, turn_s=0.5, budget_s=1.0)


def test_networks_of_the_proof_are_measured_four_ways_and_only_once(tmp_path: Path) -> None:
    seen: list[str] = []

    def race(comparison: Comparison, settings: RoundSettings, say: Any) -> dict[str, Any]:
        assert list(comparison.peers) == ["ort", "sgat", "opat", "both"]
        seen.append(comparison.network.name)
        return {**_record(comparison.network.name, {}, settings), "threads": 1}

    def run(*words: str) -> int:
        return peers.main([*places, *words], suite)

    suite = replace(subgraphs.SUITE, prepare=_made, compare=race)
    places = ["--threads=1", "--results", str(tmp_path / "r.json"), "--work", str(tmp_path / "w")]
    assert run() == 0
    assert len(seen) == 10 and seen[0] == "densenet121"
    assert run() == 0
    assert len(seen) == 10
    assert run("--budget=7", "--networks", "hifigan") == 0
    assert seen[10:] == ["hifigan"]


def test_ways_differ_in_their_jobs_only() -> None:
    jobs = {way: dict(peer.options) for way, peer in subgraphs.WAYS.items() if way != "ort"}
    without_limits = {"tune_optimization_level": "O1"}
    assert jobs == {
        "sgat": {"job_type": "sgat", **without_limits},
        "opat": {"job_type": "opat", **without_limits},
        "both": {"job_type": "sgat,opat", **without_limits},
    }


def test_table_has_ratios_aims_contents_and_memory_of_each_way(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    with open_results(file) as opened:
        opened.put(_record("densenet121", {"sgat": 1.1, "opat": 1.2, "both": 1.3}, _SETTINGS))
    text = subgraphs.table(load_results(file), file.name)
    (row,) = [line for line in text.splitlines() if line.startswith("| DenseNet-121")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert [cell.split(" ")[0] for cell in cells[2:5]] == ["1.10", "1.20", "1.30"]
    assert cells[5:] == ["1.5", "3, 4", "0.75, 0.90, 1.20"]
    assert environment()["cpu"] in text
    assert "| **geometric mean** of 1 |" in text


def test_rows_name_their_engine_where_there_are_several(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    for name, engine in (("densenet121", "aaaaaaaabb"), ("hifigan", "ccccccccdd")):
        here = {**environment(), "engine": engine}
        with open_results(file, is_mixed=True, here=here) as opened:
            opened.put(_record(name, {}, _SETTINGS))
    lines = subgraphs.table(load_results(file), file.name).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.strip("| ").split(" | ")[-1] for row in rows[2:4]] == ["aaaaaaa", "ccccccc"]


def test_page_without_markers_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    with open_results(file) as opened:
        opened.put(_record("hifigan", {}, _SETTINGS))
    page = tmp_path / "benchmarks.md"
    page.write_text("text")
    with pytest.raises(ResultsError, match="no place for the tables"):
        subgraphs.write_docs(file, tmp_path)
    page.write_text(f"a\n{subgraphs.BEGIN}\nold\n{subgraphs.END}\nb\n")
    subgraphs.write_docs(file, tmp_path)
    text = page.read_text()
    assert text.startswith("a\n") and text.endswith("b\n") and "old" not in text
    assert "| HiFi-GAN |" in text
