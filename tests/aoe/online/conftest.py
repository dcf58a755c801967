"""What tests of online sessions share."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoe.device.registry import default_device


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank with something in it for this machine."""
    folder = tmp_path / "bank" / default_device().describe().soc_version / "unified_bank"
    folder.mkdir(parents=True)
    (folder / "records.json").write_text("{}")
    return tmp_path / "bank"
