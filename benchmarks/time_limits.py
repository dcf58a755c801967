"""Does `--tuning_time_limit` hold: 5 % and one trial beyond it, whatever the network and the mode?

    python benchmarks/time_limits.py espcn/model.onnx --limits 10        # does it work
    python benchmarks/time_limits.py {resnet50,espcn,vit_small}/model.onnx --write-docs

Each model is tuned with each limit into an empty bank, subgraphs and operators both, in a process
of its own. Noted are the seconds from the first to the last moment of `aoe.tune`, and the longest
time between two reports of trials: what is begun when the limit is over is finished. What is done
is kept in `--results`: the same command goes on where it was ended. On an idle machine a network
takes its limits and half a minute more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.steps import Steps, where_measured
from comparison.tables import PAGE, table_row, write_between

BEGIN, END = "<!-- time limits: begin -->", "<!-- time limits: end -->"
_HERE = Path(__file__).resolve().parent
_RESULTS = _HERE / "results" / "time_limits.json"
_LIMITS_S = (20.0, 60.0, 180.0)
_SHARE = 0.05


def tune_once(model: Path, limit_s: float, job_type: str) -> dict[str, Any]:
    """Tune a model into an empty bank; return the seconds it took and its longest trial."""
    import aoe

    told: list[tuple[str, float]] = []

    def tell(event: aoe.ProgressEvent) -> None:
        told.append((event.kind.value, time.monotonic()))

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        (Path(folder) / "bank").mkdir()
        began_s = time.monotonic()
        result = aoe.tune(
            model,
            job_type=job_type,
            bank=Path(folder) / "bank",
            output=Path(folder) / "out",
            tuning_time_limit=limit_s,
            progress=tell,
        )
        seconds = time.monotonic() - began_s
    gaps = [
        after - before
        for (_, before), (kind, after) in itertools.pairwise(told)
        if kind in ("trial", "operator")
    ]
    return {
        "seconds": round(seconds, 2),
        "reports_of_trials": sum(kind == "trial" for kind, _ in told),
        "longest_trial_s": round(max(gaps, default=0.0), 2),
        "speedup": round(result.speedup, 4),
    }


def holds(row: Mapping[str, Any], limit_s: float) -> bool:
    """Return whether a run took no more than its limit, 5 % and one trial."""
    most_s: float = limit_s * (1 + _SHARE) + row["longest_trial_s"]
    return bool(row["seconds"] <= most_s)


def table(document: Mapping[str, Any]) -> str:
    """Return what was measured as Markdown."""
    options = document["options"]
    lines = [
        f"`time_limits.py`, `--job_type={options['job_type']}`. {where_measured(document)}",
        "",
        "| network | limit s | took s | beyond it | longest trial s | reports | holds |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, row in document["steps"].items():
        name, limit_s = key.rsplit(maxsplit=1)
        limit = float(limit_s)
        cells = [name, f"{limit:g}", f"{row['seconds']:.1f}", f"{row['seconds'] / limit - 1:+.1%}"]
        cells += [f"{row['longest_trial_s']:.1f}", str(row["reports_of_trials"])]
        lines.append(table_row([*cells, "yes" if holds(row, limit) else "**no**"]))
    return "\n".join(lines) + "\n"


def main(words: list[str] | None = None) -> int:
    """Tune every model with every limit; 1 if one was exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--limits", nargs="+", type=float, default=_LIMITS_S)
    parser.add_argument("--job_type", default="sgat,opat")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.one:
        row = tune_once(given.models[0], given.limits[0], given.job_type)
        sys.stdout.write(json.dumps(row) + "\n")
        return 0
    steps = Steps(given.results, {"job_type": given.job_type})
    for model in given.models:
        name = model.parent.name if model.stem == "model" else model.stem
        for limit_s in given.limits:
            steps.once(f"{name} {limit_s:g}", lambda m=model, s=limit_s: _apart(m, s, given))
    text = table(steps.document)
    sys.stdout.write(text)
    if given.write_docs:
        page = _HERE.parent / "docs" / PAGE
        write_between(page, BEGIN, END, text)
    rows = steps.document["steps"].items()
    return int(not all(holds(row, float(key.split()[-1])) for key, row in rows))


def _apart(model: Path, limit_s: float, given: argparse.Namespace) -> dict[str, Any]:
    """Return what `tune_once` does in a process of its own."""
    words = [str(model), "--limits", str(limit_s), f"--job_type={given.job_type}", "--one"]
    done = subprocess.run(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
