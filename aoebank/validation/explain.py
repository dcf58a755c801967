"""Explanations of finding codes from `aoebank/explanations`: meaning, importance, way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from aoebank.model.codes import CODES, FIXED_CODES, FixClass, Severity
from aoebank.report.output import Report, Text, members
from aoebank.validation.selection import find_codes

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
# `## CODE`, a paragraph, then one list item per part; lines of a part are joined
_SECTION = re.compile(r"^## (AB\d{3})\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PART = re.compile(
    r"^- (why|example|way out): (.*?)(?=^- (?:why|example|way out): |\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything there is to say about one finding code."""

    code: str
    severity: Severity
    title: str
    meaning: str  # What was seen in the file
    why: str  # Which reader does what about it
    example: str  # A line of a bank, or a situation, that has the finding
    way_out: str  # What to do
    fixed_by: FixClass | None = None  # The class of `validate --fix` that mends it, if one does


def explain(texts: Iterable[str]) -> tuple[Explanation, ...]:
    """Return the explanations of codes and prefixes of codes, of all when there is none.

    Raises:
        UsageError: no code starts like one of the texts.
    """
    asked = [code for text in texts for code in find_codes(text)] or list(CODES)
    known = explanations()
    return tuple(known[code] for code in dict.fromkeys(asked))


@cache
def explanations() -> Mapping[str, Explanation]:
    """Return the explanation of every code that has one, in the order of the codes."""
    sections: dict[str, str] = {}
    for page in sorted(
        resources.files("aoebank").joinpath("explanations").iterdir(), key=lambda file: file.name
    ):
        if page.name.endswith(".md"):
            sections.update(_SECTION.findall(page.read_text(encoding="utf-8")))
    fixes = {code: fix_class for fix_class, codes in FIXED_CODES.items() for code in codes}
    return {
        code: _parse(code, sections[code], fixes.get(code)) for code in CODES if code in sections
    }


def _parse(code: str, section: str, fixed_by: FixClass | None) -> Explanation:
    parts = {name: _join(text) for name, text in _PART.findall(section)}
    return Explanation(
        code=code,
        severity=CODES[code].severity,
        title=CODES[code].title,
        meaning=_join(section.split("\n- ", 1)[0]),
        why=parts["why"],
        example=parts["example"],
        way_out=parts["way out"],
        fixed_by=fixed_by,
    )


def _join(text: str) -> str:
    return " ".join(text.split())


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport(Report):
    """A table of codes, or all there is to say about some."""

    explanations: Sequence[Explanation]
    codes: Sequence[str]  # As they were asked for; empty for the table of all
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
