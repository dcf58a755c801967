"""The files of a merge commit, where they come from, and the merge of each made again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from aoebank.formats.provenance import SUFFIX, parse_provenance
from aoebank.formats.registry import HEAD_BYTES, bank_suffixes, find_format, may_be_bank, parse_name
from aoebank.merging.decisions import FilePlan, MergeRules, Three
from aoebank.merging.file import FileMerge
from aoebank.merging.merge_bytes import is_of_lines, merge_ancestors, merge_bytes
from aoebank.merging.versions import Exclusions, MergeContext
from aoebank.model.provenance import Provenance
from aoebank.model.quarantine import Quarantine
from aoebank.model.timing import Measurements
from aoebank.storage.git.long_lived import CommitTree, ObjectReader, TreeReader
from aoebank.storage.git.merges import Commit, find_renames, merge_bases
from aoebank.storage.quarantine import FILE, FOLDER, parse_quarantine
from aoebank.storage.tree import CONFLICT_SUFFIX
from aoebank.validation.tree import soc_of_folder

# whatever is a bank, beside one, or waits for a person
_PATHSPECS = tuple(f":(top)*{suffix}" for suffix in (*bank_suffixes(), ".jsonl", CONFLICT_SUFFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePaths(Three[str | None]):
    """The paths of one file of a merge in each commit; None where there is no such file."""

    path: str  # Where the merge has it, or should


def read_trees(top: Path) -> TreeReader:
    """Return a reader of the files of commits that a merge of banks can be about."""
    return TreeReader(_PATHSPECS, objects=ObjectReader(top))


class ReMerge:
    """A merge commit of two parents, taken apart."""

    def __init__(self, commit: Commit, *, trees: TreeReader, rules: MergeRules) -> None:
        """Take a merge commit apart.

        Args:
            trees: Of `read_trees`; merges share one.
        """
        self.commit = commit
        self._top = top = trees.objects.cwd
        self._rules = rules
        self._tree = cache(lambda name: CommitTree(name, trees=trees))
        self._renames = cache(lambda old, new: find_renames(old, new, cwd=top))
        self._bases = merge_bases(commit.parents[0], commit.parents[1:], cwd=top)
        self.committed = self._tree(commit.name)
        self.ours, self.theirs = (self._tree(name) for name in commit.parents)

    def iter_paths(self) -> Iterator[MergePaths]:
        """Yield the files of banks a merge has to say something about, sorted by path."""
        for paths in sorted(self._all_paths(), key=lambda paths: paths.path):
            if not self._is_settled(paths) and self._is_of_bank(paths):
                yield paths

    def versions(self, paths: MergePaths) -> Three[bytes | None]:
        """Return the bytes that were merged."""
        return Three(
            base=self._base_data(paths.base, self._bases) if paths.base else None,
            ours=self.ours.read(paths.ours) if paths.ours else None,
            theirs=self.theirs.read(paths.theirs) if paths.theirs else None,
        )

    def merge(self, paths: MergePaths, versions: Three[bytes | None]) -> FileMerge:
        """Return the merge of a file as the driver makes it, with all decisions.

        Raises:
            BankFormatError: a version is broken, or they are not of one format.
        """
        quarantine = _quarantine_of(paths.path, self.committed)
        context = MergeContext(
            rules=self._rules,
            exclusions=Exclusions(quarantines=(quarantine,), today=self.commit.day),
            times_of_ours=Measurements(partial(_log, self.ours, paths.ours)),
            times_of_theirs=Measurements(partial(_log, self.theirs, paths.theirs)),
            verbose=True,
        )
        return merge_bytes(versions, Path(paths.path), context)

    def find_files_of_no_parent(self) -> tuple[str, ...]:
        """Return the bank files of the merge that come from nowhere, sorted."""
        known = {paths.path for paths in self._all_paths()}
        return tuple(
            path
            for path in sorted({*self.committed.blobs} - known)
            if _is_of_bank(path, self.committed)
        )

    def _all_paths(self) -> Iterator[MergePaths]:
        """Yield every file of the base and the parents once, renames followed."""
        base = self._tree(self._bases[0]) if self._bases else None
        ours, theirs = {*self.ours.blobs}, {*self.theirs.blobs}
        for path in base.blobs if base else ():
            here = self._follow(base, path, self.ours)
            there = self._follow(base, path, self.theirs)
            ours.discard(here or "")
            theirs.discard(there or "")
            yield self._paths(path, here, there)
        for path in ours | theirs:
            yield self._paths(
                None, path if path in ours else None, path if path in theirs else None
            )

    def _follow(self, base: CommitTree | None, path: str, tree: CommitTree) -> str | None:
        """Return the path a commit has a file of another commit at, or None."""
        if base is None or path in tree.blobs:
            return path
        return self._renames(base.commit, tree.commit).get(path)

    def _paths(self, base: str | None, ours: str | None, theirs: str | None) -> MergePaths:
        """Return the paths of a file; in the merge it is where git or a person put it."""
        moved = [path for path in (ours, theirs) if path not in (None, base)]
        wanted = [path for path in (*moved, base) if path is not None]
        path = next((path for path in wanted if path in self.committed.blobs), wanted[0])
        if path not in self.committed.blobs:
            for tree, old in ((self.ours, ours), (self.theirs, theirs)):
                end = self._follow(tree, old, self.committed) if old else None
                path = path if end is None else end
        return MergePaths(path=path, base=base, ours=ours, theirs=theirs)

    def _is_settled(self, paths: MergePaths) -> bool:
        """True if at most one parent changed a file, and the merge has that version."""
        ours = self.ours.blobs.get(paths.ours or "")
        theirs = self.theirs.blobs.get(paths.theirs or "")
        committed = self.committed.blobs.get(paths.path)
        if ours == theirs:
            return committed == ours
        if len(self._bases) > 1:
            return False
        base = self._tree(self._bases[0]).blobs.get(paths.base or "") if self._bases else None
        return (ours == base and committed == theirs) or (theirs == base and committed == ours)

    def _is_of_bank(self, paths: MergePaths) -> bool:
        pairs = ((self.committed, paths.path), (self.ours, paths.ours), (self.theirs, paths.theirs))
        return any(path and _is_of_bank(path, tree) for tree, path in pairs)

    def _base_data(self, path: str, bases: Sequence[str]) -> bytes | None:
        """Return a file of the base; of several bases, their merge."""
        data = self._tree(bases[0]).read(path) if bases else None
        for number, commit in enumerate(bases[1:], 1):
            other = self._tree(commit).read(path)
            if other != data:
                older = merge_bases(commit, bases[:number], cwd=self._top)
                versions = Three(base=self._base_data(path, older), ours=data, theirs=other)
                data = merge_ancestors(versions, Path(path))
        return data

    def find_misplaced(self) -> Iterator[tuple[str, str]]:
        """Yield files that git moved with others, or after a guess, to where no reader looks.

        Each with where a parent that changed it has it, and readers look.
        """
        base = self._tree(self._bases[0]) if self._bases else None
        for paths in self._all_paths():
            old = base.blobs.get(paths.base or "") if base else None
            for tree, path in ((self.ours, paths.ours), (self.theirs, paths.theirs)):
                is_moved = path not in (None, paths.path) and paths.path in self.committed.blobs
                if path is None or not is_moved or tree.blobs[path] == old:
                    continue
                if _has_readers(self._top / path) and not _has_readers(self._top / paths.path):
                    yield paths.path, path


def _has_readers(path: Path) -> bool:
    """True if a bank file of this name is looked for in this folder."""
    found, soc_version = parse_name(path), soc_of_folder(path.parent)
    spelled = found[1].soc_version if found is not None else None
    if found is None or spelled is None or soc_version is None:
        return False
    return found[0].fits_folder(spelled, soc_version)


def _quarantine_of(path: str, tree: CommitTree) -> Quarantine:
    """Return the quarantine of the bank a file of a commit is in."""
    for folder in Path(path).parents:
        place = folder / FOLDER / FILE
        data = tree.read(place.as_posix())
        if data is not None:
            return parse_quarantine(data, place)
    return Quarantine()


class OctopusMerge:
    """A merge commit of more than two parents: git merges banks in it as text, without a driver.

    Each further parent is merged into what the ones before it give; renames are not followed.
    """

    def __init__(self, commit: Commit, *, trees: TreeReader, rules: MergeRules) -> None:
        self._commit = commit
        self._rules = rules
        top = trees.objects.cwd
        self.committed = CommitTree(commit.name, trees=trees)
        self.parents = tuple(CommitTree(name, trees=trees) for name in commit.parents)
        self._bases: list[CommitTree | None] = [None]
        for number, parent in enumerate(commit.parents[1:], 1):
            names = merge_bases(parent, commit.parents[:number], cwd=top)
            self._bases.append(CommitTree(names[0], trees=trees) if names else None)

    def iter_paths(self) -> Iterator[str]:
        """Yield the files of banks that differ between the parents or from them, sorted."""
        trees = (self.committed, *self.parents)
        for path in sorted({path for tree in trees for path in tree.blobs}):
            blobs = {tree.blobs.get(path) for tree in trees}
            if len(blobs) > 1 and any(path in t.blobs and _is_of_bank(path, t) for t in trees):
                yield path

    def base(self, path: str) -> bytes | None:
        """Return a file as the first two parents started from it."""
        base = self._bases[1]
        return None if base is None else base.read(path)

    def merge(self, path: str) -> tuple[tuple[FilePlan, ...], bytes | None]:
        """Return the plans of the merges on the way, and the merged bytes of a file.

        Raises:
            BankFormatError: a version is broken, or they are not of one format.
        """
        quarantine = _quarantine_of(path, self.committed)
        data, plans = self.parents[0].read(path), []
        for number, parent in enumerate(self.parents[1:], 1):
            start, other = self._bases[number], parent.read(path)
            base = None if start is None else start.read(path)
            if other in (data, base):
                continue
            if data == base:
                data = other
                continue
            context = MergeContext(
                rules=self._rules,
                exclusions=Exclusions(quarantines=(quarantine,), today=self._commit.day),
                times_of_ours=Measurements(partial(_logs, self.parents[:number], path)),
                times_of_theirs=Measurements(partial(_log, parent, path)),
                verbose=True,
            )
            merged = merge_bytes(Three(base=base, ours=data, theirs=other), Path(path), context)
            plans.append(merged.plan)
            data = merged.data
        return tuple(plans), data


def _is_of_bank(path: str, tree: CommitTree) -> bool:
    """True if the driver is for a file: by its name, else by its first bytes."""
    place = Path(path)
    if is_of_lines(place):
        return True
    if not (may_be_bank(place) or find_format(place)) or any(
        part.startswith(".") for part in place.parts
    ):
        return False
    return (find_format(place) or find_format(place, tree.read_head(path, HEAD_BYTES))) is not None


def _logs(trees: Sequence[CommitTree], path: str) -> tuple[Provenance, ...]:
    return tuple(entry for tree in trees for entry in _log(tree, path))


def _log(tree: CommitTree, path: str | None) -> tuple[Provenance, ...]:
    side_car = f"{path}{SUFFIX}"
    data = tree.read(side_car) if path else None
    return parse_provenance(data or b"", Path(side_car)).entries
