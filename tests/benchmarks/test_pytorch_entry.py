"""The benchmark of the PyTorch entry: turns and ratios."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_entry


def _record(**changes: Any) -> dict[str, Any]:
    ms = {"eager": [4.0] * 7, "untuned": [2.0] * 7, "tuned": [1.0] * 7}
    return {"title": "Net", "ms": ms, "kernels": 3} | changes


def _document(*records: dict[str, Any]) -> dict[str, Any]:
    return {
        "environment": {"cpu": "Test CPU"},
        "options": {
            "rounds": 7,
            "budget": 60.0,
            "threads": 2,
            "libraries": {"torch": "2.15.0", "timm": ""},
        },
        "steps": {str(number): record for number, record in enumerate(records)},
    }


def test_table_tells_the_runtime_from_the_tuning() -> None:
    text = pytorch_entry.table(_document(_record()))
    cells = "4.00 | 2.00x (2.00 to 2.00) | 2.00x (2.00 to 2.00) | 4.00x (4.00 to 4.00) | 3"
    assert f"| Net | {cells} |" in text
    assert "Test CPU, 2 threads, torch 2.15.0; 7 rounds" in text
    assert "inductor" not in text


def test_other_compilers_are_a_column_where_they_were_measured() -> None:
    both = _record()["ms"] | {"inductor": [8.0] * 7}
    lines = pytorch_entry.table(_document(_record(ms=both), _record())).splitlines()
    assert lines[-2].endswith("| 3 | 0.50x (0.50 to 0.50) |")
    assert lines[-1].endswith("| 3 |  |")


def test_a_ratio_is_the_median_of_ratios_within_rounds() -> None:
    drifting = {"eager": [1.0, 2.0, 4.0], "untuned": [1.0, 1.0, 1.0], "tuned": [1.0, 1.0, 1.0]}
    text = pytorch_entry.table(_document(_record(ms=drifting)))
    assert "2.00x (1.00 to 4.00) | 1.00x" in text


def _ticking(seconds: dict[str, float]) -> tuple[Callable[[], float], dict[str, Any], list[str]]:
    now_s, order = [0.0], []

    def way(name: str) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            now_s[0] += seconds[name]

        return call

    return lambda: now_s[0], {name: way(name) for name in seconds}, order


def test_everybody_has_a_turn_in_each_round_and_the_first_one_turns() -> None:
    clock, ways, order = _ticking({"a": 0.25, "b": 1.0})
    found = pytorch_entry.take_turns(ways, rounds=2, turn_s=1.0, clock=clock)
    assert found == {"a": [250.0, 250.0], "b": [1000.0, 1000.0]}
    assert order == ["a"] * 4 + ["b"] * 3 + ["b"] * 3 + ["a"] * 4
