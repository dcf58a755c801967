"""Subgraph tuning alone, operator tuning alone and both, against ONNX Runtime.

    python benchmarks/subgraphs.py --smoke                  # does everything work: a minute or two
    python benchmarks/subgraphs.py                          # ten networks, on a quiet machine
    python benchmarks/subgraphs.py --networks hifigan densenet121 --rounds 15
    python benchmarks/subgraphs.py --write-docs             # the table from the results

Networks, processes, rounds and options are those of `peers.py`: each way of tuning starts with an
empty bank and the same seconds, writes an `.om`, and is loaded in a process of its own; the four
take turns in an order that changes from round to round. Runs can be ended and begun again at any
time. What an earlier version of the engine has measured stays (`--again` measures it anew); where
there are several versions, each row names its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from comparison.figures import NetworkFigures, PeerFigure, figures_of, geometric_mean, shared_rows
from comparison.results import load_results
from comparison.tables import PAGE, facts_lines, ratio_cell, table_row, write_between
from networks.registry import NETWORKS
from peers import Suite, main
from runtimes.registry import BASELINE, PEERS
from runtimes.runtime import Peer

BEGIN, END = "<!-- subgraphs: begin -->", "<!-- subgraphs: end -->"
AIMS: Mapping[str, float | None] = MappingProxyType(
    {
        "densenet121": 1.5,
        "mobilenet_v3_large": 1.25,
        "efficientnet_b0": 1.25,
        "yolo_silu": 1.2,
        "convnext_tiny": 1.25,
        "iresnet50": 1.2,
        "swin_tiny": 1.25,
        "bert6": None,
        "unet2d": 1.25,
        "hifigan": None,
    }
)
"""The networks, with the speed-up over ONNX Runtime that is aimed at with both ways of tuning."""
_DIGITS = 7
"""Of an engine's digest: a file has a few of them."""
_ENGINE = PEERS["engine"]


def _tuned(title: str, jobs: str) -> Peer:
    """Return a way of tuning; kernels of subgraph tuning are as large as those of operators."""
    options = {"job_type": jobs, "tune_optimization_level": "O1"}
    return replace(_ENGINE, title=title, options=options)


WAYS: Mapping[str, Peer] = MappingProxyType(
    {
        BASELINE: PEERS[BASELINE],
        "sgat": _tuned("SGAT", "sgat"),
        "opat": _tuned("OPAT", "opat"),
        "both": _tuned("SGAT, OPAT", "sgat,opat"),
    }
)


def write_docs(results: Path, docs: Path) -> None:
    """Replace the table in the page.

    Raises:
        ResultsError: the results cannot be read, or the page has no markers.
    """
    document = load_results(results)
    page = docs / PAGE
    write_between(page, BEGIN, END, table(document, results.name))


def table(document: Mapping[str, Any], file: str) -> str:
    """Return where the figures were taken, and a row for each network, as Markdown."""
    rows = figures_of(document)
    lines = "\n".join(_rows(rows))
    return f"{facts_lines(document, rows, file)}\n\n{lines}\n"


def _rows(rows: Sequence[NetworkFigures]) -> Iterator[str]:
    aims = {NETWORKS[name].title: aim for name, aim in AIMS.items()}
    ways = [name for name in WAYS if name != BASELINE]
    heads = ["network", "ORT ms", *(WAYS[name].title for name in ways)]
    heads += ["aim", "forms, kernels of both", "peak memory: SGAT, OPAT, both"]
    engines = {row.engine for row in rows}
    heads += ["engine"] if len(engines) > 1 else []
    yield table_row(heads)
    yield table_row(["---"] * len(heads))
    for row in rows:
        baseline, both = row.peers.get(BASELINE), row.peers.get("both")
        call = f"{baseline.call_ms:.2f}" if baseline and baseline.call_ms else "failed"
        aim = aims.get(row.title)
        yield table_row(
            [
                row.title,
                call,
                *(ratio_cell(row.peers.get(name)) for name in ways),
                "" if aim is None else f"{aim:g}",
                _contents(both),
                ", ".join(_memory(row.peers.get(name)) for name in ways),
                *([row.engine[:_DIGITS]] if len(engines) > 1 else []),
            ]
        )
    shared = shared_rows(rows, ways)
    means = [geometric_mean(shared, name) for name in ways]
    cells = [f"**{mean[0]:.2f}**" if mean else "" for mean in means]
    cells = [f"**geometric mean** of {len(shared)}", "", *cells]
    yield table_row([*cells, *[""] * (len(heads) - len(cells))])


def _contents(both: PeerFigure | None) -> str:
    if both is None or both.failure:
        return "-"
    return f"{both.facts.get('forms', 0)}, {both.facts.get('kernels', 0)}"


def _memory(way: PeerFigure | None) -> str:
    """Return the peak of a tuned model over that of the imported one, as `aoe` measured it."""
    found = way.facts.get("memory") if way is not None else None
    peaks = [found[side]["peak_bytes"] for side in ("tuned", "untuned")] if found else [None]
    return f"{peaks[0] / peaks[1]:.2f}" if all(peaks) else "-"


SUITE = Suite(
    about=__doc__,
    networks=tuple(AIMS),
    smoke=(("mobilenet_v3_large",), 2, 0.02, 5.0),
    peers=WAYS,
    threads=(2,),
    budget_s=120.0,
    open_roof=lambda folder: None,
    results=Path(__file__).resolve().parent / "results" / "subgraphs.json",
    write_docs=write_docs,
)


if __name__ == "__main__":
    sys.exit(main(suite=SUITE))
