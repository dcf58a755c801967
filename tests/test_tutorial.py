"""The tutorial notebook runs from its first cell to its last, and shows tables."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"
LIMIT_S = 300


def test_file_is_kept_without_results() -> None:
    cells = json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each code cell shows, in a kernel of its own and an empty folder."""
    pytest.importorskip("ipykernel")
    pytest.importorskip("pandas")
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("tutorial")
    notebook = nbformat.read(shutil.copy(TUTORIAL, folder), as_version=4)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    client.NotebookClient(
        notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(folder)}}
    ).execute(env={**os.environ, "PYTHONPATH": path})
    shown = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    return [cell[-1].get("data", {}) if cell else {} for cell in shown]


def test_notebook_runs_and_shows_tables(outputs: list[dict[str, Any]]) -> None:
    _, tuned, rows, loaded, bank, frame, query, difference, merged, valid = outputs
    assert "<table>" in tuned["text/html"] and "whole model:" in tuned["text/html"]
    assert "whole model:" in tuned["text/plain"] and "('" in rows["text/plain"]
    assert "tuned for" in loaded["text/html"]
    assert "<table>" in bank["text/html"] and bank["text/plain"] == "Bank('bank')"
    assert "<table" in frame["text/html"] and "<table>" in query["text/html"]
    assert "slower" in difference["text/html"] or "within" in difference["text/html"]
    assert "no conflict" in merged["text/html"]
    assert "0 errors" in valid["text/plain"]
