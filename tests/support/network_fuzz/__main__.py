"""`PYTHONPATH=.:tests python -m support.network_fuzz --networks 1000 --state FILE`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from support.fuzz.run import run_command
from support.network_fuzz.run import NetworkFuzzer, fuzzing

_NOTED_EVERY = 5  # a network takes ten seconds


@contextmanager
def _session(options: argparse.Namespace) -> Iterator[NetworkFuzzer]:
    with ScratchFolder("network_fuzz") as scratch:
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")  # of tuned models that are loaded
        with fuzzing(scratch, options.objects) as fuzzer:
            yield fuzzer


def main() -> int:
    """Try networks; 1 if there is a find."""
    parser = argparse.ArgumentParser(prog="python -m support.network_fuzz", description=__doc__)
    parser.add_argument("--objects", type=Path, help="folder to keep compiled kernels in")
    return run_command(
        parser, of="networks", default=20, noted_every=_NOTED_EVERY, session=_session
    )


if __name__ == "__main__":
    raise SystemExit(main())
