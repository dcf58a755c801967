"""Which directory a reader takes for the bank; the only place that reads the environment.

Source: CANN documentation of TUNE_BANK_PATH and ASCEND_CACHE_PATH; CANN 8.1
tbe/common/repository_manager for the demand of rwx on directories named explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPathError, BankPermissionError
from aoebank.model.resolution import Attempt, Reader, Resolution, Tier

TUNE_BANK_PATH = "TUNE_BANK_PATH"
ASCEND_CACHE_PATH = "ASCEND_CACHE_PATH"
HOME = "HOME"
CACHE_FOLDER = "aoe_data"
DEFAULT_FOLDER = Path("Ascend/latest/data/aoe/custom/op")


def current_environment() -> Mapping[str, str]:
    """Return the environment of this process, as it is now."""
    return dict(os.environ)


def resolve_bank(
    *, env: Mapping[str, str], cwd: Path, reader: Reader = Reader.HOST
) -> Resolution:  # fmt: skip
    """Return the root directory of the bank `reader` uses.

    Args:
        env: Environment to go by; an empty variable counts as unset.
        cwd: What relative paths are relative to.
        reader: Whose rules to follow.

    Raises:
        BankNotFoundError: the variable that decides names no directory, or there is none.
        BankPermissionError: the directory is there, but not readable, writable and
            searchable for this user.
    """
    return _SEARCHES[reader](env, cwd)


def explain_attempts(env: Mapping[str, str], cwd: Path) -> tuple[Attempt, ...]:
    """Return every place the host engine considers, in order; never raises."""
    attempts: list[Attempt] = []
    decided = ""
    for variable, find_path in _HOST_PLACES:
        path = find_path(env, cwd)
        if decided:
            reason = f"not looked at, {decided} decides"
        elif path is None:
            reason = f"{variable} is not set"
        else:
            decided = variable
            reason = _state(path, variable)
        taken = path is not None and decided == variable
        attempts.append(
            Attempt(variable=variable, tier=Tier.CUSTOM, path=path, taken=taken, reason=reason)
        )
    return tuple(attempts)


def _resolve_host(env: Mapping[str, str], cwd: Path) -> Resolution:
    tried = explain_attempts(env, cwd)
    taken = next((attempt for attempt in tried if attempt.taken), None)
    if taken is None or taken.path is None:
        raise BankNotFoundError(
            "no variable says where the bank is", variable=HOME, got="HOME not set",
            hint="set TUNE_BANK_PATH to an existing directory",
        )  # fmt: skip
    _demand_directories(taken.variable, taken.path)
    return Resolution(
        reader=Reader.HOST, root=taken.path, tier=taken.tier, variable=taken.variable,
        exists=taken.path.is_dir(), tried=tried,
    )  # fmt: skip


def _demand_directories(variable: str, root: Path) -> None:
    """Raise unless what the variable names is a usable directory; only sub-folders may lack."""
    named = {TUNE_BANK_PATH: root, ASCEND_CACHE_PATH: root.parent}.get(variable)
    if named is None:
        named = root.parents[len(DEFAULT_FOLDER.parts) - 1]
    _demand_directory(variable, named, needs_write=variable != HOME)
    if root.exists():
        _demand_directory(variable, root, needs_write=True)


def _demand_directory(variable: str, path: Path, *, needs_write: bool) -> None:
    hint = f"create it (mkdir -m 750 {path}), or unset {variable}"
    if variable == HOME:
        hint = "set HOME to your home directory, or TUNE_BANK_PATH to an existing one"
    try:
        is_directory, exists = path.is_dir(), path.exists()
    except OSError as error:  # a name too long, a loop of links
        raise BankPathError(
            str(error.strerror).lower(), variable=variable, path=path, hint=hint
        ) from error  # fmt: skip
    if not is_directory:
        problem = "is not a directory" if exists else "does not exist"
        raise BankNotFoundError(problem, variable=variable, path=path, hint=hint)
    mode = os.R_OK | os.X_OK | (os.W_OK if needs_write else 0)
    if not os.access(path, mode):
        raise BankPermissionError(
            "directory cannot be used", variable=variable, path=path,
            expected="read, write and search permission", hint=f"chmod u+rwx {path}",
        )  # fmt: skip


def _state(path: Path, variable: str) -> str:
    if path.is_dir():
        return "directory exists"
    return "does not exist" if variable == TUNE_BANK_PATH else "created when a record is written"


def _variable(env: Mapping[str, str], name: str, cwd: Path) -> Path | None:
    value = env.get(name, "")
    return Path(os.path.normpath(cwd / value)) if value else None


def _tune_bank_place(env: Mapping[str, str], cwd: Path) -> Path | None:
    return _variable(env, TUNE_BANK_PATH, cwd)


def _cache_place(env: Mapping[str, str], cwd: Path) -> Path | None:
    path = _variable(env, ASCEND_CACHE_PATH, cwd)
    return path / CACHE_FOLDER if path else None


def _home_place(env: Mapping[str, str], cwd: Path) -> Path | None:
    path = _variable(env, HOME, cwd)
    return path / DEFAULT_FOLDER if path else None


_Place = Callable[[Mapping[str, str], Path], Path | None]
_HOST_PLACES: tuple[tuple[str, _Place], ...] = (
    (TUNE_BANK_PATH, _tune_bank_place),
    (ASCEND_CACHE_PATH, _cache_place),
    (HOME, _home_place),
)
_SEARCHES: dict[Reader, Callable[[Mapping[str, str], Path], Resolution]] = {
    Reader.HOST: _resolve_host,
}
