"""A second model of a family: tuned into an empty bank, and into the one the first model has left.

    python benchmarks/second_model.py --smoke                # does it work: a trial each
    python benchmarks/second_model.py                        # on a quiet machine, 15 minutes
    python benchmarks/second_model.py resnet18:resnet50      # FIRST:SECOND, 4 minutes

Networks are those of the suite (`benchmarks/networks`), no time limit. Each run is a process with a
home and a cache of kernels of its own, so that only the bank tells it anything; the one that comes
with the engine is left out. Told are seconds and measured candidates of each run, what the bank
answered, the gain that was printed, and the seconds of each phase. Needs torch, as
`benchmarks/peers.py` does.
"""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import PreparedNetwork
from comparison.steps import Steps, run_aoe, tuned_figures, where_measured
from comparison.tables import table_row
from networks.registry import NETWORKS

from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK

PAIRS = ("resnet18:resnet50", "mobilenet_v2:mobilenet_v3_large", "gpt2:gpt2_cached")
_RUNS = {
    # the run: which model of the pair, whose bank it tunes into
    "first": (0, "shared"),
    "second, alone": (1, "its own"),
    "second, behind": (1, "shared"),
}


def measure(pair: str, steps: Steps, given: Namespace) -> None:
    """Tune the first model, and the second one twice.

    Raises:
        SystemExit: not two networks of the suite.
    """
    names = pair.split(":")
    if len(names) != 2 or not set(names) <= NETWORKS.keys():
        sys.exit(f"no two networks of the suite (got {pair}, expected FIRST:SECOND)")
    models = [PreparedNetwork.make(name, given.work / "networks" / name).model for name in names]
    limit = [f"--tuning_time_limit={given.limit:g}"] if given.limit else []
    options = [f"--trials={given.trials}", *limit]
    work = given.work / pair.replace(":", "_")
    if f"{pair} first" not in steps.document["steps"]:
        shutil.rmtree(work, ignore_errors=True)
    for title, (at, bank) in _RUNS.items():
        folder = work / title.replace(", ", "_")
        steps.once(f"{pair} {title}", lambda f=folder, m=models[at], b=bank: tune(m, f, b, options))


def tune(model: Path, folder: Path, bank: str, options: list[str]) -> dict[str, Any]:
    """Tune a model into a bank that other runs beside it may have filled."""
    (folder.parent / bank).mkdir(parents=True, exist_ok=True)
    variables = {"TUNE_BANK_PATH": str(folder.parent / bank), BUILT_IN_BANK: "off"}
    words = ["--model", str(model), f"--output={folder}", "--quiet", *options]
    done = run_aoe(folder.with_name(f"{folder.name}.home"), words, **variables)
    return {"seconds": round(done.seconds, 1), **tuned_figures(folder)}


def table(document: Mapping[str, Any]) -> str:
    """Return a row for each run as Markdown."""
    steps = document["steps"]
    lines = [
        where_measured(document),
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


EXPERIMENT = Experiment(
    name="second_model",
    about=__doc__,
    measure=measure,
    cases=None,
    usual=PAIRS,
    options={
        "trials": Option(default=24, help="candidates of an operator"),
        "limit": Option(default=0.0, help="--tuning_time_limit; 0: none"),
    },
    settings=lambda given: {"trials": given.trials, "limit_s": given.limit},
    short=lambda document, _: table(document),
    smoke=(("lstm_tagger:conformer_block",), {"trials": 1, "limit": 30.0}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
