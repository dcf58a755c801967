"""`PYTHONPATH=.:tests python -m support.fuzz --inputs 100000 --state FILE`: runs, goes on later."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from support.fuzz.run import fuzz, load_state


def main() -> int:
    """Run inputs; 1 if there is a find."""
    parser = argparse.ArgumentParser(prog="python -m support.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="how many, those done counted")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--state", type=Path, help="file to go on from; finds are noted in it")
    options = parser.parse_args()
    state = load_state(options.state, first=options.first)
    start, done = time.perf_counter(), state.done
    fuzz(state, inputs=options.inputs, place=options.state, tell=_tell)
    seconds = time.perf_counter() - start
    tried = state.done - done
    _tell(f"{tried} inputs in {seconds:.0f} s, {state.done} in all, {len(state.finds)} finds")
    return int(bool(state.finds))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
