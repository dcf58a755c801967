"""Completion of values in a shell: what the bank at hand has for the word under the cursor.

Typer asks for it by running the program once more at each TAB, so little is imported and read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoebank.errors import AoebankError
from aoebank.parameters.param import Completes

if TYPE_CHECKING:
    from aoebank.storage.sides.side import Side

_LARGEST_BYTES = 4 << 20
_LONGEST_S = 0.1
"""A person waits for all of it: files beyond these limits give no candidates."""
_WORD = re.compile(r"[\w.-]+")  # a feature list is a key too, and no word of a shell
_SHORTEST_ID = 12
_PLACES = ("root", "path", "paths", "bank", "banks", "op_bank_path", "targets", "sides", "a", "b")
"""Parameters that name the bank of a call."""


def candidates(kind: Completes, given: Mapping[str, Any], start: str) -> list[str]:
    """Return the words that complete a value; none where the bank cannot be read.

    Args:
        kind: What the value is.
        given: Parameters on the command line so far.
        start: Characters of the value so far.
    """
    try:
        words = dict.fromkeys(_SOURCES[kind](given, start))
    except (AoebankError, OSError):
        return []  # an error belongs to the command, not to the line that is being typed
    return sorted(word for word in words if word.startswith(start) and word != start)


def _bank_at_hand(given: Mapping[str, Any]) -> Side:
    """Return the bank a command line names, else the one the command would use."""
    from aoebank.parameters.context import open_bank
    from aoebank.storage.sides.open import is_stored

    for name in _PLACES:
        value = given.get(name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if one is not None and (is_stored(str(one)) or Path(one).exists()):
                return open_bank(str(one))
    return open_bank(None)


def _keys(given: Mapping[str, Any], start: str) -> Iterator[str]:
    side = _bank_at_hand(given)
    end = time.monotonic() + _LONGEST_S
    for name in side.listing()[0]:
        if time.monotonic() > end:
            return
        if not _is_large(side, name) and (parsed := side.load(name)) is not None:
            yield from filter(_WORD.fullmatch, parsed.keys)


def _op_types(given: Mapping[str, Any], start: str) -> Iterator[str]:
    """Yield types from names of files, and from records where the name is silent."""
    from aoebank.selection import parts_of

    side = _bank_at_hand(given)
    end = time.monotonic() + _LONGEST_S
    for name in side.listing()[0]:
        if op_type := parts_of(name).op_type:
            yield op_type
            continue
        is_read = time.monotonic() < end and not _is_large(side, name)
        parsed = side.load(name) if is_read else None
        if parsed is not None:
            yield from filter(None, parsed.format.iter_op_types(parsed))


def _is_large(side: Side, name: str) -> bool:
    file = Path(side.label, name)
    return file.is_file() and file.stat().st_size > _LARGEST_BYTES


def _soc_versions(given: Mapping[str, Any], start: str) -> Iterator[str]:
    from aoebank.selection import parts_of

    for name in _bank_at_hand(given).listing()[0]:
        yield from parts_of(name).soc_versions


def _tags(given: Mapping[str, Any], start: str) -> Iterator[str]:
    from aoebank.storage.history.database import find_history, open_history
    from aoebank.storage.history.store import list_tags

    root = find_history(_root(given))
    if root is not None:
        with open_history(root) as database:
            yield from list_tags(database)


def _snapshots(given: Mapping[str, Any], start: str) -> Iterator[str]:
    """Yield tags, `latest`, and the starts of ids."""
    from aoebank.storage.history.database import find_history, open_history
    from aoebank.storage.history.store import list_snapshots

    root = find_history(_root(given))
    if root is None:
        return
    with open_history(root) as database:
        for snapshot in list_snapshots(database):
            yield from (snapshot.id[:_SHORTEST_ID], *snapshot.tags)
    yield "latest"


def _root(given: Mapping[str, Any]) -> Path:
    from aoebank.parameters.context import bank_in_use

    places = (given.get(name) for name in _PLACES)
    named = next((Path(one) for one in places if isinstance(one, str | Path)), None)
    return named if named is not None and named.exists() else bank_in_use(None)


def _sides(given: Mapping[str, Any], start: str) -> Iterator[str]:
    """Yield versions of a bank behind `git:` and `snapshot:`; paths are the shell's to complete."""
    kind = start.partition(":")[0]
    if kind and "snapshot".startswith(kind):
        yield from (f"snapshot:{name}" for name in _snapshots({}, ""))
    if kind and "git".startswith(kind):
        from aoebank.storage.git.program import find_work_tree, run_git

        here = Path.cwd()
        asked = ("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
        if find_work_tree(here) is not None:
            names = run_git(asked, cwd=here).decode("utf-8", "replace").split()
            yield from (f"git:{name}" for name in ("HEAD", *names))


def _targets(given: Mapping[str, Any], start: str) -> Iterator[str]:
    """Yield keys, where the word may be the start of one, and versions of a bank."""
    yield from _sides(given, start)
    if start and ":" not in start and not Path(start).exists():
        yield from _keys(given, start)


def _codes(given: Mapping[str, Any], start: str) -> Iterable[str]:
    from aoebank.model.codes import CODES

    return CODES


_SOURCES: Mapping[Completes, Callable[[Mapping[str, Any], str], Iterable[str]]] = {
    Completes.KEY: _keys,
    Completes.OP_TYPE: _op_types,
    Completes.SOC_VERSION: _soc_versions,
    Completes.TAG: _tags,
    Completes.SNAPSHOT: _snapshots,
    Completes.SIDE: _sides,
    Completes.TARGET: _targets,
    Completes.CODE: _codes,
}
