"""Two profiles side by side, as text and as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.profiling.comparing import ComparedOperators, ComparedProfiles
from aoe.report.profiling.text import figure, write_files
from aoe.report.quantities import time_text

if TYPE_CHECKING:
    from aoebank import AoebankError, Text

_MOST_ROWS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileComparisonReport:
    """What became of each operator and each kind.

    Attributes:
        written: Files.
        is_dry_run: True if they were not written.
    """

    compared: ComparedProfiles
    written: tuple[Path, ...] = ()
    is_dry_run: bool = False
    schema: str = "aoe.profile_comparison/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return the times before and after, of the model, of kinds and of operators."""
        written = [] if self.is_dry_run else [str(file) for file in self.written]
        return {**comparison_members(self.compared), "written": written}

    def write(self, text: Text) -> None:
        """Write both times, then what has changed most."""
        compared = self.compared
        before, after = compared.before, compared.after
        text.line(f"before {before.model}: {time_text(before.model_us)} a run")
        text.line(
            f"after  {after.model}: {time_text(after.model_us)} a run, "
            f"{figure(compared.speedup, '.3f')}x as fast"
        )
        for doubt in compared.doubts:
            text.line(f"not to be compared: {doubt}")
        text.line()
        text.line("operators, by what has changed:")
        write_operators(text, compared.operators)
        text.line()
        text.line("kinds, by what has changed:")
        text.table(
            ["kind", "places", "before us", "after us", "x"],
            [
                [
                    one.kind,
                    str(one.places),
                    f"{one.before_us:.1f}",
                    f"{one.after_us:.1f}",
                    figure(one.speedup, ".2f"),
                ]
                for one in compared.kinds()[:_MOST_ROWS]
            ],
            "-rrrr",
        )
        write_files(text, self.written, is_dry_run=self.is_dry_run)


def comparison_members(compared: ComparedProfiles) -> dict[str, object]:
    """Return the times before and after, of the model, of kinds and of operators."""
    return {
        "before": compared.before.model,
        "after": compared.after.model,
        "before_us": compared.before.model_us,
        "after_us": compared.after.model_us,
        "speedup": _rounded(compared.speedup),
        "doubts": list(compared.doubts),
        "kinds": [
            {
                "kind": one.kind,
                "places": one.places,
                "before_us": round(one.before_us, 4),
                "after_us": round(one.after_us, 4),
                "speedup": _rounded(one.speedup),
            }
            for one in compared.kinds()
        ],
        "operators": [_operator(one) for one in compared.operators],
    }


def write_operators(text: Text, operators: Sequence[ComparedOperators]) -> None:
    """Write the first of these operators as a table, and how many more there are."""
    rows = [
        [
            names_text(one),
            one.kind,
            _time(one.before_us, bool(one.before)),
            _time(one.after_us, bool(one.after)),
            figure(one.speedup, ".2f"),
        ]
        for one in operators[:_MOST_ROWS]
    ]
    text.table(["operator", "computes", "before us", "after us", "x"], rows, "n-rrr")
    hidden = len(operators) - _MOST_ROWS
    if hidden > 0:
        text.line((f"{hidden} more with --json", "dim"))


def names_text(one: ComparedOperators) -> str:
    """Return the first of the nodes, and how many more there are."""
    more = len(one.op_names) - 1
    return f"{one.op_names[0]} +{more}" if more else one.op_names[0]


def _operator(one: ComparedOperators) -> Mapping[str, object]:
    return {
        "op_names": list(one.op_names),
        "kind": one.kind,
        "before": [operator.name for operator in one.before],
        "after": [operator.name for operator in one.after],
        "before_us": round(one.before_us, 4),
        "after_us": round(one.after_us, 4),
        "speedup": _rounded(one.speedup),
    }


def _time(time_us: float, is_there: bool) -> str:
    return f"{time_us:.1f}" if is_there else "-"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
