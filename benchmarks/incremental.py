"""Tuning again: after a change with `--base_result`, with all hits, and `aoe compile`.

    python benchmarks/incremental.py --smoke                 # does it work: a few trials
    python benchmarks/incremental.py                         # an idle machine: about 13 minutes
    python benchmarks/incremental.py --budget 0              # without a time limit: 20 minutes
    python benchmarks/incremental.py resnet50 --budget 300   # half of it

A network of the suite (`benchmarks/networks`) is tuned. The same command again finds everything in
the bank, and so does `aoe compile`. Then the network gets another head (100 classes) and two other
blocks (a 3x3 convolution becomes 5x5 or the other way round), and is tuned four times: twice with
an empty bank, and twice with an empty bank and the first result as `--base_result`, once as on
another machine and once with the kernels in the cache that the first run has compiled. Every
command is a process; the other tunings have a home, a bank and a cache of kernels of their own, and
each has `--budget` seconds at most. The results of the changed network are measured side by side,
in turns: the one of the first full run against that of the second, which tells what two tunings
differ by, and against that of `--base_result`. Needs torch, as `benchmarks/peers.py` does.
"""

from __future__ import annotations

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from comparison.experiment import Experiment, Option, run_experiment
from comparison.preparation import export
from comparison.steps import Steps, run_aoe, tuned_figures, where_measured
from comparison.tables import table_row
from networks.registry import NETWORKS
from torch import nn

_CLASSES = 100
_AGAIN = 3
_COLUMNS = (
    *("network", "run", "seconds", "of the first"),
    *("start, profile, search, judge, write", "trials", "speed-up over ONNX Runtime", "reuse"),
)
_LONG_COLUMNS = ("start, profile, search, judge, write", "reuse")
_RUNS = {
    "first": "first",
    "changed, all anew": "full",
    "changed, all anew once more": "full again",
    "changed, --base_result": "base",
    "changed, --base_result, where the first was tuned": "base here",
}
_SHORT_RUNS = ("first", "changed, all anew", "changed, --base_result")
_OTHERS = {"full_again": "tuned anew once more", "base": "tuned with `--base_result`"}
_Row = Mapping[str, Any]


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Do what is not done yet with one network."""
    work = given.work / name
    work.mkdir(parents=True, exist_ok=True)
    first, changed = (work / f"{name}_{what}.onnx" for what in ("first", "changed"))
    if not (first.exists() and changed.exists()):
        build(name, first, changed)
    options, base = options_of(given), work / "first"
    steps.once(f"{name} first", lambda: _tuned(first, base, *options))
    for number in range(_AGAIN):
        steps.once(f"{name} hits {number}", lambda: _again(first, work, *options))
        steps.once(f"{name} compile {number}", lambda: _compiled(first, work))
    steps.once(f"{name} full", lambda: _tuned(changed, work / "full", *options))
    steps.once(f"{name} full again", lambda: _tuned(changed, work / "full_again", *options))
    with_base = (*options, f"--base_result={base}")
    steps.once(f"{name} base", lambda: _tuned(changed, work / "base", *with_base))
    cache = work / "first.home" / "cache"
    steps.once(
        f"{name} base here",
        lambda: _tuned(changed, work / "base_here", *with_base, cache=cache),
    )
    for what in _OTHERS:
        steps.once(f"{name} against {what}", partial(_side_by_side, work, changed.stem, what))


def options_of(given: Namespace) -> tuple[str, ...]:
    """Return the options of every tuning."""
    limit = (f"--tuning_time_limit={given.budget}",) if given.budget else ()
    return (f"--trials={given.trials}", *limit)


def _tuned(model: Path, folder: Path, *options: str, cache: Path | None = None) -> _Row:
    """Tune into an empty bank; return seconds, trials and figures.

    Args:
        model: What is tuned.
        folder: For the results; what lies there is removed.
        options: Of the tuning.
        cache: Compiled kernels of another run, None for none.
    """
    home = folder.with_name(f"{folder.name}.home")
    for old in (folder, home):  # a tuning that was ended knows something already
        shutil.rmtree(old, ignore_errors=True)
    if cache is not None and cache.exists():  # nothing was compiled where time was short
        shutil.copytree(cache, home / "cache")
    done = run_aoe(home, ["--model", str(model), f"--output={folder}", "--quiet", *options])
    return {"seconds": round(done.seconds, 1), **tuned_figures(folder)}


def _again(model: Path, work: Path, *options: str) -> _Row:
    """Tune with the bank of the first run: nothing is left to search."""
    words = ["--model", str(model), f"--output={work / 'again'}", "--quiet", *options]
    done = run_aoe(work / "first.home", words)
    return {"seconds": round(done.seconds, 1), **tuned_figures(work / "again")}


def _compiled(model: Path, work: Path) -> _Row:
    """Convert the model with the bank of the first run."""
    words = ["compile", "--model", str(model), "--framework=5", f"--output={work / 'compiled.om'}"]
    return {"seconds": round(run_aoe(work / "first.home", [*words, "--quiet"]).seconds, 1)}


def _side_by_side(work: Path, name: str, other: str) -> _Row:
    """Return how many times as fast the model of another run is as that of the full one."""
    files = [work / what / f"{name}_tune.om" for what in ("full", other)]
    words = ("benchmark", str(files[0]), "--vs", str(files[1]), "--json")
    found = json.loads(run_aoe(work / "full.home", words).text)
    return {key: value for key, value in found.items() if "speedup" in key or key.endswith("_ms")}


def build(name: str, first: Path, changed: Path) -> None:
    """Write a network as it is and changed."""
    network = NETWORKS[name]
    module_name, function = network.builder.split(":")
    builder = getattr(import_module(f"networks.{module_name}"), function)
    inputs = {one.name: torch.randn(one.shape).numpy() for one in network.inputs}
    for file in (first, changed):
        torch.manual_seed(0)
        module = builder().eval()
        if file is changed:
            change(module)
        written = file.with_suffix(".part")
        written.write_bytes(export(module, inputs).SerializeToString())
        written.replace(file)


def change(module: nn.Module) -> None:
    """Give a network another head and two other blocks."""
    convolutions = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.Conv2d)
        and layer.kernel_size in ((3, 3), (5, 5))
        and layer.stride == (1, 1)
    ]
    for at in (1, 2):
        layer = convolutions[at * len(convolutions) // 3]
        side = 5 if layer.kernel_size == (3, 3) else 3
        weight = torch.randn(*layer.weight.shape[:2], side, side)
        layer.kernel_size, layer.padding = (side, side), (side // 2, side // 2)
        layer.weight = nn.Parameter(weight / weight[0].numel() ** 0.5)
    name, head = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)][-1]
    parent = module.get_submodule(name.rpartition(".")[0])
    setattr(parent, name.rpartition(".")[2], nn.Linear(head.in_features, _CLASSES))


# ---- the tables ----


def tables(document: Mapping[str, Any]) -> str:
    """Return all that is known so far as Markdown."""
    steps = document["steps"]
    lines = [
        _conditions(document),
        "",
        *_tuning_table(steps, _COLUMNS),
        "",
        *_known_table(steps),
        "",
        *(line for name in _names(steps) for line in _latencies(name, steps)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def short_tables(document: Mapping[str, Any]) -> str:
    """Return what the documentation has of it: each run once, without phases and side by side."""
    steps = document["steps"]
    columns = [one for one in _COLUMNS if one not in _LONG_COLUMNS]
    lines = [_conditions(document), "", *_tuning_table(steps, columns, runs=_SHORT_RUNS), ""]
    return "\n".join([*lines, *_known_table(steps)]) + "\n"


def _conditions(document: Mapping[str, Any]) -> str:
    options = " ".join(document["options"]["options"])
    return (
        f"`python benchmarks/incremental.py`, tunings with `{options}`. {where_measured(document)}"
    )


def _names(steps: Mapping[str, _Row]) -> list[str]:
    return list(dict.fromkeys(key.split()[0] for key in steps))


def _tuning_table(
    steps: Mapping[str, _Row], columns: Sequence[str], *, runs: Collection[str] = _RUNS
) -> list[str]:
    rows = [row for name in _names(steps) for row in _tuning_rows(name, steps)]
    cells = ([row[column] for column in columns] for row in rows if row["run"] in runs)
    return [table_row(columns), f"|{'---|' * len(columns)}", *map(table_row, cells)]


def _known_table(steps: Mapping[str, _Row]) -> list[str]:
    return [
        "| network | whole command, everything known | seconds, each of three | trials |",
        "|---|---|---|---|",
        *(row for name in _names(steps) for row in _known_rows(name, steps)),
    ]


def _tuning_rows(name: str, steps: Mapping[str, _Row]) -> list[dict[str, str]]:
    """Return the rows of a network by column."""
    first = steps.get(f"{name} first")
    rows = []
    for words, key in _RUNS.items():
        row = steps.get(f"{name} {key}")
        if row is None or first is None:
            continue
        counts = row["reuse"] or {}
        cells = [
            name,
            words,
            f"{row['seconds']:.0f}",
            f"{row['seconds'] / first['seconds']:.0%}",
            ", ".join(f"{seconds:.1f}" for seconds in row["phase_seconds"].values()),
            str(row["trials"]),
            "{speedup:.3f}x ({speedup_low:.3f} to {speedup_high:.3f})".format(**row),
            ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "-",
        ]
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    return rows


def _known_rows(name: str, steps: Mapping[str, _Row]) -> list[str]:
    rows = []
    for words, key in {"`aoe` again, all hits": "hits", "`aoe compile`": "compile"}.items():
        found = [steps.get(f"{name} {key} {number}") for number in range(_AGAIN)]
        done = [row for row in found if row is not None]
        times = ", ".join(f"{row['seconds']:.1f}" for row in done)
        trials = ", ".join(str(row["trials"]) for row in done if "trials" in row)
        if done:
            rows.append(table_row([name, words, times, trials or "-"]))
    return rows


def _latencies(name: str, steps: Mapping[str, _Row]) -> list[str]:
    lines = []
    for key, words in _OTHERS.items():
        row = steps.get(f"{name} against {key}")
        if row is not None:
            figures = ", ".join(f"{member} {value}" for member, value in row.items())
            lines.append(f"- {name}, the changed network tuned anew against {words}: {figures}")
    return lines


EXPERIMENT = Experiment(
    name="incremental",
    about=__doc__,
    measure=measure,
    cases=NETWORKS,
    usual=("resnet50", "mobilenet_v3_large"),
    options={
        "budget": Option(default=120, help="seconds of each tuning; 0: no limit"),
        "trials": Option(default=24, help="candidates of an operator"),
    },
    settings=lambda given: {"options": list(options_of(given))},
    short=lambda document, _: short_tables(document),
    whole=lambda document, _: f"# Tuning again\n\n{tables(document)}",
    smoke=(("mobilenet_v3_large",), {"budget": 15, "trials": 1}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
