"""Fixes as unified diffs, and files in another form than their tuner would write."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.report.output import Report, Text, error_document, plural
from aoebank.validation.fix import FileFix, FixOutcome

ALIGNED_LINES = 2000  # above it lines are not paired up: that takes quadratic time
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def write_fixes(text: Text, outcomes: Sequence[FixOutcome], *, is_dry_run: bool) -> None:
    """Write the diff of each file, then what was done."""
    for outcome in outcomes:
        write_diff(text, outcome.fix)
    for outcome in outcomes:
        done = "would fix" if is_dry_run else "fixed" if outcome.is_written else "not fixed"
        text.line(f"{done} {outcome.fix.path}: {', '.join(outcome.fix.classes)}")
    if not outcomes:
        text.line("nothing to fix")


def write_diff(text: Text, fix: FileFix) -> None:
    """Write the unified diff of a fix."""
    for line in diff_lines(fix):
        text.line((line, _STYLES.get(line[:1], "")))


def fixes_document(outcomes: Sequence[FixOutcome]) -> list[Mapping[str, object]]:
    """Return the members of fixes: path, classes, whether written, the diff."""
    documents: list[Mapping[str, object]] = []
    for outcome in outcomes:
        document: dict[str, object] = {
            "path": str(outcome.fix.path),
            "classes": [str(fix_class) for fix_class in outcome.fix.classes],
            "written": outcome.is_written,
            "diff": "".join(f"{line}\n" for line in diff_lines(outcome.fix)),
        }
        if outcome.error is not None:
            document["error"] = error_document(outcome.error)
        documents.append(document)
    return documents


def diff_lines(fix: FileFix, *, aligned: int = ALIGNED_LINES) -> Iterator[str]:
    """Yield the lines of a unified diff, without line ends; `\\r` stays to be seen.

    Args:
        aligned: Most lines that are paired up; more become one hunk.
    """
    before, after = (_lines(data) for data in (fix.before, fix.after))
    head = _common(before, after)
    limit = min(len(before), len(after)) - head
    tail = _common(before[::-1], after[::-1], limit)
    if max(len(before), len(after)) - head - tail > aligned:
        lines = _one_hunk(str(fix.path), before, after, head, tail)
    else:
        lines = difflib.unified_diff(before, after, f"a/{fix.path}", f"b/{fix.path}", lineterm="")
    for line in lines:
        yield from line.split("\n")


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", errors="backslashreplace")
    lines = text.split("\n")
    if lines[-1]:  # as diff marks it; the next line is always another one
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _common(a: Sequence[str], b: Sequence[str], limit: int | None = None) -> int:
    number = 0
    for left, right in zip(a, b, strict=False):
        if left != right or number == limit:
            break
        number += 1
    return number


def _one_hunk(
    path: str, before: Sequence[str], after: Sequence[str], head: int, tail: int
) -> Iterator[str]:
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    yield f"--- a/{path}"
    yield f"+++ b/{path}"
    yield f"@@ -{head + 1},{len(old)} +{head + 1},{len(new)} @@"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatReport(Report):
    """A line for each file that is not, and what became of it."""

    outcomes: tuple[FixOutcome, ...]
    is_check: bool
    has_diff: bool = False
    schema: str = "aoebank.fmt/1"

    @property
    def error(self) -> AoebankError | None:
        """Return why a file could not be written."""
        return next((outcome.error for outcome in self.outcomes if outcome.error), None)

    @property
    def exit_code(self) -> int:
        """Return 1 if a file that was only looked at is in another form."""
        if self.error is not None:
            return self.error.exit_code
        return int(self.is_check and bool(self.outcomes))

    def document(self) -> Mapping[str, object]:
        return {"check": self.is_check, "files": fixes_document(self.outcomes)}

    def write(self, text: Text) -> None:
        for outcome in self.outcomes:
            if self.has_diff:
                write_diff(text, outcome.fix)
            done = "would format" if self.is_check else "formatted"
            if not self.is_check and not outcome.is_written:
                done = "not formatted"
            text.line(f"{done} {outcome.fix.path}: {', '.join(outcome.fix.classes)}")
        number = sum(self.is_check or outcome.is_written for outcome in self.outcomes)
        done = "would be formatted" if self.is_check else "formatted"
        text.line(f"{plural(number, 'file')} {done}" if number else "all files are in this form")
