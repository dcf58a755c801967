"""Walk the places of a reader as it would, and keep what happened at each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPathError, BankPermissionError, shell_word
from aoebank.model.resolution import (
    Attempt,
    Failure,
    FoundFile,
    Query,
    ReaderAnswer,
    ReaderOutcome,
    Tier,
    Trouble,
    UnionRule,
)
from aoebank.storage.readers.folders import (
    built_in_roots,
    file_name,
    fill,
    find_files,
    kind_of,
    problem_of,
    size_of,
)
from aoebank.storage.readers.places import HOME, READ_ENTER, Demand, Place, Rules, Surroundings


def decide(rules: Rules, around: Surroundings) -> ReaderAnswer:
    """Return which root one program takes, without a look at the files below it."""
    walk = _start(rules, around, Query())
    return walk.answer(has_built_in=False)


def search(
    rules: Rules, around: Surroundings, query: Query, *, writes: bool = False
) -> ReaderAnswer:
    """Return the bank one program would use for a query; never raises, whatever lies there.

    Args:
        writes: Whether the question is where it writes; always, if it does nothing else.
    """
    walk = _start(rules, around, query)
    walk.writes = writes or not rules.is_reader
    built_in = list(walk.walk_built_in())
    for soc_version in _soc_versions(rules, query):
        if walk.place is not None and walk.is_usable:
            for root in walk.roots:
                walk.collect(Tier.CUSTOM, walk.place, root, soc_version)
        for place, root in built_in:
            walk.collect(Tier.BUILT_IN, place, root, soc_version)
    return walk.answer(has_built_in=bool(built_in))


def _start(rules: Rules, around: Surroundings, query: Query) -> _Walk:
    walk = _Walk(rules=rules, around=around, query=query)
    for demand in rules.demands:
        walk.check_demand(demand)
    walk.walk_custom()
    return walk


@dataclass(slots=True)
class _Walk:
    """One search under way."""

    rules: Rules
    around: Surroundings
    query: Query
    tried: list[Attempt] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    files: list[FoundFile] = field(default_factory=list)
    place: Place | None = None
    root: Path | None = None
    roots: tuple[Path, ...] = ()
    is_usable: bool = False
    writes: bool = False

    def check_demand(self, demand: Demand) -> None:
        """Note what is wrong with a variable that must be right whatever decides."""
        path = self.around.path(demand.source)
        failure = demand.unset if path is None else demand.missing
        if failure is None or (path is not None and kind_of(path) == "directory"):
            return
        error = BankNotFoundError(
            "is not set" if path is None else problem_of(path),
            variable=demand.source,
            path=path,
            hint=f"set {demand.source}",
        )
        tier = Tier.CUSTOM if demand.source == HOME else Tier.BUILT_IN
        self._note(failure, tier, error, demand.cann_code)

    def walk_custom(self) -> None:
        """Find the place that decides, and whether it can be used."""
        for place in self.rules.custom:
            path = self.around.path(place.source)
            root = path / place.folder if path is not None else None
            if self.place is not None:
                self._try(place, root, False, f"not looked at, {self.place.source} decides")
            elif self.rules.takes_list and (members := self.around.members(place.source)):
                self._decide_list(place, [member / place.folder for member in members])
            elif path is None or root is None:
                self._try(place, None, False, f"{place.source} is not set")
                if place.unset is not None:
                    self._note(place.unset, Tier.CUSTOM, _unset_error(place), place.cann_code)
            else:
                self._decide(place, path, root)

    def _decide(self, place: Place, path: Path, root: Path) -> None:
        trouble = self._trouble(place, path, root)
        if trouble is not None:
            self.troubles.append(trouble)
            if trouble.failure is Failure.NEXT:
                self._try(place, root, False, trouble.error.problem)
                return
        elif place.falls_through and not any(self._readable(place, root)):
            self._try(place, root, False, "holds no such file, so the next place is looked at")
            return
        self.place, self.root, self.is_usable = place, root, trouble is None
        self.roots = (root,)
        reason = trouble.error.problem if trouble else _state(place, root)
        self._try(place, root, True, reason, failed=trouble is not None)

    def _decide_list(self, place: Place, roots: Sequence[Path]) -> None:
        """Take the members of a list: all are looked up, the first that may be is written."""
        reading = replace(place, named_needs=READ_ENTER)
        usable, written = [], None
        for root in roots:
            trouble = self._trouble(reading, root, root)
            reason = trouble.error.problem if trouble else "looked up, not written"
            if trouble is not None:
                self.troubles.append(trouble)
            else:
                usable.append(root)
                if written is None and self._trouble(place, root, root) is None:
                    written, reason = root, "looked up, and written"
            self._try(place, root, True, reason, failed=trouble is not None)
        self.place, self.roots = place, tuple(usable)
        self.root = written or next(iter((*usable, *roots)))
        self.is_usable = len(usable) == len(roots)
        if self.is_usable and written is None:
            denied = self._trouble(place, self.root, self.root)
            self.troubles += [denied] if denied is not None else []

    def walk_built_in(self) -> Iterator[tuple[Place, Path]]:
        """Yield the built-in places the program takes."""
        found = False
        for place in self.rules.built_in:
            path = self.around.path(place.source)
            if path is None:
                self._try(place, None, False, f"{place.source} is not set", Tier.BUILT_IN)
                continue
            for root in built_in_roots(path, place.folder):
                is_there = kind_of(root) == "directory"
                taken = is_there and (self.rules.one_built_in_file or not found)
                reason = "directory exists" if is_there else problem_of(root)
                if is_there and not taken:
                    reason = "not looked at, the first directory decides"
                self._try(place, root, taken, reason, Tier.BUILT_IN)
                found = found or is_there
                if taken:
                    yield place, root

    def collect(self, tier: Tier, place: Place, root: Path, soc_version: str | None) -> None:
        """Add the files a reader would open for one soc_version in one tier."""
        query = replace(self.query, soc_version=soc_version)
        known = {(file.tier, file.path.name) for file in self.files}
        for path in find_files(self.rules, place, root, query):
            if (tier, path.name) in known and self.rules.one_built_in_file:
                continue  # the first file of a name counts, they are not merged
            if self.around.access(path, place.file_needs):
                self.files.append(FoundFile(path=path, tier=tier, soc_version=soc_version))
            elif place.file_denied is not Failure.NEXT:
                self._note(place.file_denied, tier, _file_error(path, place), "")

    def answer(self, *, has_built_in: bool) -> ReaderAnswer:
        """Return everything seen, with what it comes to."""
        failures = {trouble.failure for trouble in self.troubles}
        files = () if failures & {Failure.STOP, Failure.DROP_ALL} else tuple(self.files)
        return ReaderAnswer(
            reader=self.rules.reader,
            outcome=self._outcome(files, failures, has_built_in),
            root=self.root,
            variable=self.place.source if self.place else None,
            expected=self._expected(),
            files=files,
            tried=tuple(self.tried),
            troubles=tuple(self.troubles),
            writes=self.writes,
            roots=self.roots,
            union=self.around.union if len(self.roots) > 1 else UnionRule.FIRST,
        )

    def _outcome(
        self, files: tuple[FoundFile, ...], failures: set[Failure], has_built_in: bool
    ) -> ReaderOutcome:
        if Failure.STOP in failures:
            return ReaderOutcome.STOPS
        if Failure.DROP_ALL in failures:
            return ReaderOutcome.NOTHING
        if self.writes:
            return ReaderOutcome.CUSTOM if self.is_usable else ReaderOutcome.NOTHING
        tiers = {file.tier for file in files}
        if self.query.is_open:
            is_there = self.root is not None and kind_of(self.root) == "directory"
            tiers = {Tier.CUSTOM} if self.is_usable and is_there else set()
            tiers |= {Tier.BUILT_IN} if has_built_in else set()
        if Tier.CUSTOM in tiers:
            return ReaderOutcome.CUSTOM
        return ReaderOutcome.BUILT_IN if tiers else ReaderOutcome.NOTHING

    def _expected(self) -> tuple[Path, ...]:
        if self.place is None or self.root is None:
            return ()
        folder = self.root / fill(self.place.below[0], self.query.soc_version)
        name = "<any name>.json" if self.place.any_name else file_name(self.rules, self.query)
        return (folder / name,)

    def _trouble(self, place: Place, path: Path, root: Path) -> Trouble | None:
        if kind_of(path) != "directory":
            if place.missing is None:
                return None
            error: BankPathError = _missing_error(place, path)
            return Trouble(
                failure=place.missing, tier=Tier.CUSTOM, error=error, cann_code=place.cann_code
            )
        folders = [fill(below, self.query.soc_version) for below in place.below]
        checks = [(path, place.named_needs), (root, place.root_needs)]
        checks += [(root / folder, place.files_needs) for folder in folders]
        for folder_path, needs in checks:
            if kind_of(folder_path) == "missing" or not needs:
                continue
            if kind_of(folder_path) != "directory" or not self.around.access(folder_path, needs):
                return Trouble(
                    failure=place.denied,
                    tier=Tier.CUSTOM,
                    cann_code=place.cann_code,
                    error=_denied_error(place, folder_path, needs),
                )
        return None

    def _readable(self, place: Place, root: Path) -> Iterator[Path]:
        for path in find_files(self.rules, place, root, self.query):
            if self.around.access(path, place.file_needs) and size_of(path):
                yield path

    def _try(
        self,
        place: Place,
        root: Path | None,
        taken: bool,
        reason: str,
        tier: Tier = Tier.CUSTOM,
        *,
        failed: bool = False,
    ) -> None:
        directory = root / fill(place.below[0], self.query.soc_version) if root else None
        self.tried.append(
            Attempt(
                variable=place.source,
                tier=tier,
                path=root,
                taken=taken,
                reason=reason,
                directory=directory,
                failed=failed,
            )
        )

    def _note(self, failure: Failure, tier: Tier, error: BankPathError, code: str) -> None:
        self.troubles.append(Trouble(failure=failure, tier=tier, error=error, cann_code=code))


def _soc_versions(rules: Rules, query: Query) -> tuple[str | None, ...]:
    own = query.soc_version
    return (own, *rules.related.get(own, ())) if own is not None else (None,)


def _state(place: Place, root: Path) -> str:
    if kind_of(root) == "directory":
        return "directory exists"
    return "created when a record is written" if place.created else problem_of(root)


def _missing_error(place: Place, path: Path) -> BankPathError:
    problem = problem_of(path)
    is_plain = problem in ("does not exist", "is not a directory")
    kind = BankNotFoundError if is_plain else BankPathError
    return kind(problem, variable=place.source, path=path, hint=_hint(place, path))


def _denied_error(place: Place, path: Path, needs: int) -> BankPathError:
    if kind_of(path) != "directory":
        return _missing_error(place, path)
    expected = "read and search" if needs == READ_ENTER else "read, write and search"
    return BankPermissionError(
        "directory cannot be used",
        variable=place.source,
        path=path,
        expected=f"{expected} permission",
        hint=f"chmod u+rwx {shell_word(path)}",
    )


def _file_error(path: Path, place: Place) -> BankPathError:
    needs_write = bool(place.file_needs & os.W_OK)
    return BankPermissionError(
        "file cannot be opened",
        variable=place.source,
        path=path,
        expected="read and write permission" if needs_write else "read permission",
        hint=f"chmod {'u+rw' if needs_write else 'u+r'} {shell_word(path)}",
    )


def _unset_error(place: Place) -> BankPathError:
    return BankNotFoundError(
        "no variable says where the bank is",
        variable=place.source,
        got=f"{place.source} not set",
        hint="set TUNE_BANK_PATH to an existing directory",
    )


def _hint(place: Place, path: Path) -> str:
    if place.source == HOME:
        return "set HOME to your home directory, or TUNE_BANK_PATH to an existing one"
    if place.source.startswith("--"):
        return f"create it (mkdir -m 750 {shell_word(path)}), or leave {place.source} out"
    if os.path.exists(path):  # noqa: PTH110 - a name too long is no error here
        return f"name a directory, or unset {place.source}"
    return f"create it (mkdir -m 750 {shell_word(path)}), or unset {place.source}"
