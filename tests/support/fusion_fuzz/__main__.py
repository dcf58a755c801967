"""`PYTHONPATH=.:tests python -m support.fusion_fuzz --strategies 3000 --state FILE`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from support.fusion_fuzz.run import STRATEGIES, StrategyFuzzer, fuzzing
from support.fuzz.run import run_command


@contextmanager
def _session(options: argparse.Namespace) -> Iterator[StrategyFuzzer]:
    with ScratchFolder("scope_fuzz") as scratch, fuzzing(scratch, options.objects) as fuzzer:
        yield fuzzer


def main() -> int:
    """Try strategies; 1 if there is a find."""
    parser = argparse.ArgumentParser(prog="python -m support.fusion_fuzz", description=__doc__)
    parser.add_argument("--objects", type=Path, help="folder to keep compiled kernels in")
    return run_command(
        parser, of="strategies", default=160, noted_every=STRATEGIES, session=_session
    )


if __name__ == "__main__":
    raise SystemExit(main())
