"""Tell what finding codes mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.report.output import Report, Text, members
from aoebank.validation.explain import Explanation
from aoebank.validation.report.findings import STYLES


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport(Report):
    """A table of codes, or all there is to say about some.

    Attributes:
        codes: As they were asked for; empty for the table of all.
    """

    explanations: Sequence[Explanation]
    codes: Sequence[str]
    schema: str = "aoebank.explain/1"

    def document(self) -> Mapping[str, object]:
        return {"codes": [_document(explanation) for explanation in self.explanations]}

    def write(self, text: Text) -> None:
        if not self.codes:
            rows = [
                (explanation.code, str(explanation.severity), explanation.title)
                for explanation in self.explanations
            ]
            text.table(("code", "severity", "meaning"), rows)
            return
        for number, explanation in enumerate(self.explanations):
            if number:
                text.line()
            _write(text, explanation)


def _document(explanation: Explanation) -> dict[str, object]:
    return members(explanation, "code severity title meaning why example way_out fixed_by")


def _write(text: Text, explanation: Explanation) -> None:
    text.line(
        (explanation.code, "bold"),
        f" {explanation.title} (",
        (str(explanation.severity), STYLES[explanation.severity]),
        ")",
    )
    text.line(f"  {explanation.meaning}")
    text.line(("  why:     ", "dim"), explanation.why)
    text.line(("  example: ", "dim"), explanation.example)
    text.line(("  way out: ", "dim"), explanation.way_out)
    if explanation.fixed_by is not None:
        text.line(
            ("  fix:     ", "dim"), f"aoebank validate --fix --fix-class {explanation.fixed_by}"
        )
