"""Merge driver: the command git calls to merge one file.

Git hands over three temporary files and reads the second one again afterwards, whatever the
driver says. So that one is replaced as a whole, at the very end, or not at all.

Source: gitattributes(5), "Defining a custom merge driver".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from aoebank.errors import AoebankError, BankFormatError, BankPathError, shell_word
from aoebank.formats.provenance import SUFFIX, parse_provenance, provenance_path
from aoebank.formats.registry import find_format
from aoebank.merging.decisions import (
    CLEAN,
    SECTION,
    Action,
    Decision,
    FilePlan,
    Reason,
    Three,
    rules_of_settings,
)
from aoebank.merging.document import (
    aside_path,
    conflict_document,
    conflict_lines,
    conflict_path,
    decision_document,
    keep_choices,
    serialize_document,
)
from aoebank.merging.file import FileMerge
from aoebank.merging.merge_bytes import merge_ancestors, merge_bytes
from aoebank.merging.versions import Exclusions, MergeContext
from aoebank.model.digest import sha256_of
from aoebank.model.provenance import Provenance
from aoebank.model.timing import Measurements
from aoebank.report.documents import asked_documents
from aoebank.report.output import Report, Text, plural
from aoebank.storage.bank import read_file
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.git.config import list_settings
from aoebank.storage.git.merges import current_point, is_in_index
from aoebank.storage.git.program import find_work_tree, iter_blobs, run_git, try_git
from aoebank.storage.quarantine import find_quarantine_root, load_quarantine
from aoebank.storage.writing.staged import FileWrite, write_files

_BINARY_CACHE_HINT = "take both files of one side: git checkout --ours, or --theirs"
_CONFLICT = 1  # git: ours stays in the work tree, all three versions in the index
_HINT = "git calls this command; to merge files by hand: aoebank merge --base BASE OURS THEIRS"


# ---- the driver ----


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """Paths git calls `%O`, `%A`, `%B` and `%P`."""

    base: Path  # Empty where both sides added the file
    ours: Path  # Also where the result goes
    theirs: Path
    path: Path  # Where the file will lie, from the top of the work tree


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCall:
    """Circumstances of a call of the driver, besides the files."""

    cwd: Path  # The top of the work tree, if there is one
    env: Mapping[str, str]
    today: date
    is_inner: bool = False  # Whether two bases of a merge are merged, for that merge only
    is_dry_run: bool = False
    verbose: bool = False  # Whether the plan is to tell all decisions, not only those for people


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOutcome:
    """Outcome of the merge of one file."""

    path: str
    plan: FilePlan  # What was decided
    # Where the conflicts are described, from the top of the work tree.
    conflict_path: Path | None = None
    kept_choices: int = 0  # How many of them a person decided in an earlier try of this merge
    set_aside: Path | None = None  # Where an older conflict file went that says more than that

    @property
    def exit_code(self) -> int:
        """Return 1 if a key is left for a person."""
        return 1 if self.plan.conflicts else 0


def run_merge_driver(files: DriverFiles, call: DriverCall) -> DriverOutcome:
    """Merge one file for git; the result takes the place of `files.ours`.

    Raises:
        AoebankError: it cannot be merged; `files.ours` is untouched then. Where a version is
            damaged the exit code is that of a conflict: with another one git stops the merge.
    """
    try:
        versions = Three(
            base=_read(files.base) or None, ours=_read(files.ours), theirs=_read(files.theirs)
        )
        return _run(files, versions, call)
    except AoebankError as error:
        name = files.path.as_posix()
        again = f"{name} has our version alone; then: git checkout -m -- {shell_word(name)}"
        error.hint = "; ".join(filter(None, (error.hint, again)))
        if isinstance(error, BankFormatError):
            error.exit_code = _CONFLICT
        raise


def _run(files: DriverFiles, versions: Three[bytes | None], call: DriverCall) -> DriverOutcome:
    path = files.path
    top = None if call.is_inner else find_work_tree(call.cwd)
    known = find_format(path) if top else None
    if known and top:
        demand_no_binary_cache(path, known, root=top, hint=_BINARY_CACHE_HINT)
    if not call.is_inner:
        merge = merge_bytes(versions, path, _context(path, versions, top, call))
    else:  # its conflicts are for the outer merge to tell
        data = merge_ancestors(versions, path)
        merge = FileMerge(plan=FilePlan(name=path.as_posix()), data=data)
    outcome = DriverOutcome(path=path.as_posix(), plan=merge.plan)
    if call.is_dry_run:
        return outcome
    changes: list[FileWrite] = []
    if top:
        outcome, changes = _describe(outcome, versions, top)
    # git wants a file, an empty one too
    result, digest = merge.data or b"", sha256_of(versions.ours)
    changes.append(FileWrite(path=files.ours, data=result, old_sha256=digest))
    write_files(changes, root=top, settles_links=False)  # git reads links by itself
    return outcome


def _context(
    path: Path, versions: Three[bytes | None], top: Path | None, call: DriverCall
) -> MergeContext:
    """Return the context of a decision: settings, quarantine, side-cars."""
    root = find_quarantine_root(top / path) if top else None
    quarantines = (load_quarantine(root),) if root else ()
    return MergeContext(
        exclusions=Exclusions(quarantines=quarantines, today=call.today),
        times_of_ours=Measurements(partial(_load_log, path, versions.ours, call)),
        times_of_theirs=Measurements(partial(_load_log, path, versions.theirs, call)),
        rules=rules_of_settings(list_settings(SECTION, cwd=call.cwd)),
        verbose=call.verbose,
    )


def _load_log(path: Path, data: bytes | None, call: DriverCall) -> tuple[Provenance, ...]:
    """Return the side-car of a version, which git does not hand out."""
    found = _find_side_car(path.as_posix(), data, cwd=call.cwd, env=call.env) if data else None
    return parse_provenance(found or b"", provenance_path(path)).entries


def _describe(
    outcome: DriverOutcome, versions: Three[bytes | None], top: Path
) -> tuple[DriverOutcome, list[FileWrite]]:
    """Return the conflicts to write beside the file; without any, an older file to remove.

    What a person chose in an older one is kept: for the same records in the new file, for others
    under another name. Git also calls us to show an old merge again (`--remerge-diff`): then there
    is nothing to settle, and ours is not what the index has.
    """
    place, conflicts = conflict_path(Path(outcome.path)), outcome.plan.conflicts
    old = read_file(top / place)
    if (not conflicts and old is None) or not is_in_index(versions.ours or b"", cwd=top):
        return outcome, []
    changes = []
    document: Mapping[str, Any] = conflict_document(
        conflicts, point=current_point(top, versions.theirs)
    )
    if old is not None:
        document, kept, is_all = keep_choices(old, document, place)
        outcome = replace(outcome, kept_choices=kept)
        if not is_all:
            aside = aside_path(place, old)
            digest = sha256_of(read_file(top / aside))
            changes.append(FileWrite(path=top / aside, data=old, old_sha256=digest))
            outcome = replace(outcome, set_aside=aside)
    data = serialize_document(document) if document else None
    changes.append(FileWrite(path=top / place, data=data, old_sha256=sha256_of(old)))
    return replace(outcome, conflict_path=place if data else None), changes


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path, hint=_HINT) from error


# ---- side-cars of the versions, which git does not hand out ----


_LABEL = "GITHEAD_"  # `git merge` leaves the names of what it merges in the environment
_HEADS = (
    "HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "ORIG_HEAD",
    "refs/stash",
)


def _find_side_car(path: str, data: bytes, *, cwd: Path, env: Mapping[str, str]) -> bytes | None:
    """Return the side-car of a commit in which a bank file is `data`, or None.

    Looks at what is being merged, then at all branches and tags, then through their history.

    Args:
        path: Of the bank file from the top of the work tree; it may be another one there.
    """
    blob = run_git(["hash-object", "--stdin"], cwd=cwd, data=data).decode("ascii").strip()
    labels = [name.removeprefix(_LABEL) for name in env if name.startswith(_LABEL)]
    for commits in ([*labels, *_HEADS], _all_refs(cwd)):
        side_car = _side_car_in(commits, path, blob, cwd)
        if side_car is not None:
            return side_car
    for commit in _history(blob, cwd):
        paths = [file.path for file in iter_blobs(commit, cwd=cwd) if file.name == blob]
        if paths:
            return _side_car_in([commit], paths[0], blob, cwd)
    return None


def _side_car_in(commits: Sequence[str], path: str, blob: str, cwd: Path) -> bytes | None:
    if not commits or "\n" in path:  # git reads one name per line
        return None
    names = [f"{commit}:{path}{suffix}" for commit in commits for suffix in ("", SUFFIX)]
    data = os.fsencode("".join(f"{name}\n" for name in names))
    result = try_git(["cat-file", "--batch-check=%(objectname)"], cwd=cwd, data=data)
    lines = result.stdout.split(b"\n")  # none outside of a repository
    for bank_file, side_car in zip(lines[::2], lines[1::2], strict=False):
        if bank_file.decode() == blob:
            is_there = not side_car.endswith((b" missing", b" ambiguous"))
            return run_git(["cat-file", "blob", side_car.decode()], cwd=cwd) if is_there else b""
    return None


def _all_refs(cwd: Path) -> list[str]:
    result = try_git(["for-each-ref", "--format=%(objectname)", "--sort=-creatordate"], cwd=cwd)
    return list(dict.fromkeys(result.stdout.decode("ascii").split()))


def _history(blob: str, cwd: Path) -> Iterator[str]:
    """Yield the newest commits that added a blob or took it out."""
    search = ["log", "--all", "--max-count=5", "--format=%H", f"--find-object={blob}"]
    result = try_git(search, cwd=cwd)
    yield from result.stdout.decode("ascii").split()


# ---- what is printed ----


_SHOWN = 5
_POLICY = "aoebank.merge.policy=theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReport(Report):
    """A line per file, none if nothing had to be decided; conflicts in short."""

    outcome: DriverOutcome
    schema: str = "aoebank.merge-driver/1"

    @property
    def exit_code(self) -> int:
        """Return 1 for conflicts."""
        return self.outcome.exit_code

    @property
    def is_silent(self) -> bool:
        """True if no decision is worth a line: one side alone changed each key."""
        return not self._settled and not self.exit_code and self.outcome.set_aside is None

    @property
    def _settled(self) -> int:
        plan = self.outcome.plan
        contested = (number for reason, number in plan.counts.items() if reason not in CLEAN)
        return sum(contested) - len(plan.conflicts)

    def document(self) -> Mapping[str, object]:
        plan, place = self.outcome.plan, self.outcome.conflict_path
        return {
            "path": self.outcome.path,
            "conflict_file": str(place) if place else None,
            "counts": {str(reason): number for reason, number in plan.counts.items()},
            "decisions": [decision_document(decision) for decision in plan.decisions],
        }

    def write(self, text: Text) -> None:
        plan = self.outcome.plan
        if self.outcome.set_aside:
            text.line(
                f"aoebank: {self.outcome.path}: choices of an earlier merge are kept in "
                f"{self.outcome.set_aside}"
            )
        if self.is_silent:
            return
        conflicts, settled = plan.conflicts, self._settled
        name = f"aoebank: {self.outcome.path}: "
        words = [f"{plural(settled, 'contested record')} decided"] if settled else []
        words += [plural(len(conflicts), "conflict")] if conflicts else []
        text.line(name, ", ".join(words))
        contained = [said for said in plan.decisions if said.reason is Reason.CONTAINS]
        for decision in contained[:_SHOWN]:
            side = "ours" if decision.action is Action.KEEP_OURS else "theirs"
            text.line(f"  {decision.key}: {decision.reason}, {side}: {decision.note}")
        if len(contained) > _SHOWN:
            text.line(f"  and {len(contained) - _SHOWN} more of these")
        for conflict in conflicts[:_SHOWN]:
            text.line(f"  {conflict.key}: {conflict.reason}{_times(conflict)}")
            for line in conflict_lines(conflict):
                text.line(f"    {line}")
        if len(conflicts) > _SHOWN:
            text.line(f"  and {len(conflicts) - _SHOWN} more")
        if conflicts:
            text.line("  the file is valid, with our records for these keys")
            place = self.outcome.conflict_path
            if place:
                text.line(f"  both sides' records: {place}")
                text.line(f"  settle them there, then: aoebank merge --apply {shell_word(place)}")
                if self.outcome.kept_choices:
                    count = plural(self.outcome.kept_choices, "choice")
                    text.line(f"  {count} you made there before is kept; it waits for --apply")
            path = shell_word(self.outcome.path)
            text.line(f"  another policy: git -c {_POLICY} checkout -m -- {path}")


def _times(decision: Decision) -> str:
    ours, theirs = decision.cost_ours_us, decision.cost_theirs_us
    if ours is None and theirs is None:
        return ""
    words = ("-" if cost is None else f"{cost:g} us" for cost in (ours, theirs))
    return " (ours {}, theirs {})".format(*words)


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> DriverReport | int:
    """Return the report on a merge, or the exit code where there is nothing to tell."""
    report = DriverReport(outcome=call(verbose=given["as_json"]))
    # git starts us for every file: rich costs time
    if report.is_silent and asked_documents().is_text_alone:
        return report.exit_code
    return report
