"""`aoe doctor` as a command: two tables or one document, and whether a run would stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.documents import find_faults

from aoe.cli.app import app
from aoe.cli.errors import run_app


def test_tables_name_every_setting_and_end_with_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_app(app, ["doctor"])
    out, err = capsys.readouterr()
    assert err == "" and code == 0
    assert "tuning_time_limit" in out and "  ok  compiler: " in out
    assert out.splitlines()[-1].startswith("a run can begin")


def test_document_fits_its_schema_and_a_file_counts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("MAX_COMPILE_CORE_NUMBER", "4")
    (tmp_path / "sgat_config.json").write_text('{"max_tuning_count": 7}')
    file = tmp_path / "sgat_config.json"
    assert run_app(app, ["doctor", "--config", str(file), "--device=0", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert find_faults(document) == []
    (count,) = (one for one in document["settings"] if one["name"] == "max_tuning_count")
    assert (count["value"], count["place"]) == ("7", f"{file}: max_tuning_count")
    verdicts = {one["name"]: one["verdict"] for one in document["checks"]}
    assert verdicts["compiler"] == "stops" and verdicts["environment"] == "doubtful"


def test_file_that_cannot_be_read_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, ["doctor", "--config=none.json"]) == 2
    assert "cannot be read" in capsys.readouterr().err
