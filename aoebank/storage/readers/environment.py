"""Directory a reader takes for the bank; the only module that reads the environment.

Source: CANN documentation of TUNE_BANK_PATH and ASCEND_CACHE_PATH; CANN 8.1
tbe/common/repository_manager for the demand of rwx on directories named explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPermissionError
from aoebank.model.resolution import Query, Reader, ReaderAnswer, Resolution, Tier, Trouble
from aoebank.storage.readers.places import (
    AOE_BUILT_IN_BANK,
    ASCEND_CACHE_PATH,
    ASCEND_OPP_PATH,
    HOME,
    READ_ENTER,
    TUNE_BANK_PATH,
    Access,
    Surroundings,
    system_access,
)

__all__ = [
    "ASCEND_CACHE_PATH",
    "ASCEND_OPP_PATH",
    "HOME",
    "TUNE_BANK_PATH",
    "current_environment",
    "find_answer",
    "resolve_bank",
    "surroundings",
]

_OFF = frozenset({"off", "false", "0", "no"})
_PACKAGED = "bank/built_in"  # below the package of the engine


def current_environment() -> Mapping[str, str]:
    """Return the environment of this process, as it is now."""
    return dict(os.environ)


def resolve_bank(
    *, env: Mapping[str, str], cwd: Path, reader: Reader = Reader.HOST, writes: bool = True
) -> Resolution:
    """Return the root directory of the custom bank `reader` uses.

    Args:
        env: Environment to go by; an empty variable counts as unset.
        cwd: What relative paths are relative to.
        reader: Whose rules to follow.
        writes: False for what only reads, which takes a root without permission to write.

    Raises:
        BankNotFoundError: the variable that decides names no directory, or there is none.
        BankPermissionError: the directory is there, but not readable, writable and
            searchable for this user, as this reader demands.
    """
    from aoebank.storage.readers.rules import RULES
    from aoebank.storage.readers.walk import decide

    answer = decide(RULES[reader], Surroundings(env=env, cwd=cwd))
    for trouble in answer.troubles:
        if trouble.tier is Tier.CUSTOM and (writes or not _may_be_read(trouble)):
            raise trouble.error
    if answer.root is None or answer.variable is None:
        raise BankNotFoundError("no variable says where the bank is", where=str(reader))
    return Resolution(
        reader=reader,
        root=answer.root,
        tier=Tier.CUSTOM,
        variable=answer.variable,
        exists=answer.root.is_dir(),
        tried=answer.tried,
        roots=answer.roots,
        union=answer.union,
    )


def _may_be_read(trouble: Trouble) -> bool:
    """True if a root, or member of a list, is there, and only may not be written."""
    root = trouble.error.path
    is_denied = isinstance(trouble.error, BankPermissionError)
    return is_denied and root is not None and system_access(root, READ_ENTER)


def find_answer(
    reader: Reader, around: Surroundings, query: Query, *, writes: bool = False
) -> ReaderAnswer:
    """Return the bank a program would use in given surroundings, and every problem."""
    from aoebank.storage.readers.rules import RULES
    from aoebank.storage.readers.walk import search

    return search(RULES[reader], around, query, writes=writes)


def surroundings(
    *,
    env: Mapping[str, str],
    cwd: Path,
    op_bank_path: str | None = None,
    mdl_bank_path: str | None = None,
    opp_path: str | None = None,
    access: Access = system_access,
) -> Surroundings:
    """Return surroundings, with the built-in bank of the engine where it is installed.

    Args:
        opp_path: Stands in for `ASCEND_OPP_PATH`.
    """
    env = {**env, AOE_BUILT_IN_BANK: _host_built_in(env.get(AOE_BUILT_IN_BANK, ""))}
    if opp_path is not None:
        env[ASCEND_OPP_PATH] = opp_path
    return Surroundings(
        env=env, cwd=cwd, op_bank_path=op_bank_path, mdl_bank_path=mdl_bank_path, access=access
    )


def _host_built_in(named: str) -> str:
    """Return the path of the host's built-in bank, empty for none."""
    if named:
        return "" if named.lower() in _OFF else named
    from importlib.util import find_spec

    spec = find_spec("aoe")  # found, not imported
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((str(Path(folder, _PACKAGED)) for folder in folders), "")
