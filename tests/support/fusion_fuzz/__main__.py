"""`PYTHONPATH=.:tests python -m support.fusion_fuzz --strategies 3000 --state FILE`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from support.fusion_fuzz.run import STRATEGIES, fuzzing
from support.fuzz.run import fuzz, load_state


def main() -> int:
    """Try strategies; 1 if there is a find."""
    parser = argparse.ArgumentParser(prog="python -m support.fusion_fuzz", description=__doc__)
    parser.add_argument("--strategies", type=int, default=160, help="how many, those done counted")
    parser.add_argument("--first", type=int, default=0, help="number of the first strategy")
    parser.add_argument("--state", type=Path, help="file to go on from; finds are noted in it")
    parser.add_argument("--objects", type=Path, help="folder to keep compiled kernels in")
    options = parser.parse_args()
    state = load_state(options.state, first=options.first)
    start, done = time.perf_counter(), state.done
    with (
        ScratchFolder("scope_fuzz") as scratch,
        fuzzing(scratch, options.objects) as fuzzer,
    ):
        while state.done < options.strategies:
            until = min(options.strategies, state.done + STRATEGIES)
            fuzz(state, inputs=until, place=options.state, tell=_tell, attempt=fuzzer.attempt)
    seconds = time.perf_counter() - start
    tried = state.done - done
    _tell(", ".join(f"{count} {what}" for what, count in sorted(fuzzer.seen.items())))
    _tell(f"{tried} strategies in {seconds:.0f} s, {state.done} in all, {len(state.finds)} finds")
    return int(bool(state.finds))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
