"""What the benchmark of short limits tells of its tunings; nothing is tuned."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import in_time
import outside
import pytest
from comparison.results import engine_digest
from comparison.steps import CommandError, Steps

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_KEPT = [one for one in _RESULTS.glob("in_time*.json") if one.with_suffix(".md").exists()]


def _row(outside: float, **changed: Any) -> dict[str, Any]:
    """Return what a tuning has printed, and what was read of it."""
    found = {"speedup": 1.3, "speedup_low": 1.2, "speedup_high": 1.4, "unchanged": False}
    found |= {"outside": outside, "outside_low": 0.99 * outside, "outside_high": 1.01 * outside}
    return {**found, "seconds": 20.0, "won": 3, "used": 2, "others": {"openvino": 1.1}, **changed}


def test_lines_behind_the_table_are_over_networks_limits_and_builds(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "steps.json", {"rounds": 1})
    rows = {
        "espcn 20 this": _row(1.2),
        "espcn 60 this": _row(1.39),
        "espcn 300 this": _row(1.4),
        "dlrm 20 this": _row(1.0, unchanged=True),
        "dlrm 300 this": _row(1.01, unchanged=True),
        "dlrm 60 this": _row(1.0, unchanged=True, others={"openvino": None}),
        "espcn 20 old": _row(1.05, others={}),
    }
    for name, row in rows.items():
        steps.once(name, lambda row=row: row)
    told = in_time.table(steps.document).splitlines()
    assert "| dlrm | 60 | this | 20 | unchanged | 1.00 (0.99 to 1.01) | yes | - | 3, 2 |" in told
    assert _facts(told) == {
        "old, 20 s": "1 networks: 1.050x, 0 inside; 0 unchanged; OpenVINO not measured",
        "this, 20 s": "2 networks: 1.095x (1.095), 2 inside; 1 unchanged; 1 below OpenVINO",
        "this, 60 s": "2 networks: 1.179x (1.179), 2 inside; 1 unchanged; 0 below OpenVINO",
        "this, 300 s": "2 networks: 1.189x (1.183), 2 inside; 1 unchanged; 1 below OpenVINO",
    }
    assert told[-1] == "- this: 95% of the gain of 300 s after 0.20 of that time (1 networks)"


def _facts(told: list[str]) -> dict[str, str]:
    """Return the lines of builds and limits, without the words that are the same in all."""
    words = {
        " of what was printed, ": "; ",
        " though 2 kernels or more won alone, ": "; ",
        "x with the unchanged ones as 1": "",
        " outside, ": ", ",
    }
    found = {}
    for line in told[-5:-1]:
        build, limit, facts = line.removeprefix("- ").split(", ", 2)
        for old, new in words.items():
            facts = facts.replace(old, new)
        found[f"{build}, {limit}"] = facts
    return found


def test_builds_of_one_name_are_refused() -> None:
    steps = Steps(Path("none.json"), {})
    given = Namespace(
        work=Path("work"),
        precision_mode="",
        limits=(20.0,),
        rounds=1,
        builds=["a/.venv/bin/python", "b/.venv/bin/python"],
    )
    with pytest.raises(SystemExit, match=r"two builds of one name \(got \.venv"):
        in_time.measure("net.onnx", steps, given)


def test_tuning_by_another_build_is_done_anew_when_that_build_has_changed(tmp_path: Path) -> None:
    tree, python = tmp_path / "tree", tmp_path / "old" / "bin" / "python"
    (tree / "aoe").mkdir(parents=True)
    (source := tree / "aoe" / "__init__.py").write_text("first = 1\n")
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$2" = -c ] || exit 9\necho {source}\n')
    python.chmod(0o755)
    steps = Steps(tmp_path / "steps.json", {})
    steps.once("net 20 this", lambda: _row(1.2))
    steps.once("net 20 old", lambda: _row(1.1), engine=engine_digest(tree))
    given = Namespace(work=tmp_path, precision_mode="", limits=(20.0,), rounds=1)
    given.builds = [str(python)]
    in_time.measure("net.onnx", steps, given)
    assert steps.document["steps"]["net 20 old"]["outside"] == 1.1
    source.write_text("first = 2\n")
    with pytest.raises(CommandError, match="exit code 9"):
        in_time.measure("net.onnx", steps, given)


def test_build_that_tunes_is_that_of_the_interpreter_not_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aoe").mkdir()
    (tmp_path / "aoe" / "__init__.py").touch()
    (tmp_path / "aoe" / "__main__.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=r"exit code [^9]"):
        outside.tuned_and_read(Path("none.onnx"), 20.0, 1)


@pytest.mark.parametrize("file", _KEPT, ids=lambda file: file.stem)
def test_page_beside_kept_results_has_their_rows_and_sums(file: Path) -> None:
    page = file.with_suffix(".md").read_text()
    _, *lines = in_time.table(json.loads(file.read_text())).splitlines()
    assert not [line for line in lines if line not in page]
