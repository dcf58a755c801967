"""SARIF: what viewers of 2.1.0 demand, and places accurate to the byte."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aoebank import Finding, Severity
from aoebank.model.codes import CODES
from aoebank.model.finding import Location, make_finding
from aoebank.validation.exchange import MOST_RESULTS, sarif_log, sarif_page, uri_of
from aoebank.validation.report import ValidateReport
from aoebank.validation.run import ValidateResult, validate

# the parts of the 2.1.0 schema that uploads are refused for
MESSAGE = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
REGION = {
    "type": "object",
    "properties": {
        "startLine": {"type": "integer", "minimum": 1},
        "startColumn": {"type": "integer", "minimum": 1},
        "byteOffset": {"type": "integer", "minimum": 0},
        "byteLength": {"type": "integer", "minimum": 0},
    },
    "additionalProperties": False,
}
RULE = {
    "type": "object",
    "required": ["id", "shortDescription", "fullDescription", "help"],
    "properties": {
        "id": {"type": "string"},
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": {"properties": {"level": LEVEL}},
    },
}
RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
    "properties": {
        "level": LEVEL,
        "message": MESSAGE,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "locations": {
            "type": "array",
            "minItems": 1,
            "items": {
                "required": ["physicalLocation"],
                "properties": {
                    "physicalLocation": {
                        "required": ["artifactLocation"],
                        "properties": {
                            "artifactLocation": {"properties": {"uri": {"type": "string"}}},
                            "region": REGION,
                        },
                    }
                },
            },
        },
    },
}
LOG = {
    "type": "object",
    "required": ["version", "runs", "$schema"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "properties": {
                            "driver": {
                                "required": ["name", "rules"],
                                "properties": {"rules": {"type": "array", "items": RULE}},
                            }
                        }
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": RESULT},
                },
            },
        },
    },
}


def log_of(*findings: Finding, is_complete: bool = True) -> Any:
    log: Any = sarif_log(findings, version="1.2.3", exit_code=1, is_complete=is_complete)
    jsonschema.validate(log, LOG)
    return log["runs"][0]


def test_every_code_makes_a_valid_log() -> None:
    place = Location(path=Path("a.json"), line=1, column=1, start=0, end=2)
    run = log_of(*(make_finding(code, place, "x", hint="do it") for code in CODES))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(CODES)
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])


def test_only_rules_with_a_result_are_listed() -> None:
    finding = make_finding("AB106", Location(path=Path("a")), "x")
    run = log_of(finding, finding)
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["AB106"]
    assert len(run["results"]) == 2
    assert "region" not in run["results"][0]["locations"][0]["physicalLocation"]


def test_level_is_the_one_of_the_finding() -> None:
    finding = Finding(
        code="AB105", location=Location(path=Path("a")), message="x", severity=Severity.ERROR
    )
    run = log_of(finding)
    assert run["results"][0]["level"] == "error"
    assert run["tool"]["driver"]["rules"][0]["defaultConfiguration"] == {"level": "note"}


def test_run_without_findings_is_valid() -> None:
    assert log_of()["results"] == []


def test_run_that_missed_a_path_says_so() -> None:
    assert log_of(is_complete=False)["invocations"][0]["executionSuccessful"] is False


def test_region_points_at_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "s_1_AiCore_x.json"
    text = '{\n"äöü": [], "k": [{"knowledge": {}, "info_dict": 7}]\n}\n'
    path.write_text(text, encoding="utf-8")
    run = log_of(*validate([path]).findings)
    for result in run["results"]:
        if result["ruleId"] == "AB206":
            region = result["locations"][0]["physicalLocation"]["region"]
            line = text.splitlines()[region["startLine"] - 1]
            assert line[region["startColumn"] - 1 :].startswith("7}]")
            assert path.read_bytes()[region["byteOffset"] :].startswith(b"7}]")
            assert result["properties"] == {"pointer": "/k/0/info_dict"}
            return
    pytest.fail("no AB206")


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("a/b.json", "a/b.json"),
        ("/a b/ä#?.json", "file:///a%20b/%C3%A4%23%3F.json"),
        ("a\udcff.json", "a%FF.json"),
    ],
)
def test_paths_become_uri_references(path: str, uri: str) -> None:
    assert uri_of(Path(path)) == uri


def test_more_findings_than_code_scanning_takes_leave_out_the_mildest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def findings(code: str, number: int) -> list[Finding]:
        return [make_finding(code, Location(path=Path(f"{n}.json")), "m") for n in range(number)]

    found = (*findings("AB401", MOST_RESULTS - 1), *findings("AB302", 2), *findings("AB103", 3))
    report = ValidateReport(result=ValidateResult(findings=found, checked=(), records=0))
    run = json.loads(sarif_page(report))["runs"][0]
    levels = [result["level"] for result in run["results"]]
    assert len(levels) == MOST_RESULTS and levels[-5:] == ["error"] * 5
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"].startswith("4 notes left out of 25004 findings: ")
    assert notice["message"]["text"] in capsys.readouterr().err
    report = replace(report, result=replace(report.result, findings=found[-MOST_RESULTS:]))
    run = json.loads(sarif_page(report))["runs"][0]
    assert len(run["results"]) == MOST_RESULTS
    assert "toolExecutionNotifications" not in run["invocations"][0]
    assert capsys.readouterr().err == ""
