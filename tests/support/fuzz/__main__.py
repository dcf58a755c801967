"""`PYTHONPATH=.:tests python -m support.fuzz --inputs 100000 --state FILE`: runs, goes on later."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

from support.fuzz.run import SAVED_EVERY, run_command, try_number

if __name__ == "__main__":
    raise SystemExit(
        run_command(
            argparse.ArgumentParser(prog="python -m support.fuzz", description=__doc__),
            of="inputs",
            default=1000,
            noted_every=SAVED_EVERY,
            session=lambda _: nullcontext(SimpleNamespace(attempt=try_number, seen=Counter())),
        )
    )
