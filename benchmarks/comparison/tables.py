"""Tables of raw results: short ones in places of the documentation, whole ones beside a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from comparison.figures import (
    NetworkFigures,
    PeerFigure,
    figures_of,
    geometric_mean,
    peer_names,
    shared_rows,
)
from comparison.files import write_whole
from comparison.picture import draw
from comparison.results import ResultsError, load_results
from runtimes.registry import BASELINE

PAGE, PICTURE = "benchmarks.md", "benchmarks-peers.svg"
_REASON_CHARACTERS = 160
_SAME_SPEED = 1.1
"""ONNX Runtime's time outside, over that in the tuning, up to which the machine was the same."""


def write_docs(results: Path, docs: Path) -> None:
    """Write the tables of results, see `write_tables`, and the picture beside the page.

    Raises:
        ResultsError: the results cannot be read, or their place in the page does not end.
    """
    document = load_results(results)
    rows = figures_of(document)
    short, whole = (
        page_tables(document, rows, results.name),
        whole_tables(document, rows, results.name),
    )
    if write_tables(results, docs / PAGE, short, whole):
        write_whole(docs / PICTURE, draw(rows))


def place_of(results: Path) -> tuple[str, str]:
    """Return the markers between which a page has the table of a file of results."""
    return f"<!-- {results.stem}: begin -->", f"<!-- {results.stem}: end -->"


def write_tables(results: Path, page: Path, short: str, whole: str) -> bool:
    """Write a page of all figures beside the results, and the short table into the documentation.

    Args:
        results: JSON file.
        page: Of the documentation. It has places for the newest results only.
        short: Table for its place, see `place_of`.
        whole: Page beside the results.

    Returns:
        True if the page has a place for these results.

    Raises:
        ResultsError: the place does not end.
    """
    begin, end = place_of(results)
    is_shown = begin in page.read_text()
    if is_shown:
        write_between(page, begin, end, short)
    write_whole(results.with_suffix(".md"), whole)
    return is_shown


def put_between(page: Path, begin: str, end: str, text: str) -> str:
    """Return a page with other text between two markers.

    Raises:
        ResultsError: the page has no such markers.
    """
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ResultsError(f"{page}: no place for the tables (expected {begin} and {end})")
    return f"{before}{begin}\n{text}{end}{after}"


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Write other text between two markers of a page; see `put_between`."""
    write_whole(page, put_between(page, begin, end, text))


def page_tables(document: Mapping[str, Any], rows: Sequence[NetworkFigures], file: str) -> str:
    """Return the section of the documentation as Markdown: float32, intervals of the engine."""
    parts = [facts_lines(document, rows, file)]
    if rows:
        most = max(row.threads for row in rows)
        alt = f"Speed-up over ONNX Runtime, {_threads(most)}"
        parts.append(f"![{alt}]({PICTURE})")
    parts += _ratio_tables(rows, is_float32=True, is_short=True)
    parts += failure_list(rows)
    return "\n\n".join(parts) + "\n"


def whole_tables(document: Mapping[str, Any], rows: Sequence[NetworkFigures], file: str) -> str:
    """Return the page beside the results: every precision and interval, errors, printed gains."""
    parts = ["# Networks against other runtimes"]
    parts.append(f"Written from `{file}` by `python benchmarks/peers.py --write-docs`.")
    parts.append(facts_lines(document, rows, file))
    parts += _ratio_tables(rows, is_float32=True)
    parts += _ratio_tables(rows, is_float32=False)
    parts += failure_list(rows)
    most_rows = [row for row in rows if row.threads == max(r.threads for r in rows)]
    parts.append("#### Errors against float64")
    parts.append("\n".join(_errors(most_rows)))
    printed = list(_printed(rows))
    if printed:
        parts.append("#### What `aoe` printed")
        meet = [_meets(figure) for _, figure in _with_printed(rows)]
        parts.append(
            f"The printed interval and the one measured from outside overlap in {sum(meet)} of "
            f"{len(meet)} rows."
        )
        head = "| network | threads | printed | measured here | kernels | tuning s |"
        parts.append("\n".join([head, "|---|---|---|---|---|---|", *printed]))
        parts.append("\n".join(_printed_apart(rows)))
    return "\n\n".join(parts) + "\n"


def failure_list(rows: Sequence[NetworkFigures]) -> list[str]:
    """Return a heading with each reason for a missing figure, nothing where there is none."""
    failures = list(_failures(rows))
    return ["#### No figure\n\n" + "\n".join(failures)] if failures else []


def _ratio_tables(
    rows: Sequence[NetworkFigures], *, is_float32: bool, is_short: bool = False
) -> list[str]:
    """Return a heading and a table for each number of threads."""
    parts = []
    for threads, found in groupby(rows, lambda row: row.threads):
        group = list(found)
        names = peer_names(group, is_float32=is_float32)
        if names:
            kind = "float32" if is_float32 else "other precisions"
            parts.append(f"#### {_threads(threads).capitalize()}, {kind}")
            lines = _ratios(group, names, is_float32=is_float32, is_short=is_short)
            parts.append("\n".join(lines))
    return parts


def facts_lines(document: Mapping[str, Any], rows: Sequence[NetworkFigures], file: str) -> str:
    """Return where, when and how the figures were taken, in lines of text."""
    here = document["environment"]
    records = document["records"]
    dates = sorted({record["date"] for record in records if "date" in record})
    versions = ", ".join(f"{name} {v}" for name, v in here["versions"].items() if v)
    settings = {json.dumps(record["settings"]) for record in records if record["settings"]}
    shares = [share for row in rows for share in row.others]
    span = " to ".join(dict.fromkeys((*dates[:1], *dates[-1:])))
    lines = [
        f"`benchmarks/results/{file}`, {span}, on {here['cores']} cores of {here['cpu']}",
        f"({here['model']}: {', '.join(here['features'])}), {here['memory_gb']} GB, Linux",
        f"{here['kernel']}, Python {here['python']}, {versions}.",
    ]
    for text in sorted(settings):
        chosen = json.loads(text)
        lines.append(
            f"{chosen['rounds']} rounds with turns of {chosen['turn_s']:g} s, "
            f"tuning {chosen['budget_s']:g} s."
        )
    computed = sorted(
        {
            f"{figure.title} computed in {figure.facts['computes_in']}"
            for row in rows
            for figure in row.peers.values()
            if "computes_in" in figure.facts
        }
    )
    if computed:
        lines.append(f"{', '.join(computed)}.")
    if shares:
        lines.append(
            f"Other processes had {median(shares):.1%} of the machine in the median turn, "
            f"{max(shares):.0%} in the worst."
        )
    return "\n".join(lines)


def _ratios(
    rows: Sequence[NetworkFigures], names: Mapping[str, str], *, is_float32: bool, is_short: bool
) -> Iterator[str]:
    """Yield a table of ratios to ONNX Runtime; the geometric means come last.

    Args:
        rows: Of one number of threads.
        names: Titles of the runtimes by name, the baseline apart.
        is_float32: With the share of the roof.
        is_short: Without the work of a call, the roof, and intervals of others than the engine.
    """
    roof = ["roof: ORT, engine"] if is_float32 and not is_short else []
    work = [] if is_short else ["GMAC"]
    heads = ["network", *work, "ORT ms", *names.values(), *roof]
    yield table_row(heads)
    yield table_row(["---"] * len(heads))
    for row in rows:
        if row.failure:
            continue
        baseline = row.peers.get(BASELINE)
        call = f"{baseline.call_ms:.2f}" if baseline and baseline.call_ms else "failed"
        cells = [row.title, *([f"{row.multiply_adds / 1e9:.2f}"] if work else []), call]
        for name in names:
            has_interval = not is_short or name == "engine"
            cells.append(ratio_cell(row.peers.get(name), has_interval=has_interval))
        cells += [f"{_share(baseline)}, {_share(row.peers.get('engine'))}"] if roof else []
        yield table_row(cells)
    counts = {name: len(shared_rows(rows, [name])) for name in names}
    most = max(counts.values(), default=0)
    # runtimes that were measured on all networks, then all of them on those they share
    for chosen in dict.fromkeys((tuple(n for n in names if counts[n] == most), tuple(names))):
        shared = shared_rows(rows, chosen)
        cells = [f"**geometric mean** of {len(shared)}", *[""] * len(work), ""]
        means = (geometric_mean(shared, name) if name in chosen else None for name in names)
        cells += [f"**{mean[0]:.2f}**" if mean else "" for mean in means]
        yield table_row([*cells, *([""] if roof else [])])


def _errors(rows: Sequence[NetworkFigures]) -> Iterator[str]:
    titles = {name: figure.title for row in rows for name, figure in row.peers.items()}
    yield table_row(["network", *titles.values()])
    yield table_row(["---"] * (len(titles) + 1))
    for row in rows:
        if not row.failure:
            yield table_row([row.title, *(_error(row.peers.get(name)) for name in titles)])


def _printed(rows: Sequence[NetworkFigures]) -> Iterator[str]:
    """Yield what the engine said of its own gain beside what was measured from outside."""
    for row, figure in _with_printed(rows):
        said = figure.facts["printed"]
        interval = f"{said['speedup_low']:.2f} to {said['speedup_high']:.2f}"
        yield table_row(
            [
                _title(row, figure),
                str(row.threads),
                f"{said['speedup']:.2f} ({interval})",
                ratio_cell(figure),
                str(figure.facts["kernels"]),
                f"{said['seconds']:.0f}",
            ]
        )


def _with_printed(rows: Sequence[NetworkFigures]) -> list[tuple[NetworkFigures, PeerFigure]]:
    """Return the figures of the engine that have a printed gain beside them, with their rows."""
    return [
        (row, figure)
        for row in rows
        for figure in row.peers.values()
        if figure.ratio and figure.facts.get("printed")
    ]


def _meets(figure: PeerFigure) -> bool:
    """True if the printed interval meets the one measured here."""
    said, ratio = figure.facts["printed"], figure.ratio
    assert ratio is not None
    return bool(said["speedup_low"] <= ratio.high and ratio.low <= said["speedup_high"])


def _printed_apart(rows: Sequence[NetworkFigures]) -> Iterator[str]:
    """Yield how printed and measured gains agree by the speed ONNX Runtime had in both."""
    known = [
        (row, figure)
        for row, figure in _with_printed(rows)
        if "baseline_ms" in figure.facts["printed"] and row.peers[BASELINE].call_ms
    ]
    same = [figure for row, figure in known if _is_same_speed(row, figure)]
    others = [figure for row, figure in known if not _is_same_speed(row, figure)]
    yield (
        f"Where ONNX Runtime was as fast in the tuning as here, within {_SAME_SPEED - 1:.0%}, they "
        f"overlap in {sum(map(_meets, same))} of {len(same)} rows, elsewhere in "
        f"{sum(map(_meets, others))} of {len(others)}: there the machine had another speed. "
        "Rows that do not overlap, in milliseconds:\n"
    )
    yield table_row(
        ["network", "printed", "measured here", "ORT: in the tuning, here", "tuned model"]
    )
    yield table_row(["---"] * 5)
    for row, figure in known:
        said = figure.facts["printed"]
        if not _meets(figure):
            yield table_row(
                [
                    _title(row, figure),
                    f"{said['speedup']:.2f}",
                    ratio_cell(figure),
                    f"{said['baseline_ms']:.2f}, {row.peers[BASELINE].call_ms:.2f}",
                    f"{said['tuned_ms']:.2f}, {figure.call_ms:.2f}",
                ]
            )


def _is_same_speed(row: NetworkFigures, figure: PeerFigure) -> bool:
    ratio = row.peers[BASELINE].call_ms / figure.facts["printed"]["baseline_ms"]
    return bool(1 / _SAME_SPEED <= ratio <= _SAME_SPEED)


def _title(row: NetworkFigures, figure: PeerFigure) -> str:
    return row.title + ("" if figure.title == "engine" else f" ({figure.title})")


def _failures(rows: Sequence[NetworkFigures]) -> Iterator[str]:
    """Yield each reason once, with all networks it holds for."""
    places: dict[str, list[str]] = {}
    for row in rows:
        reasons = [("", row.failure), *((f.title, f.failure) for f in row.peers.values())]
        for title, failure in reasons:
            if failure:
                said = " ".join(failure.split())[:_REASON_CHARACTERS].replace("`", "'")
                where = f"{row.title} ({row.threads})"
                places.setdefault(f"{title or 'network'}: `{said}`", []).append(where)
    for reason, where in places.items():
        yield f"- {reason}: {'; '.join(where)}"


def ratio_cell(figure: PeerFigure | None, *, has_interval: bool = True) -> str:
    """Return a ratio as tables have it, by default with its interval."""
    if figure is None:
        return ""
    if figure.ratio is None:
        return "-"
    ratio = figure.ratio
    interval = f" ({ratio.low:.2f} to {ratio.high:.2f})" if has_interval else ""
    return f"{ratio.median:.2f}{interval}"


def _share(figure: PeerFigure | None) -> str:
    return "-" if figure is None or figure.roof_share is None else f"{figure.roof_share:.0%}"


def _error(figure: PeerFigure | None) -> str:
    return "-" if figure is None or figure.error is None else f"{figure.error:.1e}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def table_row(cells: Sequence[str]) -> str:
    """Return cells as a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
