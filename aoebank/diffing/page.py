"""A difference as one HTML page: figures, roll-up, the worst first, strategies side by side."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from jinja2 import Environment

from aoebank.diffing.fields import field_value
from aoebank.diffing.report import (
    WORDS,
    DiffReport,
    changes_by_kind,
    header_text,
    percent,
    rollup_columns,
    summary_lines,
)
from aoebank.diffing.result import DiffResult, RecordChange, TimeVerdict
from aoebank.report.html import page_environment
from aoebank.report.output import cut, plural, said_columns

MAX_ROWS = 2000  # per table; a browser takes more, a reader does not
_HEADS = {
    "ratio": "cost_ratio",
    "A (us)": "cost_a_us",
    "B (us)": "cost_b_us",
    "soc_version": "soc_version",
    "op_type": "op_type",
}


def diff_html(report: DiffReport) -> str:
    """Return the page."""
    result = report.result
    return (
        _pages()
        .get_template("diff.html")
        .render(
            result=result,
            is_stat=report.is_stat,
            summary=summary_lines(result, report.fail_on_ratio),
            times=result.times(),
            mean_mood=_mean_mood(result),
            columns=rollup_columns(result),
            header_lines=[f"{one.file}: {header_text(one)}" for one in result.headers],
            by_kind=[*changes_by_kind(result)],
        )
    )


@cache
def _pages() -> Environment:
    functions = (cut, field_value, known_heads, percent, plural, said_columns)
    return page_environment(*functions, words=WORDS, verdicts=TimeVerdict, most_rows=MAX_ROWS)


def known_heads(changes: Iterable[RecordChange]) -> frozenset[str]:
    """Return the heads of columns with an entry at least."""
    return frozenset(
        head
        for head, name in _HEADS.items()
        if any(getattr(change, name) not in (None, "") for change in changes)
    )


def _mean_mood(result: DiffResult) -> str:
    times = result.times()
    if times is None or 1 / (1 + result.noise_ratio) <= times.mean_ratio <= 1 + result.noise_ratio:
        return ""
    return "bad" if times.mean_ratio > 1 else "good"
