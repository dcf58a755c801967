"""Tell what was registered with git, and what is wrong there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aoebank.git.check import CheckProblem, CheckResult
from aoebank.git.install import FileChange, InstallPlan, SettingChange
from aoebank.report.output import Report, Text, members, plural
from aoebank.storage.git.attributes import find_block

_SHOWN_PATHS = 5
_STYLES = {"+": "green", "-": "red"}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Report):
    """What keeps git from merging banks record by record."""

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
