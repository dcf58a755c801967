"""Tell what is in a bank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import shell_word
from aoebank.reading.ls import FileSummary, ListResult
from aoebank.report.closed import ReadingReport, closed_document, write_closed
from aoebank.report.output import Text, members, plural

_FEW_KEYS = 2
_LONGEST_KEY = 24  # a feature list is a key too, and no column


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReport(ReadingReport[ListResult]):
    """A table of files."""

    schema: str = "aoebank.ls/1"

    @property
    def where(self) -> str:
        """The bank."""
        return self.result.root

    def document(self) -> Mapping[str, object]:
        """Return a member per file."""
        return {
            "root": self.result.root,
            "records": sum(file.records for file in self.result.files),
            "files": [_document(file) for file in self.result.files],
            "unreadable": closed_document(self.result.closed),
        }

    def write(self, text: Text) -> None:
        """Write the table and the totals."""
        if self.result.files:
            text.columns(
                self.result.files,
                ("soc_version", "-", lambda one: one.soc_version or "-"),
                ("cores", "r", lambda one: "-" if one.core_num is None else str(one.core_num)),
                ("core type", "-", lambda one: one.core_type or "-"),
                ("op_type", "-", lambda one: one.op_type or "-"),
                ("format", "-", lambda one: str(one.format)),
                ("records", "r", lambda one: str(one.records)),
                ("best", "r", lambda one: _times(one.best_speedup)),
                ("median", "r", lambda one: _times(one.median_speedup)),
                ("keys", "-", _keys),
                ("file", "p", lambda one: one.name),
            )
        for file in self.result.files:
            for key in file.keys if len(file.keys) > _FEW_KEYS else ():
                text.line(f"  {shell_word(key)}")
            if file.problem:
                text.line(("broken: ", "red"), _place(file))
        write_closed(text, self.result.closed)
        records = sum(file.records for file in self.result.files)
        text.line(f"{plural(len(self.result.files), 'file')}, {plural(records, 'record')}")


def _place(file: FileSummary) -> str:
    space = "" if file.problem[:1].isdigit() else " "  # a line, or nothing: the file as a whole
    return f"{file.path}:{space}{file.problem}"


def _keys(file: FileSummary) -> str:
    few = file.keys[:_FEW_KEYS]
    shown = [shell_word(key) if len(key) <= _LONGEST_KEY else "..." for key in few]
    more = ["..."] if len(few) < file.records and shown[-1:] != ["..."] else []
    return " ".join([*dict.fromkeys(shown), *more]) or "-"


def _times(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.2f}x"


def _document(file: FileSummary) -> dict[str, object]:
    names = "path format soc_version core_num core_type op_type records best_speedup median_speedup"
    return {**members(file, f"{names} keys"), "problem": file.problem or None}
