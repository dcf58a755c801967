"""Command lines of the Python processes of this engine, isolated from the working directory.

Python puts the working directory first into the search path of `-c` and `-m`. In a cloned bank, or
in a folder of somebody's models, a worker would run the `json.py` that lies there. So every child
process starts with `-P` and imports from where its parent imports from.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
_HOME = str(Path(__file__).resolve().parent.parent)
"""Folder this package is imported from: the working directory in a checkout."""
AOE = "sys.argv[0] = 'aoe'; from aoe.cli.app import main; main()"
"""Statements that run the command `aoe`."""


def python_command(statements: str, *arguments: str) -> list[str]:
    """Return the command line of a process of this Python that can import what this one can.

    Not `multiprocessing`: that would run the user's own script again.

    Args:
        statements: Run once the search path is set; `sys` is imported.
        arguments: `sys.argv[1:]` of the process.
    """
    path = json.dumps(search_path())
    return [sys.executable, *_flags(), "-c", f"{_BOOT}{statements}", path, *arguments]


def module_command(module: str, *arguments: str, python: str = "") -> list[str]:
    """Return the command line that runs an installed module as a program.

    Args:
        module: Its name.
        arguments: Of the program.
        python: A Python of at least 3.11; empty for this one.
    """
    flags = ["-P"] if python else _flags()
    return [python or sys.executable, *flags, "-m", module, *arguments]


def search_path() -> list[str]:
    """Return `sys.path` without the working directory that `-c`, `-m` and a prompt put there.

    The folder of a script stays, and so does what `PYTHONPATH` or the program has added.
    """
    main = sys.modules.get("__main__")
    is_module = getattr(main, "__spec__", None) is not None and not sys.flags.safe_path
    path = [entry for entry in sys.path if isinstance(entry, str) and entry]
    if is_module and path[:1] == [os.path.realpath(".")] and path[0] != _HOME:
        del path[0]
    return path


def _flags() -> list[str]:
    """Return the options of a Python that trusts no more of its surroundings than this one."""
    if sys.flags.isolated:
        return ["-I"]
    flags = sys.flags
    return ["-P", *["-E"] * flags.ignore_environment, *["-s"] * flags.no_user_site]
