"""Register the merge and diff drivers with git, and take them back."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankPathError, UsageError
from aoebank.formats.registry import FORMATS, get_format
from aoebank.merging.document import ASIDE_GLOB, conflict_path
from aoebank.model.digest import sha256_of
from aoebank.report.output import Report, Text, members, plural
from aoebank.storage.git.attributes import (
    DRIVER,
    INNER_DRIVER,
    attribute_block,
    drop_block,
    drop_hook_block,
    exclude_block,
    find_block,
    hook_block,
    put_block,
    put_hook_block,
)
from aoebank.storage.git.config import (
    GitPlaces,
    Scope,
    find_hook,
    find_places,
    find_setting,
    set_setting,
)
from aoebank.storage.git.program import run_git, try_git
from aoebank.storage.tree import CONFLICT_SUFFIX
from aoebank.storage.writing.atomic import TEMPORARY_SUFFIX, mode_of_user
from aoebank.storage.writing.staged import FileWrite, write_files

DEFAULT_COMMAND = "aoebank"
_HOOK = "pre-commit"
_CACHE = f"refs/notes/textconv/{DRIVER}"
DRIVER_ARGUMENTS = "%O %A %B %L -- %P"
# Where the program is gone, git would take ours and say no more than "conflict". So both versions
# go into the file, between markers; the base is left out: else git would merge lines, in silence.
_FALL_BACK = (
    'git merge-file -q --marker-size=%L -L ours -L base -L "theirs (aoebank does not start)" '
    "%A /dev/null %B; exit 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One setting of git, before and after; None where there is none."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file git looks into, before and after; None where there is none."""

    path: Path
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """All that is to be as its `after` says, what is so already included."""

    scope: Scope
    cwd: Path
    settings: tuple[SettingChange, ...]
    files: tuple[FileChange, ...]
    forgotten: tuple[str, ...] = ()  # References of git that go: texts it keeps of banks it showed
    # The `pre-commit` hook; None where git has none for all repositories.
    hook: FileChange | None = None


def shell_command(command: str) -> str:
    """Return a command as a shell starts it: a program's path is one word, quoted."""
    path = Path(command).expanduser()
    return shlex.quote(str(path)) if path.is_file() else command


def command_of(setting: str) -> str:
    """Return the command in a setting that registers the merge driver."""
    return setting.partition(" merge-driver ")[0]


def driver_settings(command: str = DEFAULT_COMMAND) -> Mapping[str, str]:
    """Return the settings that register the drivers.

    Args:
        command: How the shell git uses starts `aoebank`.
    """
    driver = (
        f"{command} merge-driver {DRIVER_ARGUMENTS} || {{ code=$?; "
        f"{command} --version >/dev/null 2>&1 && exit $code; {_FALL_BACK}; }}"
    )
    return {
        f"merge.{DRIVER}.name": "merge knowledge banks record by record",
        f"merge.{DRIVER}.driver": driver,
        f"merge.{DRIVER}.recursive": INNER_DRIVER,
        f"merge.{INNER_DRIVER}.name": "merge the common ancestors of knowledge banks",
        f"merge.{INNER_DRIVER}.driver": f"{command} merge-driver --inner {DRIVER_ARGUMENTS}",
        f"diff.{DRIVER}.textconv": f"{command} textconv --",
        f"diff.{DRIVER}.cachetextconv": "true",
    }


def tool_settings(command: str = DEFAULT_COMMAND) -> Mapping[str, str]:
    """Return the settings by which `git mergetool -t aoebank` settles conflicts in banks."""
    return {
        f"mergetool.{DRIVER}.cmd": f'{command} merge --apply "$MERGED{CONFLICT_SUFFIX}" -i',
        f"mergetool.{DRIVER}.trustExitCode": "true",
    }


def conflict_glob() -> str:
    """Return the pattern of the names of conflict files."""
    return conflict_path(Path("*.json")).name


def exclude_patterns() -> tuple[str, ...]:
    """Return the names git is to leave alone: what a killed program left, and old choices.

    Conflict files are not among them: who merges is to see them in `git status`.
    """
    return (f".*{TEMPORARY_SUFFIX}", ASIDE_GLOB)


def plan_install(
    scope: Scope,
    *,
    cwd: Path,
    env: Mapping[str, str],
    command: str = DEFAULT_COMMAND,
    has_hook: bool = False,
    has_tool: bool = False,
    formats: Collection[str] = (),
) -> InstallPlan:
    """Return the plan that registers the drivers; other lines of these files stay.

    Args:
        has_hook: Whether a `pre-commit` hook is to stop commits while conflicts are open.
        has_tool: Whether `git mergetool` is to know a tool for conflicts in banks.
        formats: Names of the formats whose files git is to give to the drivers; all without any.

    Raises:
        UsageError: a hook is asked for in all repositories, or a format there is none of.
        HistoryError: no git, or no repository here.
        BankPathError: a file cannot be read.
    """
    for name in formats:
        _demand_format(name)
    start = shell_command(command)
    wanted = {**driver_settings(start), **(tool_settings(start) if has_tool else {})}
    settings = tuple(
        SettingChange(key=key, before=find_setting(key, cwd=cwd, scope=scope), after=value)
        for key, value in wanted.items()
    )
    files = []
    for path, block in _blocks(find_places(scope, cwd=cwd, env=env), formats):
        before = _read(path)
        files.append(
            FileChange(path=path, before=before, after=put_block(before or b"", block, path))
        )
    hook = None
    if scope is Scope.LOCAL:
        path = find_hook(_HOOK, cwd=cwd)
        before = _read(path)
        block = hook_block(shell_command(command))
        is_there = has_hook or find_block(before or b"") is not None
        after = put_hook_block(before or b"", block, path) if is_there else before
        hook = FileChange(path=path, before=before, after=after)
    elif has_hook:
        raise UsageError("git has no hook for all repositories", where="--hook", got="--global")
    return InstallPlan(scope=scope, cwd=cwd, settings=settings, files=tuple(files), hook=hook)


def plan_uninstall(scope: Scope, *, cwd: Path, env: Mapping[str, str]) -> InstallPlan:
    """Return the plan that removes the drivers; a file that held nothing else goes."""
    settings = tuple(
        SettingChange(key=key, before=find_setting(key, cwd=cwd, scope=scope), after=None)
        for key in (*driver_settings(), *tool_settings())
    )
    files = []
    for path, _ in _blocks(find_places(scope, cwd=cwd, env=env)):
        before = _read(path)
        after = drop_block(before or b"", path) or (b"" if before == b"" else None)
        files.append(FileChange(path=path, before=before, after=after))
    hook = None
    if scope is Scope.LOCAL:
        path = find_hook(_HOOK, cwd=cwd)
        before = _read(path)
        left = None if before is None else drop_hook_block(before, path)
        hook = FileChange(path=path, before=before, after=left)
    return InstallPlan(
        scope=scope,
        cwd=cwd,
        settings=settings,
        hook=hook,
        files=tuple(files),
        forgotten=_find_caches(cwd) if scope is Scope.LOCAL else (),
    )


def apply_plan(plan: InstallPlan) -> None:
    """Make everything as the plan says.

    Raises:
        HistoryError: git cannot write its settings.
        BankPathError: a file cannot be written.
    """
    for setting in plan.settings:
        if setting.before != setting.after:
            set_setting(setting.key, setting.after, cwd=plan.cwd, scope=plan.scope)
    for name in plan.forgotten:
        run_git(["update-ref", "-d", name], cwd=plan.cwd)
    modes = [(file, mode_of_user()) for file in plan.files]
    if plan.hook is not None:
        modes.append((plan.hook, mode_of_user() | 0o111))
    write_files(
        FileWrite(path=file.path, data=file.after, old_sha256=sha256_of(file.before), mode=mode)
        for file, mode in modes
    )


def _demand_format(name: str) -> None:
    try:
        get_format(name)
    except ValueError as error:
        known = ", ".join(one.name for one in FORMATS)
        raise UsageError(
            "no such format", where="--format", got=name, expected=f"one of {known}"
        ) from error


def _blocks(places: GitPlaces, formats: Collection[str] = ()) -> Iterator[tuple[Path, bytes]]:
    yield places.attributes, attribute_block(formats)
    yield places.exclude, exclude_block(*exclude_patterns())


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path) from error


def _find_caches(cwd: Path) -> tuple[str, ...]:
    """Return the references under which git keeps what textconv printed."""
    result = try_git(["for-each-ref", "--format=%(refname)", _CACHE], cwd=cwd)
    return tuple(result.stdout.decode("utf-8", errors="surrogateescape").split())


_STYLES = {"+": "green", "-": "red"}


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallReport(Report):
    """The settings and lines that were written, or would be."""

    plan: InstallPlan
    is_dry_run: bool
    verb: str = "install"

    @property
    def schema(self) -> str:
        return f"aoebank.git-{self.verb}/1"

    def document(self) -> Mapping[str, object]:
        return {
            **members(self, "scope=plan.scope dry_run=is_dry_run"),
            "settings": [
                {
                    **members(setting, "key before after"),
                    "changed": setting.before != setting.after,
                }
                for setting in self.plan.settings
            ],
            "files": [
                {
                    "path": str(file.path),
                    "changed": file.before != file.after,
                    "diff": [line.rstrip("\n") for line in _diff(file)],
                }
                for file in self._files()
            ],
            "forgotten": list(self.plan.forgotten),
        }

    def write(self, text: Text) -> None:
        done = "would change" if self.is_dry_run else "changed"
        settings = [setting for setting in self.plan.settings if setting.before != setting.after]
        if settings:
            text.line((f"{done} git config --{self.plan.scope}", "bold"))
        for setting in settings:
            _write_setting(text, setting)
        files = [file for file in self._files() if file.before != file.after]
        for change in files:
            text.line((f"{done} {change.path}", "bold"))
            for line in _diff(change):
                text.line((f"  {line.rstrip()}", _STYLES.get(line[:1], "")))
        for name in self.plan.forgotten:
            text.line((f"{'would forget' if self.is_dry_run else 'forgot'} {name}", "bold"))
        same = len(self.plan.settings) + len(self._files()) - len(settings) - len(files)
        if not settings and not files and not self.plan.forgotten:
            text.line(f"nothing to do: {plural(same, 'setting')} and files are so already")
        elif any(file.path.name == ".gitattributes" for file in files):
            text.line("commit .gitattributes: it tells every clone which files are banks")
        if self.verb == "install" and self.plan.hook is not None and not self._has_hook():
            text.line(
                "a pre-commit hook would stop commits while conflicts are open: "
                "aoebank git install --hook"
            )

    def _has_hook(self) -> bool:
        hook = self.plan.hook
        return hook is not None and find_block(hook.after or b"") is not None

    def _files(self) -> tuple[FileChange, ...]:
        """Return the files, the hook too where it is ours or was."""
        hook = self.plan.hook
        is_ours = hook is not None and (self._has_hook() or hook.before != hook.after)
        return (*self.plan.files, hook) if hook is not None and is_ours else self.plan.files


def _write_setting(text: Text, setting: SettingChange) -> None:
    for sign, value in (("-", setting.before), ("+", setting.after)):
        if value is not None:
            text.line((f"  {sign}{setting.key} = {value}", _STYLES[sign]))


def _diff(change: FileChange) -> Iterator[str]:
    """Yield the lines that come and go, each with its sign."""
    before, after = (
        (data or b"").decode("utf-8", errors="backslashreplace").splitlines(keepends=True)
        for data in (change.before, change.after)
    )
    lines = difflib.unified_diff(before, after, n=0)
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))
