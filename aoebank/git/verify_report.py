"""Tell which merges are not what the driver would have made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aoebank.model.codes import Severity
from aoebank.model.merge_verdict import MergeProblem, MergeVerdict
from aoebank.report.output import Report, Text, members, plural
from aoebank.validation.report.github import annotation

_NAME_LENGTH = 10
_WAY_OUT = "merge again where `aoebank git install` was run, or mend these records and commit that"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyMergeReport(Report):
    """A line per merge, and one per record that is not as it should be."""

    verdicts: Sequence[MergeVerdict]
    schema: str = "aoebank.git-verify-merge/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a merge is not what it should be."""
        return 1 if any(verdict.problems for verdict in self.verdicts) else 0

    def document(self) -> Mapping[str, object]:
        return {"merges": [_document(verdict) for verdict in self.verdicts]}

    def write(self, text: Text) -> None:
        for verdict in self.verdicts:
            name = verdict.commit[:_NAME_LENGTH]
            text.line((name, "bold"), f" {verdict.subject}" if name else verdict.subject)
            for problem in verdict.problems:
                text.line("  ", (problem.fault, "red"), f" {_place(problem)}: {problem.message}")
            if verdict.commit:
                text.line(f"  {_summary(verdict)}")
            if verdict.commit and verdict.problems:
                text.line(("  way out: ", "dim"), _WAY_OUT)
        if not self.verdicts:
            text.line("no merge in this range")


def github_annotations(report: VerifyMergeReport) -> str:
    """Return the problems as workflow commands of GitHub, a line each."""
    return "".join(f"{line}\n" for line in _annotations(report.verdicts))


def _annotations(verdicts: Sequence[MergeVerdict]) -> Iterator[str]:
    for verdict in verdicts:
        name = verdict.commit[:_NAME_LENGTH]
        where = f"in merge {name}" if name else f"in the {verdict.subject}"
        if verdict.note:
            yield annotation(
                Severity.NOTE, f"{where}: {verdict.note}", title="aoebank verify-merge"
            )
        for problem in verdict.problems:
            key = f"{problem.key}: " if problem.key else ""
            yield annotation(
                Severity.ERROR,
                f"{key}{problem.message} ({where})",
                path=problem.path,
                line=problem.line,
                title=f"aoebank verify-merge: {problem.fault}",
            )


def _place(problem: MergeProblem) -> str:
    line = f":{problem.line}" if problem.line else ""
    return f"{problem.path}{line}{f' {problem.key}' if problem.key else ''}"


def _summary(verdict: MergeVerdict) -> str:
    if verdict.note:
        return verdict.note
    files = plural(verdict.files, "bank file")
    words = [f"{files} as merging the parents gives {'it' if verdict.files == 1 else 'them'}"]
    if verdict.problems:
        number = plural(len(verdict.problems), "difference")
        words = [f"{files} compared with what merging the parents gives: {number}"]
    if not verdict.files and not verdict.problems:
        words = ["no bank file differs between the parents, or from them"]
    if verdict.choices:
        words.append(f"{plural(verdict.choices, 'record')} in conflict, {_choices(verdict)}")
    return "; ".join(words)


def _choices(verdict: MergeVerdict) -> str:
    """Return the outcome of the contested keys, in words."""
    others = verdict.choices - verdict.choices_ours
    if not others:
        return "all as the first parent has them, which is also what git is left with"
    if verdict.choices_ours:
        return f"{others} of them decided against the first parent"
    return "all decided against the first parent"


def _document(verdict: MergeVerdict) -> Mapping[str, object]:
    return {
        **members(verdict, "commit subject note files choices choices_ours"),
        "problems": [
            members(problem, "fault path line key message") for problem in verdict.problems
        ],
    }
