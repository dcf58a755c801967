"""Git's settings and the files it looks into, asked of git itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.storage.git.program import run_git, try_git


class Scope(StrEnum):
    """Owner of settings: this clone, or this user."""

    LOCAL = "local"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPlaces:
    """The files that say how git treats paths."""

    attributes: Path  # Where lines about paths go
    exclude: Path  # Where names go that git leaves alone


def find_setting(key: str, *, cwd: Path, scope: Scope | None = None) -> str | None:
    """Return the value that counts, or None; without a scope, from wherever it is set."""
    where = [f"--{scope}"] if scope else []
    result = try_git(["config", *where, "--null", "--get", key], cwd=cwd)
    return os.fsdecode(result.stdout).removesuffix("\0") if result.returncode == 0 else None


def list_settings(section: str, *, cwd: Path) -> tuple[tuple[str, str], ...]:
    """Return the settings below a section as pairs, git's order: a later one counts more."""
    pattern = rf"^{section.replace('.', '[.]')}[.]"
    result = try_git(["config", "--null", "--get-regexp", pattern], cwd=cwd)
    pairs = (
        os.fsdecode(setting).partition("\n") for setting in result.stdout.split(b"\0") if setting
    )
    return tuple((key, value) for key, _, value in pairs)


def set_setting(key: str, value: str | None, *, cwd: Path, scope: Scope) -> None:
    """Give a setting one value; None removes it.

    Raises:
        HistoryError: git cannot write there.
    """
    change = ["--replace-all", key, value] if value is not None else ["--unset-all", key]
    run_git(["config", f"--{scope}", *change], cwd=cwd)


def find_places(scope: Scope, *, cwd: Path, env: Mapping[str, str]) -> GitPlaces:
    """Return the files that hold the lines of a scope.

    Raises:
        HistoryError: no repository here, or no home for settings of the user.
    """
    if scope is Scope.GLOBAL:
        return GitPlaces(
            attributes=_user_file("core.attributesFile", "attributes", cwd=cwd, env=env),
            exclude=_user_file("core.excludesFile", "ignore", cwd=cwd, env=env),
        )
    top = _find_top(cwd)
    info = (git_path("info/attributes", cwd=cwd), git_path("info/exclude", cwd=cwd))
    attributes = info[0] if top is None else top / ".gitattributes"
    return GitPlaces(attributes=attributes, exclude=info[1])


def git_path(name: str, *, cwd: Path) -> Path:
    """Return a path in the git directory, the shared one where work trees share it."""
    return cwd / os.fsdecode(run_git(["rev-parse", "--git-path", name], cwd=cwd)).rstrip("\n")


def find_hook(name: str, *, cwd: Path) -> Path:
    """Return the path of a hook, `core.hooksPath` included.

    Raises:
        HistoryError: no repository here.
    """
    _find_top(cwd)
    return git_path(f"hooks/{name}", cwd=cwd)


def _find_top(cwd: Path) -> Path | None:
    """Return the top of the work tree; None without one, in a bare repository."""
    result = try_git(["rev-parse", "--is-inside-work-tree", "--is-bare-repository"], cwd=cwd)
    answers = result.stdout.split()
    if result.returncode or len(answers) != 2:
        raise HistoryError(
            "not in a git repository",
            where=str(cwd),
            hint="cd into it, run `git init` first, or use --global",
        )
    if answers[0] == b"true":
        return Path(os.fsdecode(run_git(["rev-parse", "--show-toplevel"], cwd=cwd)).rstrip("\n"))
    if answers[1] == b"true":
        return None
    raise HistoryError(
        "in the git directory of a work tree", where=str(cwd), hint="cd into the work tree"
    )


def _user_file(key: str, name: str, *, cwd: Path, env: Mapping[str, str]) -> Path:
    """Return a file of the user: the one a setting names, else where git looks by itself."""
    result = try_git(["config", "--global", "--type=path", "--null", "--get", key], cwd=cwd)
    if result.returncode == 0:
        return cwd / os.fsdecode(result.stdout).removesuffix("\0")
    if env.get("XDG_CONFIG_HOME"):
        return Path(env["XDG_CONFIG_HOME"], "git", name)
    if not env.get("HOME"):
        raise HistoryError("no home directory", where="--global", expected="HOME to be set")
    return Path(env["HOME"], ".config", "git", name)
