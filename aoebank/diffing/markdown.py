"""A difference as a comment for a pull request: GitHub's Markdown, of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from aoebank.diffing.fields import field_value
from aoebank.diffing.report import (
    ROLLUP,
    DiffReport,
    changes_by_kind,
    summary_lines,
    verdict_text,
)
from aoebank.diffing.result import FileMove, RecordChange, RollupRow
from aoebank.report.answer_page import code

MAX_CHARACTERS = 60_000  # GitHub takes 65,536 in a comment
MAX_ROWS = 100  # per table
_MOST_FIELDS = 6
_CLOSING = 80  # what ends a table takes no more
_CHANGE_HEADER = ("ratio", "A (us)", "B (us)", "op_type", "workload", "key")


@dataclass(slots=True)
class _Page:
    """Lines, as long as they fit."""

    lines: list[str] = field(default_factory=list)
    room: int = MAX_CHARACTERS

    def add(self, *lines: str, spare: int = 0) -> bool:
        """Add lines if they fit and leave room for `spare` characters."""
        size = sum(len(line) + 1 for line in lines)
        if size + spare > self.room:
            return False
        self.lines += lines
        self.room -= size
        return True

    def table(
        self,
        title: str,
        number: int,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        right: Iterable[int] = (),
        is_open: bool = False,
    ) -> None:
        """Add a table, if there are rows: as many as fit, and how many do not."""
        if not number:
            return
        opening = f"<details{' open' if is_open else ''}><summary>{title} ({number:,})</summary>"
        places = frozenset(right)
        ruler = _row("---:" if place in places else "---" for place in range(len(header)))
        if not self.add(opening, "", _row(header), ruler, spare=2 * _CLOSING):
            self.add(f"{title}: {number:,}", "")
            return
        shown = 0
        for row in islice(rows, MAX_ROWS):
            if not self.add(_row(row), spare=_CLOSING):
                break
            shown += 1
        if shown < number:
            self.add("", f"... and {number - shown:,} more")
        self.add("", "</details>", "")


def diff_markdown(report: DiffReport) -> str:
    """Return the comment, at most `MAX_CHARACTERS` long."""
    result = report.result
    page = _Page()
    page.add(f"### Bank diff: {code(result.a)} → {code(result.b)}", "")
    for line in summary_lines(result, report.fail_on_ratio):
        page.add(line, "")
    for problem in result.problems[:MAX_ROWS]:
        page.add(f"- not compared: {code(problem.headline, 400)}")
    page.add("")
    if not report.is_stat:
        slower, *others = changes_by_kind(result)
        _add_table(page, *slower, is_open=True)
    rows = [row for row in result.rollup if not row.is_quiet]
    page.table(
        "By soc_version and op_type",
        len(rows),
        [title for title, _, _ in ROLLUP],
        map(_rollup_cells, rows),
        right=range(2, len(ROLLUP)),
        is_open=True,
    )
    if not report.is_stat:
        page.table(
            "Moved files",
            len(result.moves),
            ("A", "B", "equal records"),
            map(_move_cells, result.moves),
            right=(2,),
        )
        for title, found in others:
            _add_table(page, title, found, is_open=False)
    return "\n".join(page.lines).rstrip("\n") + "\n"


def _add_table(page: _Page, title: str, changes: Sequence[RecordChange], *, is_open: bool) -> None:
    page.table(
        title,
        len(changes),
        _CHANGE_HEADER,
        map(_change_cells, changes),
        right=(0, 1, 2),
        is_open=is_open,
    )


def _change_cells(change: RecordChange) -> tuple[str, ...]:
    ratio = "" if change.cost_ratio is None else f"{change.cost_ratio:.3f}x"
    costs = ("" if cost is None else f"{cost:g}" for cost in (change.cost_a_us, change.cost_b_us))
    return (
        f"{ratio}{verdict_text(change)}",
        *costs,
        code(change.op_type or ""),
        _about(change),
        code(change.key, 40),
    )


def _about(change: RecordChange) -> str:
    """Return workload, changed members or problem as lines of one cell."""
    fields = [
        f"{code(field.pointer or '/', 60)}: {code(field_value(field, of_b=False), 60)} → "
        f"{code(field_value(field, of_b=True), 60)}"
        for field in change.told_fields[:_MOST_FIELDS]
    ]
    if len(change.told_fields) > _MOST_FIELDS:
        fields.append(f"... and {len(change.told_fields) - _MOST_FIELDS:,} more")
    first = [code(text) for text in (change.workload, change.problem) if text]
    return "<br>".join([*first, *fields])


def _rollup_cells(row: RollupRow) -> tuple[str, ...]:
    names = (code(name) if name else "-" for name in (row.soc_version, row.op_type))
    return (*names, *(cell(row) for _, _, cell in ROLLUP[2:]))


def _move_cells(move: FileMove) -> tuple[str, ...]:
    return code(move.a), code(move.b), f"{move.equal} of {move.records_a}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
