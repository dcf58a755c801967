"""One process of the tests: joins a gloo group over a file and runs the named cases.

python worker.py FOLDER RANK WORLD CASE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import compression
import failures
import own_buckets
import torch
import torch.distributed as dist
import tuned
import twins

PLAIN: dict[str, Callable[[], dict[str, Any]]] = {
    "same_caps": twins.same_caps,
    "recorded": tuned.recorded,
    "own_buckets": own_buckets.own_buckets,
}
WITH_FOLDER: dict[str, Callable[[Path], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (
        tuned.tune_and_reuse,
        tuned.tune_unsatisfied,
        tuned.tune_repeatedly,
        tuned.other_cluster,
        tuned.other_link,
        tuned.foreign_record,
        tuned.readable_record,
        compression.allowed,
        compression.too_inexact,
        compression.left_alone,
        failures.failing_step,
        failures.hanging_step,
        failures.dying_step,
        failures.missing_bank,
        failures.no_backward,
        failures.time_out_restored,
    )
}


def _run(case: str, folder: Path) -> dict[str, Any]:
    if case in twins.SAME:
        return twins.same_as_ddp(**twins.SAME[case])
    if case in PLAIN:
        return PLAIN[case]()
    own = folder / case
    own.mkdir(exist_ok=True)
    return WITH_FOLDER[case](own)


def main() -> None:
    """Run the cases; what one of them raises is its result."""
    folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for case in sys.argv[4:]:
        try:
            found[case] = _run(case, folder)
        except Exception as error:
            found[case] = {"error": type(error).__name__, "message": str(error)}
        (folder / f"found_{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
