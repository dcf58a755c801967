"""Tuning again after a change: a full run of the changed network against `--base_result`.

    python benchmarks/incremental.py --smoke                 # does it work: a few trials each
    python benchmarks/incremental.py                         # on a quiet machine, an hour or two
    python benchmarks/incremental.py --networks resnet50 --trials 24

A network of the suite (`benchmarks/networks`) is tuned. Then it gets another head (100 classes) and
two other blocks (a 3x3 convolution becomes 5x5 or the other way round), and is tuned twice: with an
empty bank, and with an empty bank and the first result as `--base_result`. Every run is a process
with a home, a bank and a cache of kernels of its own. Printed are the seconds of the three runs,
what was reused, and the changed network's end latency of both, side by side and in turns.
Needs torch, as `benchmarks/peers.py` does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from comparison.preparation import export
from networks.registry import NETWORKS
from torch import nn

from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK

_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parent / "build" / "incremental"
_NETWORKS = ("resnet50", "mobilenet_v3_large")
_CLASSES = 100
_SMOKE = ("--trials=1", "--tuning_time_limit=30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A tuning run: seconds, and its `summary.json`."""

    seconds: float
    summary: dict[str, Any]
    folder: Path

    @property
    def om_file(self) -> Path:
        """The tuned model."""
        return self.folder / str(self.summary["om"])


def main(words: list[str] | None = None) -> int:
    """Tune, change, tune again both ways, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=_NETWORKS, choices=_NETWORKS)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--work", type=Path, default=_WORK)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args(words)
    options = _SMOKE if arguments.smoke else (f"--trials={arguments.trials}",)
    for name in arguments.networks:
        _measure(name, arguments.work / name, options)
    return 0


def _measure(name: str, work: Path, options: tuple[str, ...]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    files = build(name, work)
    first = _tuned(files[0], work / "first", *options)
    full = _tuned(files[1], work / "full", *options)
    base = _tuned(files[1], work / "base", *options, f"--base_result={first.folder}")
    counts = base.summary["reuse"]["counts"]
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{name}: {told}")
    print(f"  first run        {first.seconds:8.1f} s   {_figures(first)}")
    print(f"  changed, full    {full.seconds:8.1f} s   {_figures(full)}")
    print(f"  changed, base    {base.seconds:8.1f} s   {_figures(base)}")
    print(
        f"  base/first {base.seconds / first.seconds:.1%}, base/full "
        f"{base.seconds / full.seconds:.1%} of the time"
    )
    print(f"  full/base, latency in turns: {_side_by_side(full, base, work)}", flush=True)


def _figures(run: Run) -> str:
    summary = run.summary
    return (
        f"{summary['baseline_ms']:.3f} ms -> {summary['tuned_ms']:.3f} ms, "
        f"{summary['speedup']:.3f}x ({summary['speedup_low']:.3f} to {summary['speedup_high']:.3f})"
    )


def build(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a network as it is and changed; return the files."""
    network = NETWORKS[name]
    module_name, function = network.builder.split(":")
    builder = getattr(import_module(f"networks.{module_name}"), function)
    inputs = {one.name: torch.randn(one.shape).numpy() for one in network.inputs}
    files = []
    for what in ("first", "changed"):
        torch.manual_seed(0)
        module = builder().eval()
        if what == "changed":
            change(module)
        file = folder / f"{name}_{what}.onnx"
        file.write_bytes(export(module, inputs).SerializeToString())
        files.append(file)
    return files[0], files[1]


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


def _tuned(model: Path, folder: Path, *options: str) -> Run:
    began_s = time.monotonic()
    words = ("--model", str(model), f"--output={folder}", "--quiet", *options)
    _aoe(folder, *words)
    seconds = time.monotonic() - began_s
    summary = json.loads((folder / "summary.json").read_text())
    return Run(seconds=seconds, summary=summary, folder=folder)


def _side_by_side(full: Run, base: Run, work: Path) -> str:
    """Return how many times faster the model of the full run is than that of the other."""
    words = ("benchmark", str(full.om_file), "--vs", str(base.om_file), "--json")
    found = json.loads(_aoe(work / "benchmark", *words))
    return json.dumps({name: found[name] for name in found if "speedup" in name or "ms" in name})


def _aoe(place: Path, *words: str) -> str:
    """Run `aoe` with a home, a bank and a cache of its own; return what it wrote."""
    home = place.with_name(f"{place.name}.home")
    (home / "bank").mkdir(parents=True, exist_ok=True)
    env = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TUNE_BANK_PATH": str(home / "bank"),
        BUILT_IN_BANK: "off",
    }
    code = "from aoe.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
