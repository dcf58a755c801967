"""A second model of a family: tuned into an empty bank, and into the one the first model has left.

    python benchmarks/second_model.py --smoke                       # does it work: a trial each
    python benchmarks/second_model.py                               # on a quiet machine, 15 minutes
    python benchmarks/second_model.py --pairs resnet18:resnet50     # FIRST:SECOND, 4 minutes

Networks are those of the suite (`benchmarks/networks`), no time limit. Each run is a process with a
home and a cache of kernels of its own, so that only the bank tells it anything; the one that comes
with the engine is left out. Printed are seconds and measured candidates of each run, what the bank
answered, the gain that was printed, and the seconds of each phase. Needs torch, as
`benchmarks/peers.py` does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.prepared import MODEL, PreparedNetwork
from networks.registry import NETWORKS

_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parent / "build" / "second_model"
_PAIRS = ("resnet18:resnet50", "mobilenet_v2:mobilenet_v3_large", "gpt2:gpt2_cached")
_SMOKE = ("--trials=1", "--tuning_time_limit=30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A tuning run.

    Attributes:
        seconds: From start to end of the process.
        trials: Candidates that were measured.
        summary: Its `summary.json`.
    """

    seconds: float
    trials: int
    summary: dict[str, Any]

    @property
    def hits(self) -> int:
        """Operators the bank had an answer for."""
        return sum(one["outcome"] == "reserved" for one in self.summary["operators"])

    def __str__(self) -> str:
        speedup, operators = self.summary["speedup"], len(self.summary["operators"])
        phases = self.summary["phase_seconds"].items()
        return (
            f"{self.seconds:7.1f} s {self.trials:5} trials, {self.hits} of {operators} operators "
            f"in the bank, {speedup:.3f}x; "
            + ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases)
        )


def main(words: list[str] | None = None) -> int:
    """Tune each first model, and each second one twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", nargs="+", default=_PAIRS, metavar="FIRST:SECOND")
    parser.add_argument("--prepared", type=Path, help="folder of networks that are made already")
    parser.add_argument("--work", type=Path, default=_WORK)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args(words)
    for pair in arguments.pairs:
        if not set(pair.split(":")) <= NETWORKS.keys() or pair.count(":") != 1:
            parser.error(f"--pairs: no two networks of the suite (got {pair})")
    options = _SMOKE if arguments.smoke else ()
    for pair in arguments.pairs:
        first, second = (
            _model(name, arguments.prepared or arguments.work / "networks")
            for name in pair.split(":")
        )
        _measure(pair, (first, second), arguments.work / pair.replace(":", "_"), options)
    return 0


def _model(name: str, folder: Path) -> Path:
    file = folder / name / MODEL
    if not file.exists():
        PreparedNetwork.make(name, folder / name)
    return file


def _measure(pair: str, models: tuple[Path, Path], work: Path, options: tuple[str, ...]) -> None:
    shutil.rmtree(work, ignore_errors=True)
    first, second = models
    begun = tune(first, work / "first", work / "bank", options)
    alone = tune(second, work / "alone", work / "bank_of_its_own", options)
    behind = tune(second, work / "behind", work / "bank", options)
    print(f"{pair}\n  first            {begun}\n  second, alone    {alone}")
    print(f"  second, behind   {behind}")
    print(
        f"  behind/first {behind.seconds / begun.seconds:.1%}, behind/alone "
        f"{behind.seconds / alone.seconds:.1%} of the time",
        flush=True,
    )


def tune(model: Path, folder: Path, bank: Path, options: tuple[str, ...]) -> Run:
    """Tune a model with a bank, and a home that is made for this run."""
    home = folder.with_name(f"{folder.name}.home")
    for made in (home, bank):
        made.mkdir(parents=True, exist_ok=True)
    env = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TUNE_BANK_PATH": str(bank),
        "AOE_BUILT_IN_BANK": "off",
    }
    words = ("--model", str(model), f"--output={folder}", "--quiet", *options)
    began_s = time.monotonic()
    code = "from aoe.cli.app import main; main()"
    subprocess.run(
        [sys.executable, "-P", "-c", code, *words], env=env, stdout=subprocess.DEVNULL, check=False
    )
    seconds = time.monotonic() - began_s
    return read_run(folder, seconds)


def read_run(folder: Path, seconds: float) -> Run:
    """Return what a run has left in its folder."""
    tried = 0
    for file in sorted((folder / "op_tuning").glob("*.json")):
        tried += sum(len(operator["trials"]) for operator in json.loads(file.read_text()))
    summary = json.loads((folder / "summary.json").read_text())
    return Run(seconds=seconds, trials=tried, summary=summary)


if __name__ == "__main__":
    sys.exit(main())
