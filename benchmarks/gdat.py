"""Gradient tuning against DDP's default and the best bucket size, over shaped links.

    python benchmarks/gdat.py --output /tmp/gdat            # about 11 minutes, needs root for links
    python benchmarks/gdat.py --output /tmp/gdat --latencies-us 500 3000 --models bert
    python benchmarks/gdat.py --output /tmp/gdat --smoke    # does it work, figures mean nothing

Processes on this machine, one thread each, every one in a network namespace of its own behind a
link of the given bandwidth. Each model is tuned; then DDP's default (1 MiB, 25 MiB), the best
`bucket_cap_mb` of the grid, the optimum of the cost model and the tuned grouping are timed in
fresh pairs. Prints a Markdown table; `results.json` in the output folder has everything.

The models are smaller than the networks they stand for, so DDP's 25 MiB are coarser for them; the
sizes of the grid hold what 25 MiB would be in scale. Only the bandwidth of links is shaped; with
`--latencies-us` the processes are joined by a group that delays every all-reduce instead, by a
latency and by what its bytes take at the given bandwidth.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from gdat_models import MODELS
from gdat_processes import machine_facts, prepare, start, table, wait
from shaped_link import shaped_link

_FULL_S = 500.0
_SMOKE_S = 60.0
_HEADING = (
    "| model | link | grouping | segments | step ms | against default | 95 % interval | "
    "tail ms | hidden |"
)


def main() -> int:
    """Run every scenario, print the table."""
    arguments = _arguments()
    output: Path = arguments.output.resolve()
    shaped = prepare(output)
    latencies = arguments.latencies_us or [0.0]
    rates = arguments.megabits if shaped or arguments.latencies_us else [0.0]
    models = ["bert"] if arguments.smoke else arguments.models
    scenarios = [(model, *link) for model in models for link in product(rates, latencies)]
    if arguments.smoke:
        scenarios = scenarios[:1]
    budget_s = (_SMOKE_S if arguments.smoke else arguments.seconds) / len(scenarios)
    results: dict[str, Any] = {"machine": machine_facts(arguments.world), "rows": []}
    for model, rate, latency_us in scenarios:
        began_s = time.monotonic()
        found = _scenario(output, model, rate, latency_us, arguments, budget_s)
        link = {"megabits": rate, "latency_us": latency_us}
        row = {"model": model, **link, "seconds": time.monotonic() - began_s, **found}
        results["rows"].append(row)
        (output / "results.json").write_text(json.dumps(results, indent=1))
        print("\n".join(_lines(row)), file=sys.stderr, flush=True)
    lines = [line for row in results["rows"] for line in _lines(row)]
    page = table(results["machine"], _HEADING, lines)
    (output / "results.md").write_text(page + "\n")
    print(page)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--models", nargs="+", default=["resnet50", "bert", "vgg16"], choices=MODELS
    )
    parser.add_argument(
        "--megabits", nargs="+", type=float, default=[2000.0, 6000.0], help="of each link, Mbit/s"
    )
    parser.add_argument(
        "--latencies-us", nargs="+", type=float, help="delay of every all-reduce, instead of links"
    )
    parser.add_argument("--world", type=int, default=2, help="processes")
    parser.add_argument("--pairs", type=int, default=5, help="of steps, per candidate")
    parser.add_argument("--seconds", type=float, default=_FULL_S, help="for everything")
    parser.add_argument("--smoke", action="store_true", help="one short scenario")
    return parser.parse_args()


def _scenario(
    output: Path,
    model: str,
    rate: float,
    latency_us: float,
    arguments: argparse.Namespace,
    budget_s: float,
) -> dict[str, Any]:
    """Tune one model over one link; half of the time goes into the final figures."""
    folder = output / f"{model}_{rate:g}_{latency_us:g}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    world, pairs = arguments.world, 2 if arguments.smoke else arguments.pairs
    words = ["--model", model, "--folder", folder, "--pairs", pairs, "--seconds", budget_s]
    words += ["--latency-us", latency_us, "--megabits", rate]
    print(f"{model}, {_link(rate, latency_us)}, {world} processes", file=sys.stderr, flush=True)
    with shaped_link(world, 0.0 if latency_us else rate) as prefixes:
        wait(start("gdat_worker.py", prefixes, *words), 20 * budget_s)
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def _lines(row: dict[str, Any]) -> list[str]:
    figures = row["figures"]
    link = _link(row["megabits"], row["latency_us"])
    head = f"| {row['model']}, {row['megabytes']:.0f} MB | {link}"
    measured = [figure["default_ms"] for figure in figures.values() if "default_ms" in figure]
    default = figures["default"]
    default_ms = f"{sum(measured) / len(measured):.0f}" if measured else "-"
    lines = [
        f"{head} | DDP default | {default['segments']} | {default_ms} | 1 | - | {_tail(default)} |"
    ]
    for name, label in (
        ("grid", "best bucket_cap_mb"),
        ("optimum", "optimum of the cost model"),
        ("chosen", f"chosen ({row['reason']})"),
    ):
        figure = figures[name]
        if "same_as" in figure:
            lines.append(f"{head} | {label} | same as {figure['same_as']} | | | | | |")
            continue
        lines.append(
            f"{head} | {label} | {figure['segments']} | {figure['step_ms']:.0f} | "
            f"{figure['speedup']:.3f}x | {figure['low']:.3f} to {figure['high']:.3f} "
            f"({figure['pairs']} pairs) | {_tail(figure)} |"
        )
    return lines


def _link(rate: float, latency_us: float) -> str:
    link = f"{rate:g} Mbit/s" if rate else "loopback"
    return f"{link} and {latency_us:g} us, injected" if latency_us else link


def _tail(figure: dict[str, Any]) -> str:
    if "measured_tail_ms" not in figure:
        return "- | -"
    return f"{figure['measured_tail_ms']:.1f} | {figure['measured_overlap_ratio']:.0%}"


if __name__ == "__main__":
    sys.exit(main())
