"""Where a write really goes: through links inside of a tree, never out of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from aoebank.errors import BankPathError, shell_word


def real_place(path: Path, root: Path | None = None) -> Path:
    """Return the file a write to `path` changes: a link stays one, what it points to is replaced.

    Args:
        root: The tree the write is about; None if a person named this very file. Banks come from
            others, links in them too, so none may lead a write out of the tree. The root itself
            may be a link.

    Raises:
        BankPathError: a link leads out of the tree.
    """
    real = Path(os.path.realpath(path))
    if root is not None and not real.is_relative_to(os.path.realpath(root)):
        raise BankPathError(
            "a link leads out of the tree, and nothing is written through it",
            path=path,
            got=real,
            expected=f"a place below {root}",
            hint=f"name it directly: {shell_word(real)}, or put a copy in the place of the link",
        )
    return real


def tree_of(path: Path, asked: Iterable[Path]) -> Path | None:
    """Return the tree among the paths a person named that a file was met in; None: it was named."""
    named = tuple(asked)
    trees = [place for place in named if path.is_relative_to(place)]
    return None if path in named else max(trees, key=lambda tree: len(tree.parts), default=None)
