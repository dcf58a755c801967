"""Findings as SARIF, the exchange format of static analysis tools.

Source: OASIS Static Analysis Results Interchange Format 2.1.0, sections 3.14 to 3.30.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from aoebank.model.codes import CODES, Severity
from aoebank.model.finding import Finding, Location
from aoebank.validation.explain import explanations
from aoebank.validation.report.findings import facts

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif_log(
    findings: Sequence[Finding], *, version: str, exit_code: int, is_complete: bool
) -> dict[str, object]:
    """Return the log of one run.

    Args:
        version: Of this program.
        is_complete: False if a path asked for could not be looked at.
    """
    codes = sorted({finding.code for finding in findings})
    numbers = {code: number for number, code in enumerate(codes)}
    driver = {"name": "aoebank", "version": version, "rules": [_rule(code) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": is_complete, "exitCode": exit_code}],
        "results": [_result(finding, numbers[finding.code]) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(code: str) -> dict[str, object]:
    explanation = explanations()[code]
    text = f"{explanation.meaning}\n\n{explanation.why}\n\n{explanation.way_out}"
    return {
        "id": code,
        "shortDescription": {"text": CODES[code].title},
        "fullDescription": {"text": explanation.meaning},
        "help": {"text": text},
        "defaultConfiguration": {"level": _LEVELS[CODES[code].severity]},
    }


def _result(finding: Finding, rule: int) -> dict[str, object]:
    text = f"{finding.message}{facts(finding)}"
    if finding.hint:
        text = f"{text}\nhint: {finding.hint}"
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": _place(finding.location)}],
    }
    if finding.location.pointer:
        result["properties"] = {"pointer": finding.location.pointer}
    return result


def _place(location: Location) -> dict[str, object]:
    place: dict[str, object] = {"artifactLocation": {"uri": uri_of(location.path)}}
    if location.line:
        region: dict[str, object] = {
            "startLine": location.line,
            "startColumn": location.column,
            "byteOffset": location.start,
            "byteLength": max(location.end - location.start, 0),
        }
        place["region"] = region
    return place


def uri_of(path: Path) -> str:
    """Return a path as a relative URI reference, or a `file:` one if it is absolute.

    >>> uri_of(Path("a bank/x:y.json"))
    'a%20bank/x%3Ay.json'
    """
    text = quote(os.fsencode(path), safe="/")
    return f"file://{text}" if path.is_absolute() else text
