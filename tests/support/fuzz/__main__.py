"""`PYTHONPATH=.:tests python -m support.fuzz KIND --inputs 1000 --state FILE`: goes on later."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from support.fuzz.run import SAVED_EVERY, Fuzzer, run_command, try_number


class Kind(NamedTuple):
    """What a number stands for, how many are tried by default, after how many that is noted."""

    session: Callable[[Path | None], Any]
    default: int
    noted_every: int


@contextmanager
def _banks(_: Path | None) -> Iterator[Fuzzer]:
    yield SimpleNamespace(attempt=try_number, seen=Counter())  # type: ignore[misc]


@contextmanager
def _strategies(objects: Path | None) -> Iterator[Fuzzer]:
    from aoe.folders.scratch import ScratchFolder
    from support.fusion_fuzz.run import fuzzing

    with ScratchFolder("scope_fuzz") as scratch, fuzzing(scratch, objects) as fuzzer:
        yield fuzzer


@contextmanager
def _networks(objects: Path | None) -> Iterator[Fuzzer]:
    from aoe.folders.scratch import ScratchFolder
    from support.network_fuzz.run import fuzzing

    with ScratchFolder("network_fuzz") as scratch:
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")  # of tuned models that are loaded
        with fuzzing(scratch, objects) as fuzzer:
            yield fuzzer


KINDS: Mapping[str, Kind] = {
    "banks": Kind(_banks, 1000, SAVED_EVERY),
    "strategies": Kind(_strategies, 160, 32),  # as many as a network has, whose kernels are kept
    "networks": Kind(_networks, 20, 5),  # a network takes ten seconds
}


def main() -> int:
    """Try inputs of a kind; 1 if there is a find."""
    parser = argparse.ArgumentParser(prog="python -m support.fuzz", description=__doc__)
    parser.add_argument("kind", choices=[*KINDS])
    parser.add_argument("--inputs", type=int, help="how many, those done counted")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--state", type=Path, help="file to go on from; finds are noted in it")
    parser.add_argument("--objects", type=Path, help="folder to keep compiled kernels in")
    given = parser.parse_args()
    kind = KINDS[given.kind]
    with kind.session(given.objects) as fuzzer:
        return run_command(
            fuzzer,
            inputs=given.inputs or kind.default,
            first=given.first,
            place=given.state,
            noted_every=kind.noted_every,
        )


if __name__ == "__main__":
    raise SystemExit(main())
