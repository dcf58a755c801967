"""Faults of single records: errors of a record itself, in any format."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of a record."""

    is_unreadable: bool  # Whether no reader gets an answer out of it; else some of it is wrong
    problem: str  # The first error about it, for people
    # Key readers look its workload up by, where it is stored under another spelling.
    own_key: str = ""


_OTHER_KEY = "AB302"  # its finding expects the key of the workload


def find_fault(parsed: ParsedFile, number: int) -> Fault | None:
    """Return the fault of the record at a position, None if it has none.

    Errors count, warnings and notes do not, nor does what other records of the file have to do
    with it: a record is as good in another file for the same target.
    """
    # a merge asks about each record that changed: reading it a second time counts
    if not (parsed.format.check_reads_all and parsed.raw(number).isascii()):
        try:
            parsed.format.record(parsed, number)
        except RecordError as error:
            return Fault(is_unreadable=True, problem=error.headline)
    found = next(_errors(parsed, number), None)
    if found is None:
        return None
    own_key = found.expected if found.code == _OTHER_KEY else ""
    return Fault(is_unreadable=False, problem=_say(found), own_key=own_key or "")


def rank_of(fault: Fault | None) -> int:
    """Return the rank of a fault: 0 sound, 1 with an error, 2 unreadable."""
    return 0 if fault is None else 1 + fault.is_unreadable


def _errors(parsed: ParsedFile, number: int) -> Iterator[Finding]:
    alone = replace(
        parsed,
        keys=[parsed.keys[number]],
        starts=array("Q", [parsed.starts[number]]),
        ends=array("Q", [parsed.ends[number]]),
        findings=(),
        preferred={},
    )
    for finding in parsed.format.check(alone):
        if finding.severity is Severity.ERROR:
            yield finding


def _say(finding: Finding) -> str:
    return f"{finding.code} {finding.message}"
