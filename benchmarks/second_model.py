"""Tuning with what is known: the same model again, a changed one, a second one of its family.

    python benchmarks/second_model.py --smoke                # does it work: a trial each
    python benchmarks/second_model.py                        # on a quiet machine, half an hour
    python benchmarks/second_model.py resnet18:resnet34      # FIRST:SECOND, 8 minutes

Networks are those of the suite (`benchmarks/networks`), no time limit. The first model is tuned
into an empty bank, then twice more: once to settle what noise has left open, and once where it
finds everything. With one 3x3 convolution made 5x5 it is tuned into another bank with the first
result as `--base_result`. The second model is tuned into an empty bank and into that of the first.
Each run is a process; those on the first model share a home and a cache of kernels, as on one
machine, those on the second one have their own, so that only the bank tells them anything. The bank
that comes with the engine is left out. The first table holds the shares of the first run's time
against what they are to be, by the clock and by the CPU time of all processes, which other work on
the machine disturbs less. Needs torch, as `benchmarks/peers.py` does.
"""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import PreparedNetwork
from comparison.steps import Steps, run_aoe, tuned_figures, where_measured
from comparison.tables import table_row
from networks.registry import NETWORKS
from onnx import numpy_helper

from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK

PAIRS = ("resnet18:resnet34", "mobilenet_v2:mobilenet_v2_140", "bert6:bert4")
_BARS = {"again": 0.08, "changed": 0.25, "second, behind": 0.50}
"""Most of the first run's time that a run may take."""


def measure(pair: str, steps: Steps, given: Namespace) -> None:
    """Tune the first model, again and changed, and the second one twice.

    Raises:
        SystemExit: not two networks of the suite.
    """
    names = pair.split(":")
    if len(names) != 2 or not set(names) <= NETWORKS.keys():
        sys.exit(f"no two networks of the suite (got {pair}, expected FIRST:SECOND)")
    models = [PreparedNetwork.make(name, given.work / "networks" / name).model for name in names]
    limit = [f"--tuning_time_limit={given.limit:g}"] if given.limit else []
    threads = [f"--aicore_num={given.threads}"] if given.threads else []
    options = [f"--trials={given.trials}", *limit, *threads]
    work = given.work / pair.replace(":", "_")
    if f"{pair} first" not in steps.document["steps"]:
        shutil.rmtree(work, ignore_errors=True)
    first, home = work / "first", work / "first.home"
    again = partial(tune, models[0], work / "again", work / "shared", home, options)
    runs = {
        "first": partial(tune, models[0], first, work / "shared", home, options),
        "what noise left": again,  # is measured once more, and settled by that
        "again": again,
        "second, behind": partial(
            tune, models[1], work / "behind", work / "shared", work / "behind.home", options
        ),
    }
    if (changed := with_other_layer(onnx.load(models[0]))) is not None:
        file, with_base = work / "changed.onnx", [*options, f"--base_result={first}"]
        work.mkdir(parents=True, exist_ok=True)
        onnx.save(changed, file)
        runs["changed"] = partial(
            tune, file, work / "changed", work / "changed bank", home, with_base
        )
    runs["second, alone"] = partial(
        tune, models[1], work / "alone", work / "its own", work / "alone.home", options
    )
    for title, run in runs.items():
        steps.once(f"{pair} {title}", run)


def tune(model: Path, folder: Path, bank: Path, home: Path, options: list[str]) -> dict[str, Any]:
    """Tune a model into a bank that other runs may have filled."""
    bank.mkdir(parents=True, exist_ok=True)
    variables = {"TUNE_BANK_PATH": str(bank), BUILT_IN_BANK: "off"}
    done = run_aoe(
        home, ["--model", str(model), f"--output={folder}", "--quiet", *options], **variables
    )
    times = {"seconds": round(done.seconds, 1), "cpu_s": round(done.cpu_s, 1)}
    return {**times, **tuned_figures(folder)}


def with_other_layer(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model whose middle 3x3 convolution is 5x5, None if it has none."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    found = [
        node
        for node in model.graph.node
        if node.op_type == "Conv" and list(weights[node.input[1]].dims[2:]) == [3, 3]
    ]
    if not found:
        return None
    node = found[len(found) // 2]
    kernel = numpy_helper.to_array(weights[node.input[1]])
    wide = np.pad(kernel, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=kernel.std() / 10)
    weights[node.input[1]].CopyFrom(numpy_helper.from_array(wide, node.input[1]))
    for attribute in node.attribute:
        if attribute.name == "kernel_shape":
            attribute.ints[:] = [5, 5]
        if attribute.name == "pads":
            attribute.ints[:] = [pad + 1 for pad in attribute.ints]
    return model


def table(document: Mapping[str, Any]) -> str:
    """Return a row for each run as Markdown."""
    steps = document["steps"]
    lines = [
        where_measured(document),
        "",
        *_share_rows(steps),
        "",
        "| run | s | of the first, of the one alone | trials | in the bank | speed-up | phases s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in steps.items():
        pair = name.partition(" ")[0]
        others = (steps.get(f"{pair} {title}") for title in ("first", "second, alone"))
        shares = (f"{row['seconds'] / one['seconds']:.0%}" if one else "-" for one in others)
        phases = ", ".join(f"{what} {s:.1f}" for what, s in row["phase_seconds"].items())
        cells = [name, f"{row['seconds']:.1f}", ", ".join(shares), str(row["trials"])]
        cells += [f"{row['hits']} of {row['operators']}", f"{row['speedup']:.3f}x", phases]
        lines.append(table_row(cells))
    return "\n".join(lines) + "\n"


def _share_rows(steps: Mapping[str, Any]) -> list[str]:
    """Return the shares of each first run's time, of the clock and of the CPU, as a table."""
    bars = [f"{title}, at most {bar:.0%}" for title, bar in _BARS.items()]
    rows = [table_row(["pair", "first run, s, CPU s", *bars]), f"|{'---|' * (2 + len(bars))}"]
    for pair in dict.fromkeys(name.partition(" ")[0] for name in steps):
        first = steps[f"{pair} first"]
        cells = [pair, f"{first['seconds']:.0f}, {first['cpu_s']:.0f}"]
        for title in _BARS:
            row = steps.get(f"{pair} {title}")
            units = ("seconds", "cpu_s")
            shares = (f"{row[unit] / first[unit]:.0%}" if row else "-" for unit in units)
            cells.append(", ".join(shares))
        rows.append(table_row(cells))
    return rows


EXPERIMENT = Experiment(
    name="second_model",
    about=__doc__,
    measure=measure,
    cases=None,
    usual=PAIRS,
    options={
        "trials": Option(default=24, help="candidates of an operator"),
        "limit": Option(default=0.0, help="--tuning_time_limit; 0: none"),
        "threads": Option(default=0, help="--aicore_num; 0: all cores"),
    },
    settings=lambda given: {
        "trials": given.trials,
        "limit_s": given.limit,
        "threads": given.threads,
    },
    short=lambda document, _: table(document),
    smoke=(("lstm_tagger:conformer_block",), {"trials": 1, "limit": 30.0}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
