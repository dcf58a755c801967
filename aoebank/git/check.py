"""Find out whether git will merge the banks of a work tree as it should."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoebank.errors import AoebankError, BankFormatError, HistoryError, shell_word
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import bank_suffixes, may_be_bank, parse_name
from aoebank.git.install import command_of, conflict_glob, driver_settings, exclude_patterns
from aoebank.merging.document import (
    CONFLICTS,
    STALE,
    iter_decisions,
    point_of,
    read_document,
)
from aoebank.report.output import Report, Text, members, plural
from aoebank.storage.bank import read_file
from aoebank.storage.git.attributes import (
    DRIVER,
    QUARANTINE,
    attribute_block,
    exclude_block,
    find_block,
    formats_of,
    get_attributes,
)
from aoebank.storage.git.config import Scope, find_places, find_setting
from aoebank.storage.git.merges import MergePoint, Standing, find_standing
from aoebank.storage.git.program import find_work_tree, run_git
from aoebank.storage.tree import CONFLICT_SUFFIX, FileKind, classify

# names other programs hardly give
_OURS = tuple(f"{suffix}{CONFLICT_SUFFIX}" for suffix in bank_suffixes())

_SHOWN_PATHS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictFile:
    """Open decisions of a conflict file."""

    open: int = 0  # Decisions nobody made
    chosen: int = 0  # Decisions a person made that the bank does not have yet
    point: MergePoint | None = None  # The merge it is of, where that was in a git work tree
    problem: str = ""  # Why it cannot be read; empty if it can


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingConflicts:
    """One conflict file nobody settled."""

    path: str  # From the top of the work tree
    file: ConflictFile
    is_tracked: bool  # Whether git has it in its index
    standing: Standing = Standing.CURRENT  # How the work tree is to the merge it is of

    @property
    def is_stale(self) -> bool:
        """True if the merge was given up, or is of another branch: nothing is left to settle."""
        return self.standing in (Standing.GIVEN_UP, Standing.ELSEWHERE)


def find_conflict_files(top: Path, *, is_tracked_only: bool = False) -> Iterator[StandingConflicts]:
    """Yield the conflict files of a work tree, ignored ones too, sorted by path."""
    tracked = _list(top, "--cached")
    others = set() if is_tracked_only else _list(top, "--others")
    for path in sorted(tracked | others):
        data = read_file(top / path)
        file = None if data is None else find_conflicts(data, path)
        if file is not None:
            bank = path.removesuffix(CONFLICT_SUFFIX)
            standing = find_standing(file.point, bank, top=top) if file.point else None
            yield StandingConflicts(
                path=path,
                file=file,
                is_tracked=path in tracked,
                standing=standing or Standing.CURRENT,
            )


def find_conflicts(data: bytes, path: str) -> ConflictFile | None:
    """Return the open conflicts of a file, or None if it is no conflict file."""
    if not path.endswith(CONFLICT_SUFFIX):
        return None
    file = _parse(data, Path(path))
    return None if file.problem and not path.endswith(_OURS) else file


def _parse(data: bytes, path: Path) -> ConflictFile:
    """Return the conflicts in a conflict file, also where an edit broke it."""
    try:
        document = read_document(data, path, [CONFLICTS])
        actions = [action for _, action in iter_decisions(document, path)]
    except BankFormatError as error:
        return ConflictFile(problem=error.headline)
    return ConflictFile(
        open=actions.count(None),
        chosen=len(actions) - actions.count(None),
        point=point_of(document),
    )


def waiting_text(file: ConflictFile) -> str:
    """Return in a few words what a conflict file waits for."""
    if file.problem:
        return "cannot be read"
    chosen = f"{file.chosen} chosen and not applied" if file.chosen else ""
    return ", ".join(filter(None, (f"{file.open} open" if file.open else "", chosen))) or "empty"


def _list(top: Path, which: str) -> set[str]:
    arguments = ["ls-files", "-z", which, "--", f"*{CONFLICT_SUFFIX}"]
    try:
        names = run_git(arguments, cwd=top).split(b"\0")
    except AoebankError:  # a bare repository has no work tree to list
        return set()
    return {os.fsdecode(name) for name in names if name}


_START_TIMEOUT_S = 60.0
_NO_VALUE = "unspecified"
_INSTALL = "aoebank git install"
_MERGE = f"merge.{DRIVER}.driver"


class CheckCode(StrEnum):
    """Code of a problem."""

    NOT_REGISTERED = "not_registered"
    OTHER_COMMAND = "other_command"
    NOT_RUNNABLE = "not_runnable"
    NOT_DECLARED = "not_declared"
    NOT_COVERED = "not_covered"
    SHADOWED = "shadowed"
    OLD_BLOCK = "old_block"
    CONFLICT_FILE = "conflict_file"
    UNSETTLED = "unsettled"
    STALE = "stale_conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProblem:
    """One reason why git does not merge banks record by record."""

    code: CheckCode
    where: str  # A setting of git, or a file; what `paths` have in common, if there are any
    message: str
    hint: str
    paths: tuple[str, ...] = ()  # The bank files it is about, from the top of the work tree


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Files and settings that were checked, and their problems."""

    top: Path
    files: int  # Tracked bank files, side-cars and quarantine lists
    covered: int  # How many of them git gives to our driver
    settings: Mapping[str, str]  # The settings that count here, as far as they are there
    problems: tuple[CheckProblem, ...]


def check_git(
    cwd: Path, *, is_committed_only: bool = False, are_conflicts_only: bool = False
) -> CheckResult:
    """Return the problems of the drivers of the work tree `cwd` is in.

    Args:
        is_committed_only: Leave out the settings of this clone, as a CI job must.
        are_conflicts_only: Look for conflict files alone, as a hook does before each commit.

    Raises:
        HistoryError: not in a work tree.
    """
    top = find_work_tree(cwd)
    if top is None:
        raise HistoryError("not in a git work tree", where=str(cwd), hint="cd into the work tree")
    if are_conflicts_only:
        found = _check_conflict_files(top, is_committed_only=is_committed_only)
        return CheckResult(top=top, files=0, covered=0, settings={}, problems=tuple(found))
    tracked = _tracked(top)
    block = _read_block(top)
    formats = formats_of(block) if block is not None else ()
    names = [name for name in tracked if _is_ours(top, name) and _is_asked_for(name, formats)]
    merges = get_attributes(names, "merge", cwd=top)
    values = {key: find_setting(key, cwd=top) for key in driver_settings()}
    settings = {key: value for key, value in values.items() if value is not None}
    problems = [
        *([] if is_committed_only else _check_settings(settings, top)),
        *_check_block(top, merges),
        *([] if is_committed_only else _check_exclude(top)),
        *_check_conflict_files(top, is_committed_only=is_committed_only),
    ]
    return CheckResult(
        top=top,
        files=len(names),
        covered=sum(value == DRIVER for value in merges.values()),
        settings=settings,
        problems=tuple(problems),
    )


def _tracked(top: Path) -> list[str]:
    names = run_git(["ls-files", "-z"], cwd=top).split(b"\0")
    return list(dict.fromkeys(os.fsdecode(name) for name in names if name))


def _is_ours(top: Path, name: str) -> bool:
    """True if a tracked file is for our driver, by its content if need be."""
    if name.endswith(SUFFIX) or f"/{name}".endswith(f"/{QUARANTINE}"):
        return True
    path = Path(name)
    if not (may_be_bank(path) or parse_name(path)) or any(
        part.startswith(".") for part in name.split("/")
    ):
        return False
    return classify(top / name).kind is FileKind.BANK


def _is_asked_for(name: str, formats: Collection[str]) -> bool:
    """True unless the lines in `.gitattributes` are for other formats alone."""
    named = parse_name(Path(name))
    return not formats or named is None or named[0].name in formats


def _read_block(top: Path) -> bytes | None:
    path = find_places(Scope.LOCAL, cwd=top, env={}).attributes
    return find_block(path.read_bytes()) if path.is_file() else None


def _check_settings(settings: Mapping[str, str], top: Path) -> Iterator[CheckProblem]:
    """Yield the settings that are missing, differ from ours, or do not start."""
    if _MERGE not in settings:
        yield CheckProblem(
            code=CheckCode.NOT_REGISTERED,
            where=_MERGE,
            hint=_INSTALL,
            message="setting is missing: git merges banks line by line, as if they were text",
        )
        return
    command = command_of(settings[_MERGE])
    for key, wanted in driver_settings(command).items():
        value = settings.get(key)
        if value != wanted and not key.endswith((".name", ".cachetextconv")):
            yield CheckProblem(
                code=CheckCode.OTHER_COMMAND,
                where=key,
                hint=_INSTALL,
                message=f"is {value or 'missing'}, this version registers {wanted}",
            )
    trouble = _start(command, top)
    if trouble:
        yield CheckProblem(
            code=CheckCode.NOT_RUNNABLE,
            where=_MERGE,
            message=f"{command}: {trouble}",
            hint=f'{_INSTALL} --command "$(command -v aoebank)"',
        )


def _start(command: str, top: Path) -> str:
    """Return the problem of a command when started as git does; empty if there is none."""
    try:
        result = subprocess.run(
            ["/bin/sh", "-c", f"{command} --version"],
            cwd=top,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_START_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be started: {error}"
    if result.returncode == 0 and result.stdout.startswith(b"aoebank "):
        return ""
    words = (result.stderr or result.stdout).decode("utf-8", errors="replace").splitlines()
    said = f": {words[-1]}" if words else ""
    return f"cannot be started (exit code {result.returncode}){said}"


def _check_block(top: Path, merges: Mapping[str, str]) -> Iterator[CheckProblem]:
    """Yield a problem unless `.gitattributes` has the lines this version writes."""
    block = _read_block(top)
    if block is None and DRIVER not in merges.values():
        yield CheckProblem(
            code=CheckCode.NOT_DECLARED,
            where=".gitattributes",
            hint=_INSTALL,
            message="no line names bank files: git never asks the drivers",
            paths=tuple(merges),
        )
        return
    if block is not None and block != attribute_block(formats_of(block)):
        yield CheckProblem(
            code=CheckCode.OLD_BLOCK,
            where=".gitattributes",
            hint=_INSTALL,
            message="the lines about bank files are not those of this version",
        )
    yield from _check_coverage(merges, top)


def _check_coverage(merges: Mapping[str, str], top: Path) -> Iterator[CheckProblem]:
    """Yield the bank files that git gives to another driver, or to none of ours."""
    groups: dict[str, list[str]] = {}
    for name, value in merges.items():
        groups.setdefault(value, []).append(name)
    for value, names in sorted(groups.items()):
        if value == _NO_VALUE:
            yield CheckProblem(
                code=CheckCode.NOT_COVERED,
                where="merge attribute",
                paths=tuple(names),
                message="no line of .gitattributes names these bank files",
                hint=f"a line PATTERN merge={DRIVER} diff={DRIVER} -text",
            )
        elif value != DRIVER:
            yield CheckProblem(
                code=CheckCode.SHADOWED,
                where="merge attribute",
                paths=tuple(names),
                message=f"a later line gives these bank files merge: {value}",
                hint=f"git check-attr -a {shell_word(names[0])}, and move the line above the block",
            )
    covered = groups.get(DRIVER, [])
    texts = get_attributes(covered, "text", cwd=top)
    changed = tuple(name for name in covered if texts[name] not in (_NO_VALUE, "unset"))
    if changed:
        yield CheckProblem(
            code=CheckCode.SHADOWED,
            where="text attribute",
            paths=changed,
            message="a later line lets git change the line ends of these bank files",
            hint=f"git check-attr -a {shell_word(changed[0])}, and move the line above the block",
        )


def _check_exclude(top: Path) -> Iterator[CheckProblem]:
    """Yield a problem if lines of an older version keep conflict files out of sight."""
    path = find_places(Scope.LOCAL, cwd=top, env={}).exclude
    block = find_block(path.read_bytes()) if path.is_file() else None
    if block is not None and block != exclude_block(*exclude_patterns()):
        yield CheckProblem(
            code=CheckCode.OLD_BLOCK,
            where=".git/info/exclude",
            hint=_INSTALL,
            message="the lines about what git leaves alone are not those of this version",
        )


def _check_conflict_files(top: Path, *, is_committed_only: bool) -> Iterator[CheckProblem]:
    """Yield one problem for each kind of unsettled conflict files."""
    groups: dict[tuple[CheckCode, str], list[StandingConflicts]] = {}
    for found in find_conflict_files(top, is_tracked_only=is_committed_only):
        kind = CheckCode.UNSETTLED, "conflicts wait for somebody to settle them"
        if found.is_tracked:
            kind = CheckCode.CONFLICT_FILE, "conflict files are in the index, or committed"
        elif found.is_stale:
            kind = CheckCode.STALE, STALE[found.standing]
        groups.setdefault(kind, []).append(found)
    for (code, message), files in groups.items():
        first = shlex.quote(files[0].path)
        hints = {
            CheckCode.CONFLICT_FILE: f"settle them, or: git rm --cached {first}",
            CheckCode.STALE: f"rm {first}",
        }
        settle = f"choose an action for each in it, then: aoebank merge --apply {first}"
        waiting = "; ".join(dict.fromkeys(waiting_text(found.file) for found in files))
        yield CheckProblem(
            code=code,
            where=conflict_glob(),
            paths=tuple(found.path for found in files),
            message=f"{message}: {waiting}",
            hint=hints.get(code, settle),
        )


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Report):
    """Problems that keep git from merging banks record by record."""

    result: CheckResult
    are_conflicts_only: bool = False
    schema: str = "aoebank.git-check/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if anything is wrong."""
        return 1 if self.result.problems else 0

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "work_tree=top files covered"),
            "settings": dict(self.result.settings),
            "problems": [
                members(problem, "code where message hint paths")
                for problem in self.result.problems
            ],
        }

    def write(self, text: Text) -> None:
        for problem in self.result.problems:
            _write_problem(text, problem)
        if self.are_conflicts_only:
            text.line("conflicts are open" if self.result.problems else "no conflict is open")
            return
        count = plural(len(self.result.problems), "problem") if self.result.problems else "in order"
        covered = f"{self.result.covered} of {plural(self.result.files, 'bank file')}"
        text.line(
            f"{count}: git merges {covered} record by record"
            if not self.result.problems
            else f"{count}; {covered} declared for the driver"
        )


def _write_problem(text: Text, problem: CheckProblem) -> None:
    text.line((problem.code, "red"), f" {problem.where}: {problem.message}")
    for path in problem.paths[:_SHOWN_PATHS]:
        text.line(f"    {path}")
    if len(problem.paths) > _SHOWN_PATHS:
        text.line(f"    and {len(problem.paths) - _SHOWN_PATHS} more (--json lists them)")
    text.line(f"    hint: {problem.hint}")
