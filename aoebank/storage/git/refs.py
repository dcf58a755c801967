"""References of git that are ours."""

from __future__ import annotations

from pathlib import Path

from aoebank.storage.git.program import run_git, try_git


def find_refs(name: str, *, cwd: Path) -> tuple[str, ...]:
    """Return the references of this name, or below it."""
    result = try_git(["for-each-ref", "--format=%(refname)", name], cwd=cwd)
    return tuple(result.stdout.decode("utf-8", errors="surrogateescape").split())


def delete_ref(name: str, *, cwd: Path) -> None:
    """Delete a reference.

    Raises:
        HistoryError: git cannot.
    """
    run_git(["update-ref", "-d", name], cwd=cwd)
