"""Tell what finding codes mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.ops.validate.explain import Explanation
from aoebank.report.output import Text
from aoebank.report.validate.findings import STYLES


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport:
    """A table of codes, or all there is to say about some."""

    explanations: Sequence[Explanation]
    is_list: bool
    schema: str = "aoebank.explain/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return every part of each explanation."""
        return {"codes": [_document(each) for each in self.explanations]}

    def write(self, text: Text) -> None:
        """Write a row per code, or a page per code."""
        if self.is_list:
            rows = [(each.code, str(each.severity), each.title) for each in self.explanations]
            text.table(("code", "severity", "meaning"), rows)
            return
        for number, each in enumerate(self.explanations):
            if number:
                text.line()
            _write(text, each)


def _document(each: Explanation) -> dict[str, object]:
    return {
        "code": each.code,
        "severity": str(each.severity),
        "title": each.title,
        "meaning": each.meaning,
        "why": each.why,
        "example": each.example,
        "way_out": each.way_out,
        "fixed_by": None if each.fixed_by is None else str(each.fixed_by),
    }


def _write(text: Text, each: Explanation) -> None:
    text.line(
        (each.code, "bold"), f" {each.title} (", (str(each.severity), STYLES[each.severity]), ")"
    )
    text.line(f"  {each.meaning}")
    text.line(("  why:     ", "dim"), each.why)
    text.line(("  example: ", "dim"), each.example)
    text.line(("  way out: ", "dim"), each.way_out)
    if each.fixed_by is not None:
        text.line(("  fix:     ", "dim"), f"aoebank validate --fix --fix-class {each.fixed_by}")
