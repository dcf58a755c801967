"""Bank files nobody can read: set aside by name, and the run goes on without their records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from aoebank import AoebankError, Bank, BankPermissionError, Tier, old_soc_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A bank file that was cut short, emptied or edited."""

    file: Path  # Its name
    problem: str  # What is wrong with it
    # The name it has now; None where nothing is written, and it is only passed over.
    aside: Path | None = None

    def __str__(self) -> str:
        fate = "passed over" if self.aside is None else f"set aside as {self.aside.name}"
        return f"{self.file}: {self.problem}; {fate}, none of its records is used"


def without_damaged(bank: Bank, soc_version: str, *, may_write: bool) -> tuple[DamagedFile, ...]:
    """Set the damaged files of a target aside, or pass over them; return which they are.

    What another writer has mended meanwhile is left as it is.

    Args:
        bank: Whose files are looked at.
        soc_version: The target; files under its old names are read, too.
        may_write: False to leave every file its name.
    """
    may_write = may_write and bank.tier is not Tier.BUILT_IN
    found = []
    for file in _files_of(bank, {soc_version, *old_soc_versions(soc_version)}):
        problem = bank.damage(file)
        if problem:
            aside = _set_aside(bank, file) if may_write else None
            if aside is None and bank.damage(file):
                bank.pass_over(file)
            elif aside is None:
                continue
            found.append(DamagedFile(file=file, problem=problem, aside=aside))
    return tuple(found)


def _set_aside(bank: Bank, file: Path) -> Path | None:
    try:
        return bank.set_aside(file)
    except AoebankError:  # a file that cannot be renamed is passed over
        return None


def _files_of(bank: Bank, names: Collection[str]) -> Iterator[Path]:
    """Yield the files in a folder of one of the names, or that begin with one themselves."""
    try:
        for file in bank.iter_files():
            folders = file.relative_to(bank.root).parts[:-1]
            is_gradients = any(file.name.startswith(f"{name}_gradient") for name in names)
            if is_gradients or not set(names).isdisjoint(folders):
                yield file
    except BankPermissionError:  # said by whoever needs the file
        return
