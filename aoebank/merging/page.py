"""A conflict file as one HTML page on which a person chooses, and which makes the file anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup, escape

from aoebank.errors import BankNotFoundError
from aoebank.merging.document import (
    CONFLICTS,
    OPEN,
    bank_beside,
    read_document,
    serialize_document,
)
from aoebank.merging.walk import conflict_view
from aoebank.model.json_value import JsonValue
from aoebank.report.answer_page import html_answer
from aoebank.report.html import page_environment
from aoebank.report.output import Report, Text, members, plural
from aoebank.storage.bank import read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictPage:
    """A page to settle conflicts on."""

    html: str
    bank: Path
    conflicts: int  # How many are on it


def make_conflict_page(path: Path) -> ConflictPage:
    """Return the page of a conflict file; nothing is settled.

    Raises:
        BankNotFoundError: the conflict file or its bank is not there.
        BankFormatError: it is no conflict file.
    """
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path, expected="a conflict file")
    document = read_document(data, path, [CONFLICTS])
    parsed, _ = bank_beside(path)
    found = document["decisions"]
    decisions = (
        [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    )
    html = (
        _pages()
        .get_template("conflicts.html")
        .render(
            bank=parsed.path.name,
            file=path.name,
            views=[conflict_view(parsed, one) for one in decisions],
            actions=[str(one["action"]) for one in decisions],
            document=_markup(document),
            open=OPEN,
        )
    )
    return ConflictPage(html=html, bank=parsed.path, conflicts=len(decisions))


def page_of(report: Report) -> str:
    """Return the HTML of a report on a merge: a page to decide on has one of its own."""
    return report.result.html if isinstance(report, ConflictPageReport) else html_answer(report)


def _markup(document: Mapping[str, JsonValue]) -> Markup:
    """Return a document as text of a page, lines and all; no character of it steers a reader."""
    plain = json.loads(serialize_document(document))
    return escape(json.dumps(plain, indent=2))


@cache
def _pages() -> Environment:
    return page_environment(script="conflicts.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictPageReport(Report):
    """What is on the page."""

    result: ConflictPage
    schema: str = "aoebank.merge-page/1"

    def document(self) -> Mapping[str, object]:
        return members(self.result, "bank conflicts")

    def write(self, text: Text) -> None:
        number = plural(self.result.conflicts, "conflict")
        text.line(f"{number} of {self.result.bank}, to choose in a browser; nothing is settled yet")
