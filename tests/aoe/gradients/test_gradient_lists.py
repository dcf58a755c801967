"""The simulation: networks have their published size, rules keep their order."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "benchmarks.md"


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("gdat_simulation")
    for name in ("gdat_simulation", "gradient_lists"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("network", "parameters", "gradients"),
    [("resnet50", 25_557_032, 161), ("bert_base", 109_482_240, 199), ("vgg16", 138_357_544, 32)],
)
def test_networks_have_their_published_size(
    simulation: ModuleType, network: str, parameters: int, gradients: int
) -> None:
    trace = simulation.gradient_trace(network, batch=32, tflops=30)
    assert (trace.total_bytes, len(trace)) == (4 * parameters, gradients)


def test_forward_work_is_the_published_one(simulation: ModuleType) -> None:
    # backward does twice the work of forward; 4.1 and 15.5 billion multiply-adds per image
    for network, expected in (("resnet50", 4.1e9), ("vgg16", 15.5e9)):
        trace = simulation.gradient_trace(network, batch=1, tflops=1)
        assert trace.backward_end_us * 1e6 / 4 == pytest.approx(expected, rel=0.08)


def test_no_rule_beats_the_optimum(simulation: ModuleType) -> None:
    found = list(simulation.cases(["vgg16", "bert_base"], [8, 1024], batch=8, tflops=50))
    assert len(found) == 16
    for case in found:
        assert all(case.excess_percent(rule) >= -1e-6 for rule in simulation.RULES)
        assert case.excess_percent("best bucket_cap_mb") <= case.excess_percent("DDP default")


def test_output_says_that_it_is_a_simulation(
    simulation: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulation.main(["--networks", "vgg16", "--workers", "8"]) == 0
    assert capsys.readouterr().out.startswith("simulation: 4 clusters")


def test_page_shows_the_summary_the_program_prints(
    simulation: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.main([])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    summary = [*takewhile(lambda row: "| link |" not in row, rows)]  # without the single clusters
    assert len(summary) == 6
    assert [row for row in summary if row not in page] == []
