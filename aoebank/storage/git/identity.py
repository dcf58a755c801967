"""Who changes a bank and on what machine, for its history."""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Mapping
from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.storage.git.program import try_git
from aoebank.storage.machine import cpu_model


def current_identity(folder: Path) -> str:
    """Return the name and address git would write here, else login and host."""
    try:
        answers = [
            try_git(["config", "--get", name], cwd=folder) for name in ("user.name", "user.email")
        ]
    except HistoryError:  # no git on this machine
        return _login()
    name, address = (os.fsdecode(answer.stdout).strip() for answer in answers)
    if not name and not address:
        return _login()
    return f"{name} <{address}>".strip() if address else name


def current_machine() -> Mapping[str, str]:
    """Return the facts that tell this machine and program from others when times are compared."""
    from aoebank import __version__

    return {
        "aoebank": __version__,
        "python": platform.python_version(),
        "host": platform.node(),
        "machine": platform.machine(),
        "cpu_model": cpu_model(),
    }


def _login() -> str:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container with a made-up user
        name = f"uid {os.getuid()}"
    return f"{name}@{platform.node()}"
