"""The table of experiments that one runner measures; `comparison/experiment.py` is the runner.

python benchmarks/experiments.py               # the table
python benchmarks/experiments.py NAME ...      # as python benchmarks/NAME.py ...
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from comparison.experiment import Experiment, run_experiment

NAMES = (
    *("advice", "busy_machine", "incremental", "large_model", "pytorch_entry", "quantised"),
    *("in_time", "outside", "second_model", "shape_ranges", "time_limits", "training"),
    *("training_losses", "workers_scaling"),
)
"""Files of this folder; each has an `EXPERIMENT`. One more is a file and a name here."""


def experiment(name: str) -> Experiment:
    """Return a row of the table; what an experiment needs is imported with it."""
    found: Experiment = importlib.import_module(name).EXPERIMENT
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Print the table, or run an experiment."""
    name, *others = (sys.argv[1:] if words is None else words) or [""]
    if name:
        return run_experiment(experiment(name), others)
    for known in NAMES:
        print(f"{known:16} {(experiment(known).about or '').splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
