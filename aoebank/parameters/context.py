"""Invocation context of a call: the bank of the environment, the day, the author.

The verbs in `ops` are told all of this; a function of the public API fills it in once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from aoebank.errors import BankNotFoundError, UsageError
from aoebank.storage.readers.environment import current_environment, resolve_bank

if TYPE_CHECKING:
    from aoebank.model.snapshot import Author
    from aoebank.selection import RecordFilter
    from aoebank.storage.sides.side import Side

_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<percent>%?)\s*", re.ASCII)


def parse_ratio(text: str, *, option: str) -> float:
    """Return the ratio a person wrote, as a percentage or as a number below 1.

    Raises:
        UsageError: it is neither.

    >>> parse_ratio("3%", option="--noise"), parse_ratio("0.03", option="--noise")
    (0.03, 0.03)
    """
    match = _NUMBER.fullmatch(text)
    number = float(match["number"]) if match else math.inf
    is_percent = bool(match and match["percent"])
    if not math.isfinite(number) or (number >= 1 and not is_percent):
        raise UsageError(
            "is no ratio", where=option, got=text, expected="a percentage as 3%, or 0.03"
        )
    return number / 100 if is_percent else number


AnyPath: TypeAlias = str | Path
Paths: TypeAlias = AnyPath | Iterable[AnyPath]
Names: TypeAlias = str | Iterable[str]


def default_root() -> Path:
    """Return the root of the bank the environment names; what writes there says what it needs."""
    return resolve_bank(env=current_environment(), cwd=Path.cwd(), writes=False).root


def demand_bank(path: Path) -> Path:
    """Return the path of a bank that is there.

    Raises:
        BankNotFoundError: it is not.
    """
    if not path.exists():
        hint = "aoebank resolve --explain shows where banks are"
        raise BankNotFoundError("no such bank", path=path, hint=hint)
    return path


def bank_in_use(root: AnyPath | None) -> Path:
    """Return the root a call is about.

    Without one it is the nearest folder at or above the current directory that has snapshots or a
    quarantine, else the current directory where commits have banks in it, else the bank the
    environment names. So what is read without a root is what is written without one.
    """
    from aoebank.storage.history.database import find_history
    from aoebank.storage.quarantine import find_quarantine_root
    from aoebank.storage.sides.git import is_tracked

    if root is not None:
        return Path(root)
    here = Path.cwd()
    marked = [place for place in (find_history(here), find_quarantine_root(here)) if place]
    if marked:
        return max(marked, key=lambda place: len(place.parts))
    return Path() if is_tracked(Path()) else default_root()


def open_banks(given: Iterable[AnyPath]) -> list[Side]:
    """Return the sides a person wrote; without any the bank in use, of a list all members."""
    from aoebank.storage.readers.environment import surroundings
    from aoebank.storage.readers.places import TUNE_BANK_PATH

    banks: list[AnyPath | None] = [*given]
    env, cwd = current_environment(), Path.cwd()
    if not banks and surroundings(env=env, cwd=cwd).members(TUNE_BANK_PATH):
        found = resolve_bank(env=env, cwd=cwd, writes=False)
        banks += found.roots if bank_in_use(None) == found.root else ()
    return [open_bank(bank) for bank in banks or (None,)]


def names(texts: Names) -> tuple[str, ...]:
    """Return names or patterns as a tuple; a single text is one of them, not its letters.

    >>> names("Ascend*"), names(["a", "b"])
    (('Ascend*',), ('a', 'b'))
    """
    return (texts,) if isinstance(texts, str) else tuple(texts)


def paths_of(given: Paths) -> list[Path]:
    """Return paths as a list; a single one is one of them.

    Raises:
        UsageError: one is an empty text, which would stand for the working directory.

    >>> paths_of("bank"), paths_of(["a", "b"])
    ([PosixPath('bank')], [PosixPath('a'), PosixPath('b')])
    """
    every = [given] if isinstance(given, str | Path) else [*given]
    if "" in every:
        raise UsageError("an empty path", hint="name a path, or leave it out")
    return [Path(path) for path in every]


def open_bank(given: AnyPath | None, *, beside: AnyPath = "") -> Side:
    """Return the side a person wrote; messages name paths as they were given.

    Args:
        given: A path, `git:REV` or `snapshot:REF`; None for the bank of `bank_in_use`.
        beside: How the other side of a comparison was written.

    Raises:
        BankNotFoundError: there is no such path.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank.storage.sides.open import open_side

    if given is None:
        given = demand_bank(bank_in_use(None))
    root = partial(bank_in_use, None)
    return open_side(str(given), beside=str(beside), cwd=Path(), default_root=root)


def make_filter(soc: Names, op: Names, key: Names = ()) -> RecordFilter:
    """Return the filter that patterns on soc_version, op_type and key make."""
    from aoebank.selection import RecordFilter

    return RecordFilter(soc=names(soc), op=names(op), key=names(key))


def make_ratio(value: float | str, option: str) -> float:
    """Return a ratio given as a number, 0.03, or as a person writes it, `3%`.

    Raises:
        UsageError: the text is neither.
    """

    return parse_ratio(value, option=option) if isinstance(value, str) else float(value)


def current_day() -> date:
    """Return the day by which entries of a quarantine expire, in UTC."""
    return datetime.now(UTC).date()


def current_author(root: Path) -> Author:
    """Return the author of this call: user, time, machine."""
    from aoebank.formats.text.json_text import storable
    from aoebank.model.snapshot import Author
    from aoebank.storage.git.program import current_identity, current_machine

    identity = current_identity(root if root.is_dir() else Path.cwd())
    return Author(who=storable(identity), now=datetime.now(UTC), machine=current_machine())
