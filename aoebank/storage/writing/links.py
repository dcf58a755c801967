"""Links between files of a tree, and what they show once some of the files are written.

To every command a link in a tree is a bank file of its own with the content of what it leads to.
So a write to a link puts a file in its place, and a write to what it leads to must not show in a
link nobody meant. Where both get the same content, the link stays one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

Links = Mapping[Path, Path]
"""Where links to files lead in one step, both without links in their folders."""


def find_links(root: Path) -> dict[Path, Path]:
    """Return the links to files below a tree; hidden folders and folders behind links are not in.

    Args:
        root: The tree; it may be a link itself.
    """
    found = {*_iter_links(os.path.realpath(root))}
    return {link: _next_of(link, found) for link in found}


def _next_of(link: Path, found: Collection[Path]) -> Path:
    """Return the target of a link: a file, or one of the links that were found."""
    seen = {link}
    while link.is_symlink() and (link in found) is (len(seen) == 1):
        target = link.parent / link.readlink()
        link = Path(os.path.realpath(target.parent)) / target.name
        if link in seen:
            return link
        seen.add(link)
    return link


def count_steps(path: Path, links: Links) -> int:
    """Return the number of links from a path to a file; a loop ends where it begins again."""
    seen = {path}
    while path in links and (path := links[path]) not in seen:
        seen.add(path)
    return len(seen) - 1


def _iter_links(folder: str) -> Iterator[Path]:
    folders = [folder]
    while folders:
        try:
            entries = [*os.scandir(folders.pop())]
        except OSError:  # nothing in there can be written either
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_symlink() and not os.path.isdir(entry.path):  # noqa: PTH112
                yield Path(entry.path)


def note_replaced(link: Path, target: Path) -> None:
    """Note that a file took the place of a link."""
    note(f"{link}: was a link to {target}, and is a file of its own now")


def note(text: str) -> None:
    """Log what a person should know: on standard error, unless a program says otherwise.

    Names come from others, so none of them may steer a terminal.
    """
    from logging import getLogger  # most calls have nothing to tell

    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in f"note: {text}")
    getLogger("aoebank").warning("%s", shown)
