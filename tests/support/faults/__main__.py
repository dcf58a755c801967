"""`PYTHONPATH=.:tests python -m support.faults [--tier slow] [--only NAME]`: plants faults."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from support.faults.run import TIERS, copy_repository, try_fault
from support.faults.table import ROOT, load_faults


def main() -> int:
    """Try faults; 1 if one is not caught."""
    parser = argparse.ArgumentParser(prog="python -m support.faults", description=__doc__)
    parser.add_argument("--tier", choices=TIERS, default="everyday", help="tests to run")
    parser.add_argument("--only", action="append", help="name of a fault, or of an area")
    options = parser.parse_args()
    faults = [
        fault
        for fault in load_faults()
        if options.only is None or {fault.name, fault.area} & {*options.only}
    ]
    if not faults:
        parser.error("no such fault")
    caught = 0
    with tempfile.TemporaryDirectory(prefix="aoe_faults_") as folder:
        tree = Path(folder, "repository")
        copy_repository(ROOT, tree)
        for fault in faults:
            trial = try_fault(fault, tree, options.tier)
            caught += bool(trial.caught_by)
            print(trial, flush=True)
    print(f"{caught} of {len(faults)} faults caught")
    return int(caught < len(faults))


if __name__ == "__main__":
    raise SystemExit(main())
