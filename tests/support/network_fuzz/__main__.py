"""`PYTHONPATH=.:tests python -m support.network_fuzz --networks 1000 --state FILE`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from support.fuzz.run import fuzz, load_state
from support.network_fuzz.run import fuzzing

_NOTED_EVERY = 5  # a network takes ten seconds


def main() -> int:
    """Tune networks; 1 if there is a find."""
    parser = argparse.ArgumentParser(prog="python -m support.network_fuzz", description=__doc__)
    parser.add_argument("--networks", type=int, default=20, help="how many, those done counted")
    parser.add_argument("--first", type=int, default=0, help="number of the first network")
    parser.add_argument("--state", type=Path, help="file to go on from; finds are noted in it")
    parser.add_argument("--objects", type=Path, help="folder to keep compiled kernels in")
    options = parser.parse_args()
    state = load_state(options.state, first=options.first)
    start, done = time.perf_counter(), state.done
    with ScratchFolder("network_fuzz") as scratch:
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")  # of tuned models that are loaded
        with fuzzing(scratch, options.objects) as fuzzer:
            while state.done < options.networks:
                until = min(options.networks, state.done + _NOTED_EVERY)
                fuzz(state, inputs=until, place=options.state, tell=_tell, attempt=fuzzer.attempt)
    seconds = time.perf_counter() - start
    _tell(", ".join(f"{count} {what}" for what, count in sorted(fuzzer.seen.items())))
    tried = state.done - done
    _tell(f"{tried} networks in {seconds:.0f} s, {state.done} in all, {len(state.finds)} finds")
    return int(bool(state.finds))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
