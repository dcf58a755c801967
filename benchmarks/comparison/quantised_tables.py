"""Tables of quantised networks: geometric means of each form, and every network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison.figures import NetworkFigures, PeerFigure, figures_of, geometric_mean, shared_rows
from comparison.tables import facts_lines, failure_list, ratio_cell, table_row
from runtimes.registry import BASELINE

FLOAT32 = "float32"
_READING = """\
Speed-ups are over ONNX Runtime on the same file, one thread. In brackets are the ends of an
interval of 95 %. A cosine is the least of the outputs, against torch in float64; weights and
calibration data are seeded values, so it is that of rounding alone."""
Rows = Sequence[NetworkFigures]


def means(document: Mapping[str, Any], file: str) -> str:
    """Return the table of the documentation: a row of geometric means for each form."""
    forms = list(_forms(document))
    beside = f"../benchmarks/results/{Path(file).with_suffix('.md')}"
    heads = ["as written", "networks", "engine", "least", "OpenVINO", "engine over OpenVINO"]
    heads += ["ORT on float32", "least cosine"]
    lines = [
        f"{_facts(document, file)}\n[Every network]({beside}).",
        "",
        table_row(heads),
        table_row(["---"] * len(heads)),
    ]
    for form, rows in forms:
        engine = "engine-allow_mix_precision_int8" if form == FLOAT32 else "engine"
        other = "openvino-u8" if form == FLOAT32 else "openvino-f32"
        shared = shared_rows(rows, (engine, other))
        found = [geometric_mean(shared, name) for name in (engine, other, "ort-float32")]
        own, theirs, plain = (mean[0] if mean else None for mean in found)
        title = f"{form}, int8 allowed" if form == FLOAT32 else form
        ratios = [row.peers[engine].ratio for row in shared if engine in row.peers]
        least = min((ratio.median for ratio in ratios if ratio), default=None)
        over = own / theirs if own and theirs else None
        cells = [_number(value) for value in (own, least, theirs, over, plain)]
        cosines = [row.peers[engine].cosine for row in shared if engine in row.peers]
        cosine = min((one for one in cosines if one is not None), default=None)
        accuracy = "-" if cosine is None else f"{cosine:.5f}"
        of = f" of {len(rows)}" if len(shared) < len(rows) else ""
        lines.append(table_row([title, f"{len(shared)}{of}", *cells, accuracy]))
    return "\n".join(lines) + "\n"


def every_network(document: Mapping[str, Any], file: str) -> str:
    """Return the page beside the results: a table for each form, with errors against float64."""
    parts = [
        "# Networks as quantisers write them",
        f"Written from `{file}` by `python benchmarks/quantised.py --write-docs`.",
        _facts(document, file),
        _READING,
    ]
    for form, rows in _forms(document):
        parts += [f"## {form}", "\n".join(_speeds(rows)), "\n".join(_cosines(rows))]
        parts += failure_list(rows)
    return "\n\n".join(parts) + "\n"


def _forms(document: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Yield the forms in the order they were measured in, each with its networks."""
    records = document["steps"].values()
    for form in dict.fromkeys(record["form"] for record in records):
        yield form, figures_of({"records": [one for one in records if one["form"] == form]})


def _facts(document: Mapping[str, Any], file: str) -> str:
    records = [{**one, "date": document["date"]} for one in document["steps"].values()]
    rows = figures_of({"records": records})
    return facts_lines({**document, "records": records}, rows, file)


def _titles(rows: Rows) -> dict[str, str]:
    return {name: figure.title for row in rows for name, figure in row.peers.items()}


def _speeds(rows: Rows) -> Iterator[str]:
    names = {name: title for name, title in _titles(rows).items() if name != BASELINE}
    heads = ["network", "ORT ms", *names.values()]
    yield table_row(heads)
    yield table_row(["---"] * len(heads))
    for row in rows:
        baseline = row.peers.get(BASELINE)
        call = f"{baseline.call_ms:.2f}" if baseline and baseline.call_ms else "failed"
        yield table_row([row.title, call, *(ratio_cell(row.peers.get(name)) for name in names)])
    shared = shared_rows(rows, names)
    found = (geometric_mean(shared, name) for name in names)
    cells = [f"**{mean[0]:.2f}**" if mean else "" for mean in found]
    yield table_row([f"**geometric mean** of {len(shared)}", "", *cells])


def _cosines(rows: Rows) -> Iterator[str]:
    names = _titles(rows)
    yield table_row(["cosine", *names.values()])
    yield table_row(["---"] * (len(names) + 1))
    for row in rows:
        yield table_row([row.title, *(_cosine(row.peers.get(name)) for name in names)])


def _cosine(figure: PeerFigure | None) -> str:
    return "-" if figure is None or figure.cosine is None else f"{figure.cosine:.5f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
