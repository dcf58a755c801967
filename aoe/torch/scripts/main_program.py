"""A training script as the main program of this process."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aoe.errors import AoeError, RunError
from aoebank import say


def run_script(script: Path, arguments: Sequence[str]) -> int:
    """Run the script as the main program and return its exit code."""
    with _as_main(script, arguments):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as exit_:
            if exit_.code is None or isinstance(exit_.code, int):
                return exit_.code or 0
            say(str(exit_.code))
            return 1
        except AoeError:
            raise
        except Exception as error:
            traceback.print_exc()
            failure = RunError(str(script), f"failed: {type(error).__name__}: {error}")
            failure.exit_code = 1  # what Python ends with
            raise failure from error
    return 0


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    saved_arguments, saved_path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = saved_arguments, saved_path
